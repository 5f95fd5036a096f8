"""Which machine this is: an id made once and kept in DIRECTORY/node-id."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from sparkd.host.files import replace
from sparkd.host.worker import describe
from sparkd.ports import DoorError

FILE = "node-id"
_ID = re.compile(r"[0-9a-f]{32}")


def node_id(directory: Path) -> str:
    """The machine's id, 32 hex digits; made and written to the disk if there is none, or none that can be used.

    It is not derived from the hostname or the machine id: both are often the same on machines installed from one
    image, and the hostname changes with a DHCP lease. Raises DoorError if the file cannot be read or written.
    """
    path = directory / FILE
    try:
        kept = path.read_text("ascii").strip()
    except FileNotFoundError:
        kept = ""
    except ValueError:
        kept = ""  # not ASCII
    except OSError as error:
        raise DoorError(f"{path} cannot be read: {describe(OSError(error.errno, error.strerror))}") from error
    if _ID.fullmatch(kept):
        return kept
    made = secrets.token_hex(16)
    try:
        replace(path, f"{made}\n".encode(), 0o640)
    except OSError as error:
        raise DoorError(f"{path} cannot be saved: {describe(OSError(error.errno, error.strerror))}") from error
    return made
