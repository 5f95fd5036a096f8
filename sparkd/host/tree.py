"""Reading single files of /proc, /sys, /etc and /run, where a missing file is an answer and a refusal is none."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

# A driver answers so when a slot is empty, a link is down or a value does not apply; it is no fault of the read.
_NO_VALUE = frozenset({errno.EINVAL, errno.ENODEV, errno.ENODATA, errno.EOPNOTSUPP, errno.ENXIO})


def text(path: Path) -> str | None:
    """The file's text, None when there is no such file. Raises any other OSError."""
    try:
        return path.read_text("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def attribute(path: Path) -> str:
    """One line of sysfs, "" when there is none or the driver has no value for it."""
    try:
        return (text(path) or "").strip()
    except OSError as error:
        if error.errno in _NO_VALUE:
            return ""
        raise


def names(directory: Path) -> list[str]:
    """Sorted names in a directory; [] when there is no such directory."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def target(link: Path) -> str:
    """The last name of what a symbolic link points to, "" when there is no link."""
    try:
        return os.path.basename(os.readlink(link))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        if error.errno == errno.EINVAL:  # there is something else of this name
            return ""
        raise


def modified(path: Path) -> str:
    """When the file was last written, e.g. "2026-07-01 12:03 UTC"; "" when that cannot be told."""
    try:
        at = path.stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def shown(path: Path, root: Path) -> str:
    """The path as it is on the host, whatever root stands for it in a test."""
    return "/" + str(path.relative_to(root))


def assignments(text_: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of each line of an INI file as systemd and NetworkManager write them, in order."""
    section, found = "", []
    for raw in text_.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and "=" in line:
            key, _, value = line.partition("=")
            found.append((section, key.strip(), value.strip()))
    return found


def layered(root: Path, directories: tuple[str, ...], suffix: str) -> list[Path]:
    """Files by name over several directories, of which an earlier one hides a later one's file of the same name.

    Raises PermissionError for a directory that may not be listed.
    """
    chosen: dict[str, Path] = {}
    for directory in directories:
        for name in names(root / directory):
            if name.endswith(suffix):
                chosen.setdefault(name, root / directory / name)
    return [chosen[name] for name in sorted(chosen)]
