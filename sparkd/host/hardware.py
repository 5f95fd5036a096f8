"""All doors to the host's hardware at once, each under its own deadline: one that is stuck hides no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sparkd.core.enginefacts import PROBE, EngineFacts
from sparkd.core.hardware import HardwareFacts
from sparkd.host.counters import RailCounters
from sparkd.host.gids import SysfsGids
from sparkd.host.kernel import KernelFiles
from sparkd.host.meminfo import MemoryFiles
from sparkd.host.owners import NetworkOwners
from sparkd.host.pci import PciBus
from sparkd.host.rankhost import RankHost
from sparkd.host.supervisors import Supervisors
from sparkd.ports import DoorError, EngineDoor


class Hardware:
    """`ports` are the ring's own TCP ports; `root` stands for / in tests; `deadline` is in seconds, for each door.

    `broken`: what the kernel's log has said so far, as in HardwareFacts; it may grow. `engine`: None for the probe,
    which is sparkd's own.
    """

    def __init__(
        self,
        ports: Sequence[int],
        root: Path = Path("/"),
        deadline: float = 2.0,
        broken: Mapping[str, str] = MappingProxyType({}),
        engine: EngineDoor | None = None,
    ) -> None:
        self._broken = broken
        self._engine = engine
        self._kernel = KernelFiles(root, deadline)
        self._pci = PciBus(root, deadline)
        self._memory = MemoryFiles(root, deadline)
        self._gids = SysfsGids(root, deadline)
        self._owners = NetworkOwners(root, deadline)
        self._rank = RankHost(root, deadline)
        self._supervisors = Supervisors(ports, root, deadline)
        self._rails = RailCounters(root, deadline)

    async def observe(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, serving: int = 0
    ) -> HardwareFacts:
        """Never raises DoorError: a source that does not answer is None in the facts, with its sentence.

        `rank_pid`: main process of this host's running rank, 0 without one. `addresses`: the planned address by fabric
        device, without prefix length, so that the GID is found that belongs to it. `serving`: the epoch that serves
        here, 0 while none does.
        """
        sources: dict[str, Awaitable[Any]] = {
            "kernel": self._kernel.observe(),
            "pci": self._pci.observe(),
            "memory": self._memory.observe(),
            "gids": self._gids.observe(addresses),
            "owners": self._owners.observe(),
            "rank": self._rank.observe(rank_pid),
            "supervisors": self._supervisors.observe(),
            "rails": self._rails.observe(serving),
            "engine": self._look_at_engine(),
        }
        return await _asked(HardwareFacts(broken=dict(self._broken)), sources)

    async def supervisors(self, known: HardwareFacts) -> HardwareFacts:
        """`known`, with a fresh look at who holds the ring's ports and at the engine. Never raises DoorError."""
        fresh = {"supervisors": self._supervisors.glance(known.supervisors), "engine": self._look_at_engine()}
        return await _asked(known, fresh)

    async def _look_at_engine(self) -> EngineFacts:
        return EngineFacts(PROBE) if self._engine is None else await self._engine.observe()

    def close(self) -> None:
        for door in (
            self._kernel,
            self._pci,
            self._memory,
            self._gids,
            self._owners,
            self._rank,
            self._supervisors,
            self._rails,
        ):
            door.close()


async def _asked(known: HardwareFacts, sources: Mapping[str, Awaitable[Any]]) -> HardwareFacts:
    unknown = {name: why for name, why in known.unknown.items() if name not in sources}

    async def ask(source: str, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except DoorError as error:
            unknown[source] = str(error)
        except ValueError as error:
            unknown[source] = f"{source}: not understood: {error}"
        return None

    answers = await asyncio.gather(*(ask(source, answer) for source, answer in sources.items()))
    return replace(known, **dict(zip(sources, answers, strict=True)), unknown=unknown)
