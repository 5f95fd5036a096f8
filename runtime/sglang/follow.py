"""What the engine says: into the rank's log, and into what is known of its stage, its errors and its connections."""

import logging
import os
import re
from collections.abc import Callable

from runtime.notify import Stage
from runtime.sglang.deadlines import Deadlines
from runtime.sglang.errors import FirstError
from runtime.sglang.lines import Line, Lines
from runtime.sglang.stages import Stages, Step, is_bar
from runtime.sglang.transport import Connections

BAR_SECONDS = 5.0
READ_MAX = 1 << 20
_ERROR = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b|^[\w .-]+: error: |^Fatal Python error: ")
# What the launcher's own questions leave in the log, every few seconds for as long as the engine is idle.
_OWN = re.compile(
    r'"(?:GET /metrics|GET /health_generate|POST /generate) HTTP/1\.1" 200'
    r"|Prefill batch(?: \[\d+\])?, #new-seq: 1, .*#running-req: 0, #queue-req: 0"
)
_WARNING = re.compile(r"\bWarning: |\bWARN(?:ING)?\b", re.IGNORECASE)


def level(line: str) -> int:
    """SGLang's records name no level: what looks like an error is one in the journal."""
    if _ERROR.search(line):
        return logging.ERROR
    return logging.WARNING if _WARNING.search(line) else logging.INFO


class Follower:
    """Reads the engine's output. ``now`` is seconds of a monotonic clock.

    ``say`` is given each line as it is, with its level, and ``entered`` every new step.
    Until ``quiet_until`` the records of a single small request are not passed on.
    """

    def __init__(
        self,
        connections: Connections,
        deadlines: Deadlines,
        say: Callable[[int, str], None],
        entered: Callable[[Step, float], None],
    ) -> None:
        self.stages = Stages()
        self.errors = FirstError()
        self.connections = connections
        self._deadlines = deadlines
        self._pass_on = say
        self._entered = entered
        self._lines = Lines(is_bar)
        self._bar_at = -BAR_SECONDS
        self.quiet_until = 0.0

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
        if now < self.quiet_until and _OWN.search(line.text):
            return
        # A bar is drawn many times a second for somebody who watches a terminal.
        if line.bar:
            if now - self._bar_at < BAR_SECONDS:
                return
            self._bar_at = now
        self._pass_on(level(line.text), line.text)
