"""How a copy stands, without reading its files; and what may be removed of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint import receipts
from runtime.checkpoint.manifest import OWN, Manifest
from runtime.checkpoint.partial import place, progress_of


@dataclass(frozen=True)
class Standing:
    """Files of a manifest by what is known of them."""

    verified: tuple[str, ...]
    unverified: tuple[str, ...]
    """There, with the right size, and not read since they changed."""
    wrong: tuple[str, ...]
    """There, with another size."""
    missing: tuple[str, ...]
    fetched: int
    """Bytes that have come of missing files."""

    @property
    def whole(self) -> bool:
        return not (self.unverified or self.wrong or self.missing)


def standing(checkpoint: Path, manifest: Manifest) -> Standing:
    """Reads receipts and sizes."""
    valid = receipts.valid(checkpoint, manifest, receipts.load(checkpoint))
    unverified: list[str] = []
    wrong: list[str] = []
    missing: list[str] = []
    for name, entry in sorted(manifest.files.items()):
        if name in valid:
            continue
        try:
            size = (checkpoint / name).stat().st_size
        except OSError:
            missing.append(name)
        else:
            (unverified if size == entry.size else wrong).append(name)
    fetched = sum(progress_of(checkpoint, name) for name in missing)
    return Standing(tuple(sorted(valid)), tuple(unverified), tuple(wrong), tuple(missing), fetched)


@dataclass(frozen=True)
class Removable:
    path: Path
    size: int
    why: str


def removable(
    checkpoint: Path, manifest: Manifest, *, others: bool = False, world: int | None = None, packed: str = "engram"
) -> list[Removable]:
    """What is of no use: halves of files that are whole or that nobody wants; with `others` also files beside them.

    With `world` also rows, in the directory `packed`, that are for another number of ranks, and those that were never
    finished. Never what the manifest has.
    """
    wanted = {place(checkpoint, name) for name in manifest.files if not (checkpoint / name).exists()}
    keep = wanted | {path.with_suffix(".json") for path in wanted}
    found = [
        Removable(path, _size(path), "a download that nothing goes on with")
        for path in sorted((checkpoint / OWN / "partial").glob("*"))
        if path not in keep
    ]
    for path in sorted(checkpoint.rglob("*")) if others else ():
        inside = path.relative_to(checkpoint)
        if path.is_file() and inside.parts[0] not in (OWN, packed) and inside.as_posix() not in manifest.files:
            found.append(Removable(path, _size(path), "not in the manifest"))
    for path in sorted((checkpoint / packed).glob("*engram-layer*")) if world is not None else ():
        if not path.name.endswith(f"-of-{world}.rows"):
            why = "rows that were not finished" if path.name.startswith(".") else f"rows for other than {world} ranks"
            found.append(Removable(path, _size(path), why))
    return found


def remove(found: list[Removable]) -> int:
    """Returns how many bytes that gave back. Raises OSError."""
    for each in found:
        if each.path.is_dir():
            shutil.rmtree(each.path)
        else:
            each.path.unlink(missing_ok=True)
    return sum(each.size for each in found)


def _size(path: Path) -> int:
    return path.stat().st_blocks * 512
