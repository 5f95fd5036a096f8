"""A file replaced as a whole: whoever opens it sees the old content or the new one, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes, mode: int) -> None:
    """Write `content` to `path` and return once it is on the disk. Raises OSError; the old file then still stands."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # the umask must not decide who can read it
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    # The name is on the disk only once the directory is.
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
