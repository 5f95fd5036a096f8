"""The rank's log: one format on standard error, with the journal's priority when it goes to the journal."""

import logging
import os
from collections.abc import Mapping
from typing import TextIO

log = logging.getLogger("rank")

# sd-daemon(3): <3> error, <4> warning, <6> info, <7> debug.
PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class _Format(logging.Formatter):
    def __init__(self, prefix: str, journal: bool) -> None:
        super().__init__()
        self._prefix = prefix
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        if self._journal:
            level = f"<{PRIORITIES.get(record.levelno, 6)}>"
        else:
            level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        # The journal reads a priority from every line of its own.
        return "\n".join(f"{level}{self._prefix}{line}" for line in text.splitlines() or [""])


def goes_to_journal(environ: Mapping[str, str], descriptor: int = 2) -> bool:
    """True if ``descriptor`` is the stream that ``$JOURNAL_STREAM`` (DEVICE:INODE, systemd.exec(5)) names."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def configure(name: str, journal: bool) -> None:
    """Send everything to standard error; each line starts with ``name``, e.g. ``rank 0 (spark1)``."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Format(f"{name}: " if name else "", journal))
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.INFO)


def divert(stream: TextIO) -> TextIO | None:
    """Have the log written to ``stream`` instead; what it was written to before."""
    before: TextIO | None = None
    for handler in log.handlers:
        if isinstance(handler, logging.StreamHandler):
            before = handler.setStream(stream)
    return before
