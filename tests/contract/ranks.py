"""What the ranks of a real systemd do when a test tells them to."""

from __future__ import annotations

from typing import Protocol

from tests.contract.manager import Manager


class Ranks(Protocol):
    """What ranks do."""

    def status(self, epoch: int, text: str) -> None: ...
    def ready(self, epoch: int) -> None: ...
    def ignore_sigterm(self, epoch: int) -> None: ...
    def die(self, epoch: int, *, status: int = 0, signal: int = 0) -> None: ...


class RealRanks:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def status(self, epoch: int, text: str) -> None:
        self._manager.order(epoch, f"notify STATUS={text}")

    def ready(self, epoch: int) -> None:
        self._manager.order(epoch, "notify READY=1")

    def ignore_sigterm(self, epoch: int) -> None:
        self._manager.order(epoch, "stubborn")

    def die(self, epoch: int, *, status: int = 0, signal: int = 0) -> None:
        self._manager.order(epoch, f"signal {signal}" if signal else f"exit {status}")
