"""Files that are there whole or not at all, and room for them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.trouble import Trouble, naming

MARGIN = 1 << 30
"""Bytes that a file system keeps beside what is written: one that is full to the last block fails others too."""


def sync_directory(directory: Path) -> None:
    """Put on disk which names a directory has: a rename is lost with the power as long as that has not happened."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace a file's content at once, on disk when this returns. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def write_json(path: Path, value: object) -> None:
    """As `write_whole`. Raises OSError."""
    write_whole(path, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file. Raises Trouble if it holds none, FileNotFoundError if there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Trouble(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Trouble(f"{path}: holds no JSON object")
    return found


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Only one process at a time works on a directory. Raises Trouble if another one does, naming it."""
    path = directory / "lock"
    with naming(path):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise Trouble(f"{directory}: process {holder} is at work here", "wait for it, or end it") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def require_room(directory: Path, needed: int, what: str, margin: int = MARGIN) -> None:
    """Refuse to begin what would fill the disk. Raises Trouble with the numbers."""
    place = directory
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and free < needed + margin:
        raise Trouble(
            f"{directory}: {what} needs {gib(needed)} and {gib(margin)} to spare, and {gib(free)} are free",
            f"make {gib(needed + margin - free)} free there, or choose a place on a larger disk",
        )


def gib(size: int) -> str:
    """A size for people."""
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f} GiB"
    return f"{size / (1 << 20):.1f} MiB"
