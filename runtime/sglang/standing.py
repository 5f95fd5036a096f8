"""Processes of the engine that stand still: stopped, dead but not reaped, or stuck in the kernel. Pure.

SGLang's own watchdog is a thread of the process that it watches, so it stands still with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.sglang.processes import Process, is_worker

_WORDS = {
    "T": "is stopped (by a signal such as SIGSTOP)",
    "Z": "is dead and its parent does not notice",
    "D": "hangs in the kernel",
}


@dataclass(frozen=True)
class Standing:
    """``since``: when it was first seen so, in seconds of a monotonic clock."""

    process: Process
    since: float

    def sentence(self, now: float) -> str:
        process = self.process
        return f"{process.title} (pid {process.pid}) {_WORDS[process.state]} for {now - self.since:.0f} s"


class StandingStill:
    """Watches samples of the processes. A process in state D that has used CPU since the last sample has moved.

    A helper that has ended and waits for its parent is no fault: dead counts only for the processes that SGLang names.
    """

    def __init__(self) -> None:
        self._since: dict[int, Standing] = {}

    def sample(self, processes: Iterable[Process], serving: bool, now: float) -> None:
        """``serving``: the engine is ready, so none of them has a reason to wait for a disk."""
        before, self._since = self._since, {}
        for process in processes:
            if not self._counts(process, serving):
                continue
            known = before.get(process.pid)
            same = (
                known is not None
                and known.process.state == process.state
                and known.process.started == process.started
                and known.process.cpu_seconds == process.cpu_seconds
            )
            self._since[process.pid] = Standing(process, known.since if known is not None and same else now)

    @staticmethod
    def _counts(process: Process, serving: bool) -> bool:
        if process.state == "T":
            return True
        return serving and process.state in ("D", "Z") and is_worker(process)

    def longest(self, now: float, seconds: float) -> Standing | None:
        """The one that has stood still longest, if for ``seconds``."""
        found = min(self._since.values(), key=lambda standing: standing.since, default=None)
        return found if found is not None and now - found.since >= seconds else None
