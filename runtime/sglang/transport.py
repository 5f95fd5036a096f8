"""Over what NCCL's connections go: its own word for it in the log, and the counters of the RDMA devices."""

import re
from collections.abc import Mapping
from pathlib import Path

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure

SYSFS = Path("/sys/class/infiniband")
_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? ?: (?P<source>\d+)\[\w+\] -> (?P<sink>\d+)\[\w+\] \[(?:send|receive)\] "
    r"via (?P<way>NET/\w+)"
)


class Connections:
    """Counts ``via NET/...`` in the log by peer and by way. The ranks of NCCL's group are those of the ring."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self.ways: dict[int, dict[str, int]] = {}

    def feed(self, line: str) -> None:
        if "NCCL INFO Channel" not in line or (match := _CHANNEL.search(line)) is None:
            return
        ends = {int(match["source"]), int(match["sink"])}
        if self._rank not in ends or len(ends) != 2:
            return
        peer = (ends - {self._rank}).pop()
        if peer < self._world_size:
            ways = self.ways.setdefault(peer, {})
            ways[match["way"]] = ways.get(match["way"], 0) + 1

    def count(self, way: str) -> int:
        return sum(ways.get(way, 0) for ways in self.ways.values())

    def text(self, transport: str) -> str:
        """For the status: ``IB, 64 connections`` or ``sockets (lab)``."""
        if transport == "ib":
            return f"IB, {self.count('NET/IB')} connections"
        return "sockets (lab)"


def devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The RDMA devices that NCCL_IB_HCA names; a port behind a name is left out."""
    names = environ.get("NCCL_IB_HCA", "").removeprefix("=").split(",")
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names if name))


def transmitted(hcas: tuple[str, ...], sysfs: Path = SYSFS) -> dict[str, int | None]:
    """``port_xmit_data`` (units of four bytes) of port 1 by device; None where it cannot be read."""
    counters: dict[str, int | None] = {}
    for hca in hcas:
        try:
            counters[hca] = int((sysfs / hca / "ports/1/counters/port_xmit_data").read_text())
        except (OSError, ValueError):
            counters[hca] = None
    return counters


class TransportProof:
    """Whether the ring is on RoCE, as asked by ``transport = "ib"``. Counters are compared with those at the start."""

    def __init__(
        self,
        environment: RankEnvironment,
        transport: str,
        hcas: tuple[str, ...],
        connections: Connections,
        sysfs: Path = SYSFS,
    ) -> None:
        self._environment = environment
        self._wanted = transport == "ib"
        self._hcas = hcas
        self._connections = connections
        self._sysfs = sysfs
        self._before = transmitted(hcas, sysfs) if self._wanted else {}

    def check_early(self) -> None:
        """As soon as the log tells of connections.

        :raises RankFailure: 75 if one goes another way than by RDMA.
        """
        if not self._wanted:
            return
        for peer, ways in self._connections.ways.items():
            if others := sorted(way for way in ways if way != "NET/IB"):
                raise RankFailure(
                    ExitCode.NOT_AS_ASKED,
                    f"NCCL reaches {self._environment.name(peer)} via {', '.join(others)}, expected NET/IB; "
                    "look for the reason in the rank's journal, next to NET/IB",
                )

    def check(self) -> str:
        """Before ready; devices that sent nothing, in words, or nothing.

        :raises RankFailure: 75 for a peer on a cable without ``via NET/IB``, or if no device towards the peers sends.
        """
        self.check_early()
        if not self._wanted:
            return ""
        for peer in sorted({rail.peer_rank for rail in self._environment.rails}):
            if not self._connections.ways.get(peer, {}).get("NET/IB"):
                raise RankFailure(
                    ExitCode.NOT_AS_ASKED,
                    f"no line of NCCL says that {self._environment.name(peer)} is reached via NET/IB; "
                    "NCCL_DEBUG has to be INFO with NET among NCCL_DEBUG_SUBSYS",
                )
        if not self._hcas:
            raise RankFailure(ExitCode.NOT_AS_ASKED, "NCCL_IB_HCA names no RDMA device, expected those of the fabric")
        after = transmitted(self._hcas, self._sysfs)
        for hca in self._hcas:
            if after[hca] is None or self._before[hca] is None:
                counter = self._sysfs / hca / "ports/1/counters/port_xmit_data"
                raise RankFailure(ExitCode.NOT_AS_ASKED, f"NCCL_IB_HCA names {hca}, whose {counter} cannot be read")
        idle = [hca for hca in self._hcas if after[hca] == self._before[hca]]
        if len(idle) == len(self._hcas):
            raise RankFailure(
                ExitCode.NOT_AS_ASKED,
                f"port_xmit_data of {', '.join(idle)} has not moved since the start: nothing goes over RoCE",
            )
        return f"{', '.join(idle)} sent nothing" if idle else ""
