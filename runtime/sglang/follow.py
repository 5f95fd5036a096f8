"""What the engine says: into the rank's log, and into what is known of its stage, its errors and its connections."""

import logging
import os
import re
from collections.abc import Callable

from runtime.log import log
from runtime.notify import Stage
from runtime.sglang.deadlines import Deadlines
from runtime.sglang.errors import FirstError
from runtime.sglang.lines import Line, Lines
from runtime.sglang.stages import Stages, Step, is_bar
from runtime.sglang.transport import Connections

BAR_SECONDS = 5.0
READ_MAX = 1 << 20
_ERROR = re.compile(
    r"^(?:\[[^\]]*\] )?(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b|\berror: |^Traceback \(|hit an exception"
)
_WARNING = re.compile(r"\bWarning: |\bWARN(?:ING)?\b", re.IGNORECASE)


def level(line: str) -> int:
    """SGLang's records name no level: what looks like an error is one in the journal."""
    if _ERROR.search(line):
        return logging.ERROR
    return logging.WARNING if _WARNING.search(line) else logging.INFO


class Follower:
    """Reads the engine's output. ``entered`` is told of every new step, ``now`` in seconds of a monotonic clock."""

    def __init__(self, connections: Connections, deadlines: Deadlines, entered: Callable[[Step, float], None]) -> None:
        self.stages = Stages()
        self.errors = FirstError()
        self.connections = connections
        self._deadlines = deadlines
        self._entered = entered
        self._lines = Lines(is_bar)
        self._bar_at = -BAR_SECONDS

    def read(self, output: int, now: float) -> bool:
        """Take what there is; False when nothing will come any more."""
        taken = 0
        while taken < READ_MAX:
            try:
                data = os.read(output, 65536)
            except BlockingIOError:
                return True
            if not data:
                self._take(list(self._lines.finish()), now)
                return False
            taken += len(data)
            self._take(list(self._lines.feed(data)), now)
        return True

    def finish(self, now: float) -> None:
        """The output is closed or nobody is left to write to it."""
        self._take(list(self._lines.finish()), now)

    def _take(self, lines: list[Line], now: float) -> None:
        for line in lines:
            self._deadlines.said(now)
            self._say(line, now)
            before = self.stages.now.stage
            self.connections.feed(line.text)
            if not line.bar:
                self.errors.feed(line.text, starting=not self.stages.landmarks and before is Stage.INIT)
            if (step := self.stages.feed(line.text)) is not None:
                if step.stage is not before:
                    self.errors.got_on()
                self._entered(step, now)

    def _say(self, line: Line, now: float) -> None:
        # A bar is drawn many times a second for somebody who watches a terminal.
        if line.bar:
            if now - self._bar_at < BAR_SECONDS:
                return
            self._bar_at = now
        log.log(level(line.text), "| %s", line.text)
