"""The journal of this host, as far as it is the daemon's and its ranks'.

Read with journalctl, which the unit's group systemd-journal allows: in a process of its own, because the library would
map the whole journal into a daemon that hardly ever needs it, and because a pattern can take for ever. Every reading is
bounded in time and in size, and there is one at a time.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from functools import partial
from typing import Any

from sparkd import wire
from sparkd.core.journal import Line, NodeJournal, Query
from sparkd.host.worker import Worker
from sparkd.ports import DoorError

_SECONDS = 3.0
_BYTES = 700_000  # of the answer; a peer takes no more than 1 MiB
_TEXT = 4096  # characters of one line
# Bytes of an entry as journalctl tells it. A process may send the journal messages of hundreds of megabytes, through
# its socket, and each byte of what is no text comes as a number of its own.
_ENTRY = 1 << 20
_UNITS = ("sparkd.service", "sparkd-rank@*.service", "sparkd-measure@*.service")
_INFO = 6


class SystemJournal:
    """`journalctl`: the command."""

    def __init__(
        self, node: str, rank: int, journalctl: str = "/usr/bin/journalctl", seconds: float = _SECONDS
    ) -> None:
        self._node = node
        self._rank = rank
        self._journalctl = journalctl
        self._seconds = seconds
        self._worker = Worker("the journal", seconds + 1)

    async def read(self, query: Query) -> bytes:
        """A NodeJournal as JSON. Raises DoorError."""
        return await self._worker.call(partial(self._read, query))

    def close(self) -> None:
        self._worker.close()

    def _read(self, query: Query) -> bytes:
        lines: deque[tuple[int, Line]] = deque(maxlen=query.lines)
        size, cut, cursor, newest = 0, False, query.cursor, 0.0
        end = time.monotonic() + self._seconds
        command = [*self._command(query)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            # A read waits for as long as there is somebody who could write.
            timer = threading.Timer(self._seconds, child.kill)
            timer.daemon = True
            timer.start()
            try:
                whole = True
                while raw := child.stdout.readline(_ENTRY):
                    begins, whole = whole, raw.endswith(b"\n")
                    entry = _entry(raw) if begins and whole else None
                    if entry is None:
                        cut = cut or not whole
                        continue
                    line, its_cursor = entry
                    # With a pattern and a number of lines, journalctl tells the newest first.
                    if line.at >= newest:
                        newest, cursor = line.at, its_cursor
                    length = len(json.dumps(line.text, ensure_ascii=False).encode()) + 100
                    if len(lines) == lines.maxlen:
                        size -= lines[0][0]
                    lines.append((length, line))
                    size += length
                    while size > _BYTES:
                        size -= lines.popleft()[0]
                        cut = True
                said = child.stderr.read(500).decode(errors="replace").strip()
                code = child.wait()
            finally:
                timer.cancel()
                child.kill()
        if time.monotonic() >= end:
            raise DoorError(f"journalctl has not ended within {self._seconds:g} s; ask for less: --since, --lines")
        # With a pattern, 1 says that no line has it.
        if code != 0 and (said or not query.grep):
            raise DoorError(
                f"journalctl: {said.splitlines()[0]}" if said else f"journalctl has left with status {code}"
            )
        kept = tuple(line for _, line in (reversed(lines) if query.grep else lines))
        cut = cut or len(kept) == query.lines
        return wire.dumps(NodeJournal(self._node, self._rank, time.time(), kept, cursor, cut))

    def _command(self, query: Query) -> list[str]:
        command = [self._journalctl, "--quiet", "--no-pager", "--all", "--output=json"]
        command += ["--output-fields=MESSAGE,_SYSTEMD_UNIT,UNIT,PRIORITY", f"--lines={query.lines}"]
        # journalctl takes one of the two: what follows the cursor has come later.
        if query.since is not None and not query.cursor:
            command.append(f"--since=@{query.since:.6f}")
        if query.grep:
            command.append(f"--grep={query.grep}")
        if query.cursor:
            command.append(f"--after-cursor={query.cursor}")
        if query.epoch is None:
            return [*command, *(f"--unit={unit}" for unit in _UNITS)]
        # By the rank and what measured before it, about them by systemd, and by the daemon while it was in force.
        # Every user may write into the journal, with any field but those that begin with _.
        of = [f"sparkd-{kind}@{query.epoch}.service" for kind in ("rank", "measure")]
        groups = [[f"_SYSTEMD_UNIT={unit}"] for unit in of] + [["_PID=1", f"UNIT={unit}"] for unit in of]
        groups.append(["_SYSTEMD_UNIT=sparkd.service", f"SPARKD_EPOCH={query.epoch}"])
        first, *others = groups
        return [*command, *first, *(word for group in others for word in ("+", *group))]


def _entry(raw: bytes) -> tuple[Line, str] | None:
    """The line and its cursor; None for what is no entry of a journal."""
    try:
        entry: dict[str, Any] = json.loads(raw)
        at, cursor = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, str(entry["__CURSOR"])
    except (ValueError, KeyError, TypeError):
        return None
    unit = str(entry.get("_SYSTEMD_UNIT", ""))
    if unit in ("", "init.scope"):  # systemd about the unit
        unit = str(entry.get("UNIT", unit))
    level = str(entry.get("PRIORITY", _INFO))
    text = _text(entry.get("MESSAGE"))
    return Line(at, unit.removesuffix(".service"), int(level) if level.isdecimal() else _INFO, text), cursor


def _text(message: Any) -> str:
    """The journal gives what is no UTF-8 as a list of bytes."""
    if isinstance(message, list):
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(errors="replace")
    text = "" if message is None else str(message)
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} [{len(text) - _TEXT} characters left out]"
