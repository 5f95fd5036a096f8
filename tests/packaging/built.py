"""The package as built from this working tree, and the tools that look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGED: tuple[str, ...] = ("sparkd", "ring_mesh", "runtime", "adapter", "units", "packaging", "docs")
MODULES: tuple[str, ...] = ("sparkd", "ring_mesh", "runtime", "adapter")


class MissingTool(AssertionError):
    """A tool that these tests need is not installed: a failure, since a check that did not run has not passed."""


def run(
    command: Sequence[str], package: str = "", *, check: bool = True, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a tool, with its output as text. package: what to install if it is missing.

    Raises MissingTool, or AssertionError with the output if the tool fails and `check` is set.
    """
    if shutil.which(command[0]) is None:
        wanted = package or command[0]
        raise MissingTool(f"{command[0]} is missing: apt-get install -y --no-install-recommends {wanted}")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **(environment or {})}
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def build() -> Path:
    """Build the package from the working tree. Returns its path."""
    return Path(run([str(ROOT / "packaging/build-deb")]).stdout.split()[-1])


def tree_files(*directories: str) -> list[str]:
    """Files below the directories, relative to the root, that git knows or would add."""
    listed = run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "--", *directories]
    )
    return sorted(name for name in set(listed.stdout.splitlines()) if (ROOT / name).exists())


def fresh() -> Path:
    """The package of this working tree, built anew only if something in it is newer than the package."""
    packages = list((ROOT / "build/deb").glob("sparkd_*_all.deb"))
    files = [ROOT / name for name in (*tree_files(*PACKAGED), "LICENSE", "NOTICE", "README.md")]
    # Directories too: a file that was deleted is not there to be newer.
    newest = max(path.stat().st_mtime for path in {*files, *(file.parent for file in files)} if path.exists())
    if len(packages) == 1 and packages[0].stat().st_mtime > newest:
        return packages[0]
    return build()


class Package:
    """A built package, unpacked. files: all but directories, by absolute path on the target, with their modes."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.path = path
        self.root = directory / "root"
        self.control = directory / "control"
        run(["dpkg-deb", "-x", str(path), str(self.root)])
        run(["dpkg-deb", "-e", str(path), str(self.control)])
        listing = run(["dpkg-deb", "-c", str(path)], environment={"LC_ALL": "C.UTF-8"}).stdout.splitlines()
        rows = [line.split(maxsplit=5) for line in listing]
        self.entries = {row[5].removeprefix("."): (row[0], row[1]) for row in rows}
        self.files = {name: mode for name, (mode, _) in self.entries.items() if not mode.startswith("d")}

    def text(self, name: str) -> str:
        """The text of an installed file."""
        return (self.root / name.lstrip("/")).read_text()

    def field(self, name: str) -> str:
        """A field of the control file."""
        return run(["dpkg-deb", "-f", str(self.path), name]).stdout.strip()

    def script(self, name: str) -> str:
        """The text of a maintainer script."""
        return (self.control / name).read_text()
