"""What follows from a line of the kernel's log: see sparkd.core.kernellog."""

from __future__ import annotations

from collections.abc import Callable

from sparkd.core import kernellog


class KernelWatch:
    """Fills `broken`: the functions that cannot be trusted any more, by PCI address, with the first that was said of
    each; `news()` after each. `memory()`: the GPU's driver wants memory.

    What was said before this daemon came ends nothing: a ring may serve in spite of it, and an upgrade leaves it alone.
    """

    def __init__(self, broken: dict[str, str], memory: Callable[[], None], news: Callable[[], None]) -> None:
        self._broken = broken
        self._memory = memory
        self._news = news

    def hear(self, text: str, new: bool) -> None:
        """`new`: said now, not before sparkd was started."""
        if not new:
            return
        if kernellog.wants_memory(text):
            self._memory()
        found = kernellog.broken_function(text)
        if found is not None and found[0] not in self._broken:
            self._broken[found[0]] = found[1]
            self._news()
