"""Which files were found to be as the manifest says, so that they are not read again until they change.

A receipt holds size, time of modification and inode: any program that writes to a file, or replaces it, changes one of
these. What changes the disk below the file system does not; `verify --all` reads everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint.manifest import OWN, Manifest
from runtime.durable import read_json, write_json
from runtime.trouble import Trouble


@dataclass(frozen=True)
class Receipt:
    size: int
    mtime_ns: int
    inode: int
    sha256: str


def of_file(path: Path, sha256: str) -> Receipt:
    """Raises OSError."""
    return from_stat(path.stat(), sha256)


def from_stat(status: os.stat_result, sha256: str) -> Receipt:
    return Receipt(status.st_size, status.st_mtime_ns, status.st_ino, sha256)


def load(checkpoint: Path) -> dict[str, Receipt]:
    """All that can be read: a receipt that is lost costs a reading of its file, nothing else."""
    try:
        found = read_json(checkpoint / OWN / "receipts.json")
        return {name: Receipt(**value) for name, value in found.items()}
    except (FileNotFoundError, Trouble, TypeError):
        return {}


def save(checkpoint: Path, receipts: Mapping[str, Receipt]) -> None:
    """Raises OSError."""
    (checkpoint / OWN).mkdir(parents=True, exist_ok=True)
    write_json(checkpoint / OWN / "receipts.json", {name: vars(each) for name, each in receipts.items()})


def valid(checkpoint: Path, manifest: Manifest, receipts: Mapping[str, Receipt]) -> set[str]:
    """Names of the files that are as when they were found to be what this manifest says."""
    names = set()
    for name, entry in manifest.files.items():
        receipt = receipts.get(name)
        try:
            if receipt and receipt.size == entry.size and receipt == of_file(checkpoint / name, entry.sha256):
                names.add(name)
        except OSError:
            continue
    return names
