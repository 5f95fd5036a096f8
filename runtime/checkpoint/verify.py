"""Whether a copy is what its manifest says, and which file is not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint import receipts
from runtime.checkpoint.manifest import OWN, Entry, Manifest
from runtime.hashing import sha256_of_all
from runtime.progress import Progress
from runtime.trouble import Trouble

SAVE_EVERY = 20.0
"""Seconds between two savings of the receipts: an interrupted verification goes on where it was."""


@dataclass(frozen=True)
class Fault:
    """A file that is not as it has to be."""

    name: str
    observed: str
    expected: str

    def __str__(self) -> str:
        return f"{self.name}: {self.observed}; expected {self.expected}"


@dataclass(frozen=True)
class Verified:
    faults: tuple[Fault, ...]
    read: int
    """Bytes that were read; the others had a receipt."""
    known: int
    """Files that had a receipt."""


def verify(
    checkpoint: Path, manifest: Manifest, *, everything: bool = False, partly: bool = False, quiet: bool = True
) -> Verified:
    """Read what has no valid receipt, or `everything`, and write receipts for what is sound. Raises OSError.

    `partly` says that the manifest has some of the files alone, so that receipts of others stay.
    """
    kept = receipts.load(checkpoint)
    known = set() if everything else receipts.valid(checkpoint, manifest, kept)
    held = {name: receipt for name, receipt in kept.items() if name in known or (partly and name not in manifest.files)}
    faults: list[Fault] = []
    to_read: dict[str, Path] = {}
    for name in sorted(manifest.files.keys() - known):
        fault = _quick(checkpoint / name, name, manifest.files[name])
        if fault:
            faults.append(fault)
        else:
            to_read[name] = checkpoint / name
    total = sum(manifest.files[name].size for name in to_read)
    progress = Progress("verify", total, quiet=quiet)
    saved = time.monotonic()
    for name, found in sha256_of_all(to_read, progress.add):
        entry = manifest.files[name]
        if isinstance(found, OSError):
            faults.append(Fault(name, f"{found.strerror or found}", "a readable file"))
        elif found.sha256 != entry.sha256:
            faults.append(Fault(name, f"SHA-256 {found.sha256}", entry.sha256))
        else:
            held[name] = receipts.from_stat(found.status, entry.sha256)
        if time.monotonic() - saved > SAVE_EVERY:
            receipts.save(checkpoint, held)
            saved = time.monotonic()
    progress.end()
    receipts.save(checkpoint, held)
    return Verified(tuple(sorted(faults, key=lambda fault: fault.name)), total, len(known))


def record(checkpoint: Path, repository: str, revision: str, *, quiet: bool = True) -> Manifest:
    """A manifest of what is there, for a copy that came another way: it says what the files are, not whether right.

    Raises Trouble if there is nothing, or a file cannot be read.
    """
    paths = {
        path.relative_to(checkpoint).as_posix(): path
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.relative_to(checkpoint).parts[0] not in (OWN, "engram", ".cache")
    }
    if not paths:
        raise Trouble(f"{checkpoint}: there is no file", "give the directory of the checkpoint")
    progress = Progress("record", sum(path.stat().st_size for path in paths.values()), quiet=quiet)
    files: dict[str, Entry] = {}
    held: dict[str, receipts.Receipt] = {}
    for name, found in sha256_of_all(paths, progress.add):
        if isinstance(found, OSError):
            raise Trouble(f"{paths[name]}: {found.strerror or found}")
        files[name] = Entry(found.status.st_size, found.sha256)
        held[name] = receipts.from_stat(found.status, found.sha256)
    progress.end()
    receipts.save(checkpoint, held)
    return Manifest(repository, revision, files)


def _quick(path: Path, name: str, entry: Entry) -> Fault | None:
    """What shows without reading it."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return Fault(name, "missing" if isinstance(error, FileNotFoundError) else str(error.strerror), "a file")
    if size != entry.size:
        return Fault(name, f"{size} bytes", f"{entry.size} bytes")
    return None
