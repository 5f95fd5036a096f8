"""What each RDMA device has sent, counted over windows in which the ring serves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sparkd.core.hardware import RailFact
from sparkd.host import tree
from sparkd.host.worker import Worker

_WORD = 4  # port_xmit_data counts in units of four octets (InfiniBand, PortXmitData)


class RailCounters:
    """`window`: seconds that a count is over at least; one that is shorter says nothing of a rail that is used seldom.

    Soft-RoCE and hosts without RDMA have no such counter: no rails, which is an answer. `clock` is monotonic.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        deadline: float = 2.0,
        window: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = root / "sys/class/infiniband"
        self._worker = Worker("RDMA counters", deadline)
        self._window = window
        self._clock = clock
        self._serving = 0
        self._since = 0.0
        self._before: dict[str, int] = {}
        self._told: tuple[RailFact, ...] = ()

    async def observe(self, serving: int) -> tuple[RailFact, ...]:
        """The rails over the last whole window in which epoch `serving` served; 0 when none does: ()."""
        if not serving and not self._serving:
            return ()  # without a thread, of which each costs memory
        return await self._worker.call(lambda: self._read(serving))

    def close(self) -> None:
        self._worker.close()

    def _read(self, serving: int) -> tuple[RailFact, ...]:
        now = self._clock()
        if not serving or serving != self._serving:
            self._serving, self._told = serving, ()
            self._begin(now)
        elif now - self._since >= self._window:
            sent, before, seconds = self._sent(), self._before, now - self._since
            # A counter that has gone back was reset with its device.
            self._told = tuple(
                RailFact(hca, count - before[hca], seconds)
                for hca, count in sent.items()
                if hca in before and count >= before[hca]
            )
            self._since, self._before = now, sent
        return self._told

    def _begin(self, now: float) -> None:
        self._since, self._before = now, self._sent() if self._serving else {}

    def _sent(self) -> dict[str, int]:
        counts = {}
        for hca in tree.names(self._directory):
            text = tree.attribute(self._directory / hca / "ports/1/counters/port_xmit_data")
            if text.isdecimal():
                counts[hca] = int(text) * _WORD
        return counts
