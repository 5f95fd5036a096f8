"""A lock: every wheel of one profile, by file, size and SHA-256; packaging/engine_lock.py makes it."""

from __future__ import annotations

import hashlib
import platform
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.trouble import Trouble

HERE = Path(__file__).parents[1] / "locks"
FORMAT = 1
_FILE = re.compile(
    r"(?P<name>[^-/\\]+)-(?P<version>[^-/\\]+)(-\d[^-/\\]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)


@dataclass(frozen=True)
class Wheel:
    name: str
    version: str
    file: str
    size: int
    sha256: str
    needs: tuple[str, ...]
    """Names of the packages that it needs where the lock is for."""

    @property
    def requirement(self) -> str:
        """As pip reads it: nothing but this file will do."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Lock:
    profile: str
    sglang: str
    python: str
    """As 3.12."""
    machine: str
    """As `uname -m` says."""
    imports: tuple[str, ...]
    """Modules that have to be there once it is installed."""
    left_out: tuple[str, ...]
    """Packages that some of the wheels ask for and that the profile does without."""
    wheels: tuple[Wheel, ...]
    digest: str

    @property
    def version(self) -> str:
        """The name of the directory that it is installed in."""
        return f"{self.sglang}-{self.profile}-{self.digest[:8]}"

    @property
    def size(self) -> int:
        return sum(wheel.size for wheel in self.wheels)


def shipped(name: str) -> Path:
    """The lock of a profile that comes with this version. Raises Trouble."""
    path = HERE / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in HERE.glob("*.toml")))
        raise Trouble(f"{name}: no such profile of an installation", f"there are {known}; --lock gives a file")
    return path


def read(path: Path) -> Lock:
    """Raises Trouble, naming what is wrong."""
    try:
        data = path.read_bytes()
        found = tomllib.loads(data.decode())
    except (OSError, ValueError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    if found.get("format") != FORMAT:
        raise Trouble(f"{path}: format is {found.get('format')!r}, expected {FORMAT}")
    try:
        wheels = tuple(_wheel(each, str(path)) for each in found["wheels"])
        lock = Lock(
            str(found["profile"]), str(found["sglang"]), str(found["python"]), str(found["machine"]),
            tuple(found["imports"]), tuple(found["left_out"]), wheels, hashlib.sha256(data).hexdigest(),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise Trouble(f"{path}: is no lock: {error}") from error
    names = [wheel.name for wheel in wheels]
    if twice := {name for name in names if names.count(name) > 1}:
        raise Trouble(f"{path}: {', '.join(sorted(twice))} is there twice")
    if not re.fullmatch(r"[\w.+-]+", lock.version):
        raise Trouble(f"{path}: {lock.version!r} is no name for a directory")
    return lock


def refuse_other_machine(lock: Lock, python: str) -> None:
    """Wheels are made for one Python and one kind of processor. Raises Trouble."""
    if platform.machine() != lock.machine:
        raise Trouble(
            f"profile {lock.profile} is for {lock.machine}, and this machine is {platform.machine()}",
            "choose another one with --profile",
        )
    if python != lock.python:
        raise Trouble(
            f"profile {lock.profile} is for Python {lock.python}, and the interpreter is {python}",
            f"give one with --python, as /usr/bin/python{lock.python}",
        )


def _wheel(found: Any, where: str) -> Wheel:
    wheel = Wheel(
        str(found["name"]), str(found["version"]), str(found["file"]), found["size"], str(found["sha256"]),
        tuple(found.get("needs", ())),
    )  # fmt: skip
    match = _FILE.fullmatch(wheel.file)
    if match is None or normal(match["name"]) != wheel.name or match["version"] != wheel.version:
        raise Trouble(f"{where}: {wheel.file!r} is no wheel of {wheel.name} {wheel.version}")
    if type(wheel.size) is not int or wheel.size <= 0 or not re.fullmatch("[0-9a-f]{64}", wheel.sha256):
        raise Trouble(f"{where}: size or sha256 of {wheel.file} is missing")
    return wheel


def normal(name: str) -> str:
    """A package's name as it is compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def tags(file: str) -> tuple[list[str], list[str], list[str]]:
    """For which Pythons, ABIs and platforms a wheel is (PEP 425)."""
    match = _FILE.fullmatch(file)
    if match is None:
        raise ValueError(file)
    return match["python"].split("."), match["abi"].split("."), match["platform"].split(".")
