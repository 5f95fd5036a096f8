"""Hosts that measure their rails with each other over loopback addresses, all in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

from runtime.measure.environment import MeasureEnvironment, read_environment
from runtime.measure.results import Result
from runtime.measure.session import Session

DEVICES = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")
# Each test gets loopback addresses of its own, so that tests that run side by side never meet.
_nets = count(1)


class Hosts:
    """`links`: per link the two (rank, device) of its ends, in the order in which all measure."""

    def __init__(self, size: int = 3, seconds: float = 0.05, patience: float = 5.0) -> None:
        self.net = f"127.{40 + next(_nets)}"
        self.size = size
        self.names = [f"spark{rank + 1}" for rank in range(size)]
        cables = [(0, 1)] if size == 2 else [(rank, (rank + 1) % size) for rank in range(size)]
        # Every second cable first, as ring_mesh orders them.
        self.links = {
            2 * cable + twin: ((a, DEVICES[twin]), (b, DEVICES[2 + twin]))
            for cable, (a, b) in sorted(enumerate(cables), key=lambda item: (item[0] % 2, item[0]))
            for twin in (0, 1)
        }
        self.common = {"SPARKD_MEASURE_SECONDS": str(seconds), "SPARKD_MEASURE_PATIENCE": str(patience)}
        self.told: dict[int, list[str]] = {rank: [] for rank in range(size)}

    def address(self, rank: int, device: str = "") -> str:
        return f"{self.net}.{DEVICES.index(device) + 1 if device else 0}.{rank + 1}"

    def variables(self, rank: int, wanted: Collection[int] | None = None, **changed: str) -> dict[str, str]:
        rails = []
        for index, ends in self.links.items():
            for (here, device), (far, remote) in (ends, ends[::-1]):
                if here != rank:
                    continue
                ask = int(wanted is None or index in wanted)
                addresses = self.address(here, device), self.address(far, remote)
                rails.append(f"{index}:{device}:{addresses[0]}:{far}:{remote}:{addresses[1]}:rocep{index}:3:{ask}")
        return {
            "SPARKD_EPOCH": "7",
            "SPARKD_CLUSTER": "lab",
            "SPARKD_NODE": self.names[rank],
            "SPARKD_RANK": str(rank),
            "SPARKD_NODES": ",".join(self.names),
            "SPARKD_MEASURE_ADDRESSES": ",".join(self.address(other) for other in range(self.size)),
            "SPARKD_MEASURE_RAILS": ",".join(rails),
            "SPARKD_MEASURE_KEY": "ab" * 32,
            "SPARKD_BOOT_ID": f"boot-{rank}",
            **self.common,
            **changed,
        }

    def environment(self, rank: int, wanted: Collection[int] | None = None, **changed: str) -> MeasureEnvironment:
        return read_environment(self.variables(rank, wanted, **changed))

    def run(self, *environments: MeasureEnvironment) -> dict[int, dict[str, Result]]:
        """Results by rank and device, once all sessions have ended."""

        async def together() -> dict[int, dict[str, Result]]:
            found: dict[int, dict[str, Result]] = {e.rank: {} for e in environments}

            async def one(e: MeasureEnvironment) -> None:
                def done(result: Result) -> None:
                    assert result.device not in found[e.rank], "a rail is measured once"
                    found[e.rank][result.device] = result

                await Session(e, self.told[e.rank].append, done).run()

            async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                for environment in environments:
                    tasks.create_task(one(environment))
            return found

        return asyncio.run(together())


def errors(results: Mapping[int, Mapping[str, Result]]) -> dict[tuple[int, str], str]:
    """The rails that were not measured, with why."""
    return {(rank, d): r.error for rank, found in results.items() for d, r in found.items() if r.error}


def rates(results: Mapping[int, Mapping[str, Result]]) -> list[Any]:
    return [result.gbps for found in results.values() for result in found.values()]
