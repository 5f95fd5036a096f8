"""The environment file of ``sparkd-measure@EPOCH.service``, read into one frozen value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.environment import DEVICE, NAME, WORLD_SIZE_MIN, BadEnvironment, Reader, is_ipv4
from runtime.probe.topology import End, Link

NONE = "-"
METHODS = ("rdma", "tcp")
_HCA = re.compile(r"[A-Za-z0-9_]{1,63}")
_EXPECTED = "INDEX:DEVICE:LOCAL_IP:PEER_RANK:PEER_DEVICE:PEER_IP:HCA:GID_INDEX:WANTED, HCA and GID_INDEX - without RDMA"


@dataclass(frozen=True)
class Rail:
    """One end here. ``link`` has the plan's index and both ends; ``gid`` is an index; ``wanted``: to be measured."""

    link: Link
    hca: str
    gid: int | None
    wanted: bool

    @property
    def rdma(self) -> bool:
        """There is an RDMA device, and the GID of the rail's address is known."""
        return bool(self.hca) and self.gid is not None


@dataclass(frozen=True)
class MeasureEnvironment:
    """``nodes`` and ``addresses`` (management) by rank; ``rails`` in the order in which all hosts measure.

    ``seconds`` per rail and direction; ``expected``: Gb/s by method, below which a rail is measured again;
    ``patience``: how long a host at the far end is waited for. On ``port`` of the management address hosts meet,
    ``port`` + 1 is for perftest, ``port`` + 2 of a rail's own address for the rail.
    """

    epoch: int
    cluster: str
    node: str
    rank: int
    nodes: tuple[str, ...]
    addresses: tuple[str, ...]
    rails: tuple[Rail, ...]
    seconds: float
    expected: Mapping[str, float]
    patience: float
    port: int
    boot_id: str
    key: bytes = field(repr=False)

    @property
    def total(self) -> int:
        return sum(rail.wanted for rail in self.rails)


def read_environment(environ: Mapping[str, str]) -> MeasureEnvironment:
    """Read and check the whole environment.

    :raises BadEnvironment: with every bad or missing variable.
    """
    reader = Reader(environ)
    epoch = reader.integer("SPARKD_EPOCH", 1)
    cluster = reader.text("SPARKD_CLUSTER", "the cluster's name")
    node = reader.text("SPARKD_NODE", "the node's name")
    nodes = _names(reader)
    addresses = _addresses(reader, len(nodes))
    rank = reader.integer("SPARKD_RANK", 0, max(len(nodes) - 1, 0))
    if node is not None and rank is not None and rank < len(nodes) and nodes[rank] != node:
        reader.bad("SPARKD_NODE", f"{nodes[rank]!r}, the name SPARKD_NODES gives rank {rank}", node)
    rails = _rails(reader, rank or 0, len(nodes))
    seconds = reader.seconds("SPARKD_MEASURE_SECONDS", 1.0, 0.01, 60)
    expected = {
        name: reader.number(f"SPARKD_MEASURE_EXPECTED_{name.upper()}", 0.0, 0, 1000, "Gb/s") for name in METHODS
    }
    patience = reader.seconds("SPARKD_MEASURE_PATIENCE", 10.0, 0.1, 60)
    port = reader.integer("SPARKD_MEASURE_PORT", 1, 65533, 20200)
    boot_id = reader.text("SPARKD_BOOT_ID", "the id of this boot")
    key = reader.key("SPARKD_MEASURE_KEY")
    if (
        reader.problems
        or epoch is None
        or cluster is None
        or node is None
        or rank is None
        or port is None
        or boot_id is None
        or key is None
    ):
        raise BadEnvironment(reader.problems)
    return MeasureEnvironment(
        epoch, cluster, node, rank, nodes, addresses, rails, seconds, expected, patience, port, boot_id, key
    )


def _names(reader: Reader) -> tuple[str, ...]:
    value = reader.get("SPARKD_NODES")
    names = tuple((value or "").split(","))
    fine = len(set(names)) == len(names) and all(NAME.fullmatch(name) for name in names)
    # Rings larger than a group of ranks are planned and configured, so they are measured too.
    if value is None or not fine or len(names) < WORLD_SIZE_MIN:
        reader.bad("SPARKD_NODES", "unique node names by rank, separated by commas", value)
        return ()
    return names


def _addresses(reader: Reader, count: int) -> tuple[str, ...]:
    value = reader.get("SPARKD_MEASURE_ADDRESSES")
    addresses = tuple((value or "").split(","))
    if value is None or len(addresses) != count or not all(map(is_ipv4, addresses)):
        reader.bad("SPARKD_MEASURE_ADDRESSES", f"the {count} management addresses by rank, separated by commas", value)
        return ()
    return addresses


def _rails(reader: Reader, rank: int, count: int) -> tuple[Rail, ...]:
    value = reader.get("SPARKD_MEASURE_RAILS")
    rails = []
    for item in (value or "").split(","):
        rail = _rail(item, rank, count)
        if rail is None:
            reader.bad("SPARKD_MEASURE_RAILS", _EXPECTED, item if value is not None else None)
        else:
            rails.append(rail)
    return tuple(rails)


def _rail(item: str, rank: int, count: int) -> Rail | None:
    parts = item.split(":")
    if len(parts) != 9:
        return None
    index, device, address, far_rank, far_device, far_address, hca, gid, wanted = parts
    numbers = all(re.fullmatch(r"[0-9]{1,4}", number) for number in (index, far_rank))
    names = all(DEVICE.fullmatch(name) for name in (device, far_device)) and (hca == NONE or _HCA.fullmatch(hca))
    addresses = is_ipv4(address) and is_ipv4(far_address) and address != far_address
    if not (numbers and names and addresses and re.fullmatch(r"[0-9]{1,4}|-", gid) and wanted in ("0", "1")):
        return None
    if int(far_rank) == rank or int(far_rank) >= count:
        return None
    low, high = sorted((End(rank, device, address), End(int(far_rank), far_device, far_address)))
    return Rail(
        Link(int(index), 0, low, high),
        "" if hca == NONE else hca,
        None if gid == NONE else int(gid),
        wanted == "1",
    )
