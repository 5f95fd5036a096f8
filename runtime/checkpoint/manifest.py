"""What a checkpoint has to be: revision, files, sizes and SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from runtime.durable import read_json, write_json
from runtime.trouble import Trouble

OWN = ".sparkd"
"""The directory below a checkpoint that is not part of it."""
FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    repository: str
    revision: str
    files: Mapping[str, Entry]
    """By path below the checkpoint, with slashes."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())

    @property
    def digest(self) -> str:
        """SHA-256 of the content that is described: equal on hosts whose copies are, wherever these come from."""
        rows = sorted((name, entry.size, entry.sha256) for name, entry in self.files.items())
        return hashlib.sha256(json.dumps([self.revision, rows], separators=(",", ":")).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "repository": self.repository,
            "revision": self.revision,
            "digest": self.digest,
            "files": {name: {"size": each.size, "sha256": each.sha256} for name, each in sorted(self.files.items())},
        }


def path_of(checkpoint: Path) -> Path:
    return checkpoint / OWN / "manifest.json"


def load(checkpoint: Path) -> Manifest:
    """The manifest of a copy. Raises Trouble if there is none, or it is faulty."""
    path = path_of(checkpoint)
    try:
        return parse(read_json(path), str(path))
    except FileNotFoundError:
        raise Trouble(
            f"{checkpoint}: has no manifest ({path})",
            "`sparkd-engine model fetch` makes one; for a copy that came another way, `sparkd-engine model verify "
            "--manifest FILE` brings one in, and `--record` makes one of what is there",
        ) from None


def save(checkpoint: Path, manifest: Manifest) -> None:
    """Raises OSError."""
    path = path_of(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, manifest.as_json())


def parse(found: Mapping[str, Any], where: str) -> Manifest:
    """What `as_json` made. Raises Trouble, naming `where` and what is wrong."""
    if found.get("format") != FORMAT:
        raise Trouble(f"{where}: format is {found.get('format')!r}, expected {FORMAT}")
    files = found.get("files")
    if not isinstance(files, dict) or not files:
        raise Trouble(f"{where}: files is {type(files).__name__}, expected a table with at least one file")
    entries: dict[str, Entry] = {}
    for name, value in files.items():
        refuse_bad_name(name, where)
        size, sha256 = (value.get("size"), value.get("sha256")) if isinstance(value, dict) else (None, None)
        if type(size) is not int or size < 0:
            raise Trouble(f"{where}: size of {name} is {size!r}, expected a number of bytes")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise Trouble(f"{where}: sha256 of {name} is {sha256!r}, expected 64 hexadecimal digits")
        entries[name] = Entry(size, sha256)
    manifest = Manifest(str(found.get("repository", "")), str(found.get("revision", "")), entries)
    if "digest" in found and found["digest"] != manifest.digest:
        raise Trouble(f"{where}: digest is {found['digest']!r}, and the files mean {manifest.digest}; it was edited")
    return manifest


def refuse_bad_name(name: str, where: str) -> None:
    """A manifest comes from elsewhere: a name must not lead out of the checkpoint. Raises Trouble."""
    path = PurePosixPath(name)
    bad = (
        not name
        or name != str(path)
        or path.is_absolute()
        or {"..", OWN} & set(path.parts)
        or any(not character.isprintable() or character == "\\" for character in name)
    )
    if bad:
        raise Trouble(f"{where}: {name!r} is no name for a file of a checkpoint")
