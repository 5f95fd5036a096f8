"""What this host's rank would run: fingerprints of its launcher, its code, its plug-ins and the engine's files.

They are looked at once, when the daemon starts: a package or a file that is exchanged later takes part after the
daemon has been restarted, which the package's own upgrade does. The engine's profile and engine.toml are not among
them: sparkd.engine has those compared value by value, as they are at each start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkd.host.worker import Worker, describe

ABSENT = "absent"
_DIGITS = 16


@dataclass(frozen=True)
class Source:
    """`path`: a file, or a directory of which the Python and C++ files count, by name and content."""

    key: str
    path: Path


def registry(library: Path, config: Path) -> tuple[Source, ...]:
    """What has to be the same on every host, by the key that a difference is told with.

    `library` is where the daemon's own packages lie side by side with the rank's, `config` the directory of
    sparkd.toml.
    """
    return (
        Source("rank.launcher", library / "rank"),
        Source("rank.code", library / "runtime"),
        Source("adapter.code", library / "adapter"),
        Source("engine.lock", config / "engine.lock"),
        Source("checkpoint.manifest", config / "checkpoint.manifest"),
    )


class SourceFiles:
    def __init__(self, sources: Iterable[Source], deadline: float = 10.0) -> None:
        self._sources = tuple(sources)
        self._worker = Worker("the rank's files", deadline)

    async def observe(self) -> dict[str, str]:
        """A fingerprint for each key, "absent" where there is no such file, or why it cannot be read."""
        return await self._worker.call(lambda: {source.key: _fingerprint(source.path) for source in self._sources})

    def close(self) -> None:
        self._worker.close()


def _fingerprint(path: Path) -> str:
    try:
        if not path.is_dir():
            return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
        digest = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.suffix in (".py", ".cpp", ".hpp")):
            name = str(file.relative_to(path)).encode()
            # With their lengths: no content can pass for the name of another file.
            digest.update(b"%d %s %d " % (len(name), name, file.stat().st_size) + file.read_bytes())
        return digest.hexdigest()[:_DIGITS]
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        return f"unreadable ({describe(error)})"
