"""Sources of others that are no wheels: what runtime/sources.manifest names, to the byte, and nothing else."""

from __future__ import annotations

import hashlib
import re
import tomllib
import urllib.parse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from runtime.checkpoint.remote import Remote, plain
from runtime.checkpoint.sources import read_small
from runtime.durable import write_whole
from runtime.trouble import Trouble

MANIFEST = Path(__file__).parents[1] / "sources.manifest"
LIMIT = 512 << 20
"""Bytes of an archive that is taken into memory."""


@dataclass(frozen=True)
class ThirdParty:
    name: str
    origin: str
    commit: str
    size: int
    sha256: str
    licence: str
    why: str

    @property
    def file(self) -> str:
        """As it is called here: its commit is part of the name."""
        return f"{self.name}-{self.commit[:12]}.tar.gz"


def read(path: Path = MANIFEST) -> tuple[ThirdParty, ...]:
    """Raises Trouble, naming what is wrong."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))["source"]
        sources = tuple(_source(each, path) for each in found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    if len({each.name for each in sources}) < len(sources):
        raise Trouble(f"{path}: a name is there twice")
    return sources


def bring(source: ThirdParty, into: Path, *, remote: Remote | None = None) -> Path:
    """The archive, whole and verified, in a directory; nothing is fetched if it is there. Raises Trouble, OSError."""
    target = into / source.file
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == source.sha256:
        return target
    parts = urllib.parse.urlsplit(source.origin)
    data = read_small(remote or Remote(f"{parts.scheme}://{parts.netloc}"), parts.path, min(source.size, LIMIT))
    found = hashlib.sha256(data).hexdigest()
    if (len(data), found) != (source.size, source.sha256):
        raise Trouble(
            f"{plain(source.origin)}: has {len(data)} bytes with SHA-256 {found}, expected {source.size} with "
            f"{source.sha256}",
            "the origin has another file than when the manifest was made; it is not kept",
        )
    into.mkdir(parents=True, exist_ok=True)
    write_whole(target, data)
    return target


def _source(found: dict[str, Any], path: Path) -> ThirdParty:
    wanted = {field.name: int if field.name == "size" else str for field in fields(ThirdParty)}
    name = found.get("name", "a source without a name")
    for key, kind in wanted.items():
        if type(found.get(key)) is not kind or not found[key]:
            raise Trouble(f"{path}: {name}: {key} is {found.get(key)!r}")
    if unknown := found.keys() - wanted.keys():
        raise Trouble(f"{path}: {name}: nobody knows {', '.join(sorted(unknown))}")
    source = ThirdParty(**found)
    sound = (
        re.fullmatch(r"[a-z0-9][a-z0-9.-]*", source.name)
        and re.fullmatch("[0-9a-f]{40}", source.commit)
        and re.fullmatch("[0-9a-f]{64}", source.sha256)
        and source.commit in source.origin
        and source.origin.startswith("https://")
    )
    if not sound:
        raise Trouble(
            f"{path}: {name}: expected an https origin that names the commit, 40 digits of it, and 64 of the SHA-256"
        )
    return source
