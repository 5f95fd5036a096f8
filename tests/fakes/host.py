"""Clock, notifier, /proc, RDMA devices and rank environment files without a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from sparkd.core.model import HostFacts, RoceFact
from sparkd.host.rankfiles import render
from sparkd.ports import DoorError


class FakeClock:
    """Time that passes when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 100.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "only the wall clock can be set back: use step"
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock; the monotonic one does not notice."""
        self._now += seconds


class FakeNotifier:
    """`status` as `systemctl status` would show it, and what else systemd was told."""

    def __init__(self) -> None:
        self.is_ready = False
        self.is_stopping = False
        self.sentences: list[str] = []
        self.fed = 0

    def ready(self) -> None:
        self.is_ready = True

    def status(self, sentence: str) -> None:
        assert "\n" not in sentence, "systemd reads a line break as the end of the assignment"
        self.sentences.append(sentence)

    def alive(self) -> None:
        self.fed += 1

    def stopping(self) -> None:
        self.is_stopping = True


class FakeHost:
    """`broken` is the sentence of the DoorError to raise, if any; `hangs`: it does not even keep its deadline."""

    def __init__(self, boot: int = 1, memory_kib: int = 128 * 1024 * 1024) -> None:
        self._boot = boot
        self.broken = ""
        self.hangs = False
        self.facts = HostFacts(_boot_id(boot), memory_kib, memory_kib - 4 * 1024 * 1024, "6.17.0-1031-nvidia")

    async def observe(self) -> HostFacts:
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise DoorError(self.broken)
        return self.facts

    def use_memory(self, kib: int) -> None:
        assert 0 <= kib <= self.facts.memory_available_kib, "there is not so much"
        self.facts = replace(self.facts, memory_available_kib=self.facts.memory_available_kib - kib)

    def free_memory(self, kib: int) -> None:
        assert kib >= 0
        available = min(self.facts.memory_total_kib, self.facts.memory_available_kib + kib)
        self.facts = replace(self.facts, memory_available_kib=available)

    def reboot(self) -> None:
        self._boot += 1
        self.facts = replace(self.facts, boot_id=_boot_id(self._boot))


def _boot_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


class FakeRoce:
    """No devices, like a host without RDMA, until some are added."""

    def __init__(self, *devices: RoceFact) -> None:
        self.devices = {device.hca: device for device in devices}
        self.broken = ""

    async def observe(self) -> tuple[RoceFact, ...]:
        if self.broken:
            raise DoorError(self.broken)
        return tuple(self.devices[hca] for hca in sorted(self.devices))


class FakeRankFiles:
    """What lies in /run/sparkd: `files` by epoch. It is a tmpfs, so `power_cut` empties it."""

    def __init__(self) -> None:
        self.files: dict[int, dict[str, str]] = {}
        self.broken = ""

    async def write(self, epoch: int, environment: Mapping[str, str]) -> None:
        render(environment)
        if self.broken:
            raise DoorError(self.broken)
        self.files[epoch] = dict(environment)

    async def remove(self, epoch: int) -> None:
        if self.broken:
            raise DoorError(self.broken)
        self.files.pop(epoch, None)

    def power_cut(self) -> None:
        self.files.clear()
