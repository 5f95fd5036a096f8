"""The state directory without a disk."""

from __future__ import annotations

from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, FabricMemory, Intent
from sparkd.ports import DoorError


class FakeDisk:
    """What has reached the disk; it outlives the daemon, unless it is lost. `full` makes every save fail."""

    def __init__(self) -> None:
        self.intent: Intent | None = None
        self.attempt: Attempt | None = None
        self.memory: FabricMemory | None = None
        self.boots: BootMemory | None = None
        self.full = False

    def lose(self) -> None:
        """A new disk is put in."""
        self.intent = None
        self.attempt = None
        self.memory = None
        self.boots = None


class FakeStore:
    """One daemon's view of a FakeDisk: a daemon that restarts gets a new FakeStore on the old disk."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()

    def load_intent(self) -> Intent:
        return self.disk.intent or Intent()

    def load_attempt(self) -> Attempt | None:
        return self.disk.attempt

    def load_memory(self) -> FabricMemory:
        return self.disk.memory or FabricMemory()

    def load_boots(self) -> BootMemory:
        return self.disk.boots or BootMemory()

    async def save_boots(self, boots: BootMemory) -> None:
        self._check_space("boots")
        self.disk.boots = boots

    async def save_memory(self, memory: FabricMemory) -> None:
        self._check_space("fabric")
        self.disk.memory = memory

    async def save_intent(self, intent: Intent) -> None:
        self._check_space("intent")
        self.disk.intent = intent

    async def save_attempt(self, attempt: Attempt) -> None:
        self._check_space("attempt")
        self.disk.attempt = attempt

    def _check_space(self, name: str) -> None:
        if self.disk.full:
            raise DoorError(f"/var/lib/sparkd/{name}.json cannot be saved: No space left on device")
