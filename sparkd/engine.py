"""The configured SGLang on this host: its profile as files, what is installed, and what a rank is given of both.

Files are looked at when the daemon starts, with each look at the host, and before each start. They are read again only
if one has changed, and SGLang's options only if the profile or the package has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkd.config import Settings, adapters
from sparkd.config.listing import asked, strangers, tuning
from sparkd.config.profiles import SHARE, candidates, folders, resolve, site_file
from sparkd.config.resolved import Resolved
from sparkd.config.settings import ConfigError, Problem
from sparkd.core.enginefacts import EngineFacts, Fault
from sparkd.host.engine import EngineFiles, Installed
from sparkd.host.installed import manifest_of, version_of
from sparkd.ports import DoorError

CONFIG = "SPARKD_ENGINE_CONFIG"
_Stamp = tuple[object, ...]


class Sglang:
    """`share`: the directory of the profiles that come with packages. What is told is of the last look."""

    def __init__(self, settings: Settings, files: EngineFiles | None = None, share: Path = SHARE) -> None:
        etc = settings.paths.config.parent
        self._engine = settings.engine
        self._folders, self._site = folders(etc, share), site_file(etc)
        self._files = files or EngineFiles()
        self._stamp: _Stamp = ()
        self._compared: _Stamp = ()
        self._resolved: Resolved | None = None
        self._faults: tuple[Fault, ...] = ()
        self._installed: Installed | None = None
        self._strangers: tuple[Fault, ...] | None = None
        self._content: Mapping[str, str] = {}
        self._why = "not looked at yet"

    async def begin(self) -> None:
        """The look that the first cycle needs: without SGLang's own options, which take a while."""
        await self._files.run(self._look)

    async def observe(self) -> EngineFacts:
        """Raises DoorError."""
        return await self._files.run(self._facts)

    def close(self) -> None:
        self._files.close()

    def digests(self) -> Mapping[str, str]:
        """What has to be equal on all hosts, as digests of sparkd.digests."""
        version = "unknown" if self._installed is None else self._installed.version or "missing"
        if self._resolved is None:
            return {"engine.profile": f"{self._engine.profile}, which cannot be used", "engine.version": version}
        return {**self._resolved.digests(), "engine.version": version, **self._content}

    def environment(self) -> Mapping[str, str]:
        """What the profile adds to a rank's environment file, or replaces in it. Raises DoorError."""
        if self._resolved is None:
            told = "; ".join(f"{f.file}: {f.key}: found {f.found}, expected {f.expected}" for f in self._faults)
            raise DoorError(f"the profile {self._engine.profile} cannot be used: {told or self._why}")
        version = "" if self._installed is None else self._installed.version
        config = self._resolved.config(self._engine.python, version)
        return {**tuning(self._resolved), CONFIG: config, **adapters.environment(self._resolved)}

    # On the door's thread. What has been found stays, also when nobody waits for it any more.

    def _facts(self) -> EngineFacts:
        self._look()
        found, profile = self._installed, self._resolved
        wanted, allowed = (profile.sglang, profile.allowed) if profile is not None else ("", ())
        if found is not None and profile is not None and profile.accepts(found.version):
            self._compare(found, profile)
        return EngineFacts(
            name=self._engine.name,
            profile=self._engine.profile,
            python=self._engine.python,
            wanted=wanted,
            allowed=allowed,
            faults=self._faults,
            version=None if found is None else found.version,
            interpreter=found is None or found.python,
            strangers=self._strangers,
            why=self._why,
            digests=dict(self.digests()),
        )

    def _look(self) -> None:
        stamp = tuple(_stamp(path) for path in candidates(self._engine.profile, self._folders, self._site))
        if stamp != self._stamp:
            try:
                self._resolved, self._faults = resolve(self._engine.profile, self._folders, self._site), ()
            except ConfigError as error:
                self._resolved, self._faults = None, _faults(error.problems)
                self._why = "the profile cannot be used"
            self._stamp, self._compared, self._strangers = stamp, (), None
        self._content = {"engine.installed": version_of(self._engine.python)}
        if self._resolved is not None:
            model = self._resolved.table("arguments").get("model-path", "")
            self._content = {**self._content, "engine.checkpoint": manifest_of(str(model))}
        try:
            self._installed = self._files.installed(Path(self._engine.python))
        except (DoorError, OSError) as error:
            self._installed, self._strangers, self._compared, self._why = None, None, (), str(error)

    def _compare(self, found: Installed, profile: Resolved) -> None:
        stamp = (found.version, *found.stamp)
        if stamp == self._compared:
            return
        self._compared, self._strangers = (), None
        if found.package is None:
            self._why = f"the source of SGLang {found.version} is not in the environment of {self._engine.python}"
            return
        try:
            answer = self._files.options(found.package, *asked(profile))
        except (DoorError, OSError) as error:
            self._why = str(error)
            return
        self._strangers = _faults(strangers(profile, found.version, answer))
        self._compared, self._why = stamp, ""


def _faults(problems: tuple[Problem, ...] | list[Problem]) -> tuple[Fault, ...]:
    return tuple(Fault(problem.file, problem.key, problem.found, problem.expected) for problem in problems)


def _stamp(path: Path) -> tuple[int, ...]:
    """Another one when the file has changed."""
    try:
        status = path.stat()
    except OSError as error:
        return (-(error.errno or 1),)
    return status.st_mtime_ns, status.st_ino, status.st_size, status.st_ctime_ns
