"""Which version of the engine and which checkpoint sparkd-engine has put on this host, without reading either.

Both are told by a name that follows from their content: the directory of the version, which has a digest of its lock in
it, and the digest in the checkpoint's manifest.
"""

from __future__ import annotations

import json
from pathlib import Path

ABSENT = "absent"
_LIMIT = 16 << 20
_DIGITS = 16


def version_of(python: str) -> str:
    """The name of the version that an interpreter is of, or "absent" if it was installed another way."""
    try:
        # ROOT/bin leads through ROOT/current to the version, whose own interpreter is a link out of it again.
        tree = Path(python).parent.resolve().parent
        return tree.name if (tree / ".sparkd-engine.json").is_file() else ABSENT
    except OSError:
        return ABSENT


def manifest_of(checkpoint: str) -> str:
    """The digest of a checkpoint's manifest, "absent" if there is none, or why it cannot be read."""
    path = Path(checkpoint) / ".sparkd/manifest.json"
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_LIMIT))
        return str(found["digest"])[:_DIGITS]
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return f"unreadable ({error.strerror})"
    except (ValueError, KeyError, TypeError):
        return "unreadable (no manifest)"
