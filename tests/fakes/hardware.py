"""The files of a host on which nothing is to be seen but who else is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkd.core.hardware import HardwareFacts, Listener, SupervisorFacts


class FakeHardware:
    """`asked`: what each full look was asked for, as (rank_pid, addresses, serving); `glances` are those at the ports
    alone."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self.asked: list[tuple[int, dict[str, str], int]] = []
        self.glances = 0

    def listen(self, port: int, user: str = "spark") -> None:
        assert port not in self._listeners, "Address already in use"
        self._listeners[port] = Listener(port, "127.0.0.1", 1000, user)

    def leave(self, port: int) -> None:
        del self._listeners[port]

    async def observe(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, serving: int = 0
    ) -> HardwareFacts:
        self.asked.append((rank_pid, dict(addresses or {}), serving))
        return HardwareFacts(supervisors=self._supervisors())

    async def supervisors(self, known: HardwareFacts) -> HardwareFacts:
        self.glances += 1
        return replace(known, supervisors=self._supervisors())

    def _supervisors(self) -> SupervisorFacts:
        return SupervisorFacts(tuple(self._listeners[port] for port in sorted(self._listeners)))
