"""What an installed version consists of, and which of its files is not as it was installed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.durable import read_json, write_json
from runtime.hashing import sha256_of_all
from runtime.progress import Progress
from runtime.trouble import Trouble

RECORD = ".sparkd-engine.json"
# The reader of Engram's rows, compiled into the environment after the installation (adapter.engram_rows.build).
_BUILT_LATER = re.compile(r"lib/sparkd/engram_rows-[0-9a-f]{16}\.so")


@dataclass(frozen=True)
class Difference:
    path: str
    observed: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: {self.observed}; expected {self.expected}"


def record(tree: Path, facts: dict[str, Any], *, quiet: bool = True) -> None:
    """Write down every file of a version. Raises Trouble for one that cannot be read, OSError."""
    files, links = _listing(tree)
    digests: dict[str, list[object]] = {}
    progress = Progress("listing", sum((tree / name).stat().st_size for name in files), quiet=quiet)
    for name, found in sha256_of_all({name: tree / name for name in files}, progress.add, keep_cached=True):
        if isinstance(found, OSError):
            raise Trouble(f"{tree / name}: {found.strerror or found}")
        digests[name] = [found.status.st_size, found.sha256]
    progress.end()
    write_json(tree / RECORD, {**facts, "files": digests, "links": links})


def facts_of(tree: Path) -> dict[str, Any]:
    """What was written down. Raises Trouble."""
    try:
        return read_json(tree / RECORD)
    except FileNotFoundError as error:
        raise Trouble(f"{tree}: was not installed by sparkd-engine, or never finished ({RECORD} is missing)") from error


def differences(tree: Path, *, quiet: bool = True) -> list[Difference]:
    """Files that differ, are missing, or were added. Raises Trouble, OSError."""
    wanted: dict[str, list[Any]] = facts_of(tree)["files"]
    wanted_links: dict[str, str] = facts_of(tree)["links"]
    files, links = _listing(tree)
    found = [Difference(name, "missing", "a file") for name in wanted.keys() - set(files)]
    # Python compiles what it has no compiled file for, if it may: for another version, or another level.
    found += [
        Difference(name, "a file", "nothing there")
        for name in set(files) - wanted.keys()
        if not name.endswith(".pyc") and not _BUILT_LATER.fullmatch(name)
    ]
    for name in links.keys() | wanted_links.keys():
        if links.get(name) != wanted_links.get(name):
            found.append(Difference(name, f"a link to {links.get(name)}", f"one to {wanted_links.get(name)}"))
    same = sorted(wanted.keys() & set(files))
    progress = Progress("verify", sum(wanted[name][0] for name in same), quiet=quiet)
    for name, hashed in sha256_of_all({name: tree / name for name in same}, progress.add):
        size, sha256 = wanted[name]
        if isinstance(hashed, OSError):
            found.append(Difference(name, str(hashed.strerror or hashed), "a readable file"))
        elif hashed.sha256 != sha256:
            found.append(
                Difference(name, f"{hashed.status.st_size} bytes, {hashed.sha256[:16]}", f"{size}, {sha256[:16]}")
            )
    progress.end()
    return sorted(found, key=lambda each: each.path)


def _listing(tree: Path) -> tuple[list[str], dict[str, str]]:
    """Files, and links with where they lead, by path below the tree."""
    files: list[str] = []
    links: dict[str, str] = {}
    for directory, below, names in os.walk(tree):
        for name in (*below, *names):
            path = Path(directory) / name
            inside = path.relative_to(tree).as_posix()
            if path.is_symlink():
                links[inside] = os.readlink(path)
            elif name in names and inside != RECORD:
                files.append(inside)
    return sorted(files), links
