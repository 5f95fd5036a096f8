"""Names, places and cabling of the lab: everything that is known before anything runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ALL_NODES: tuple[str, ...] = ("spark1", "spark2", "spark3", "spark4")
"""The largest lab; a lab has the first two, three or four."""
NODES: tuple[str, ...] = ALL_NODES[:3]
"""The nodes of a lab unless it is made with another number of them."""
OUTSIDE = "outside"
"""A machine that is no member of the cluster: on the management network, and with ports like a node's."""
MANAGEMENT_DEVICE = "enP7s7"
MANAGEMENT_PREFIX = 24
DOMAINS: tuple[str, ...] = ("0000", "0002")
PORTS: tuple[int, ...] = (0, 1)
FABRIC_DEVICES: dict[tuple[int, str], str] = {
    (0, "0000"): "enp1s0f0np0",
    (0, "0002"): "enP2p1s0f0np0",
    (1, "0000"): "enp1s0f1np1",
    (1, "0002"): "enP2p1s0f1np1",
}
_END = re.compile(rf"(?P<node>{'|'.join((*ALL_NODES, OUTSIDE))})\.p(?P<port>[01])(\.(?P<domain>{'|'.join(DOMAINS)}))?")


@dataclass(frozen=True, order=True)
class End:
    """One end of one link: a cage of a machine and one of the two PCI functions behind it."""

    node: str
    port: int
    domain: str

    @property
    def device(self) -> str:
        """Name of the host's network interface."""
        return FABRIC_DEVICES[self.port, self.domain]

    @property
    def wire(self) -> str:
        """Name of the interface at the other side of the host's socket, where the cable begins."""
        return f"s{node_number(self.node)}p{self.port}d{int(self.domain)}"

    @property
    def mac(self) -> str:
        """A fixed, locally administered address, so that a reboot does not look like a new NIC."""
        return f"02:5a:00:0{node_number(self.node)}:0{self.port}:0{int(self.domain)}"

    def __str__(self) -> str:
        return f"{self.node}.p{self.port}.{self.domain}"


@dataclass(frozen=True, order=True)
class Link:
    """One of the two layer 2 links of a cable."""

    a: End
    b: End

    @property
    def key(self) -> str:
        """Name of the bridge that stands for this part of the cable."""
        return f"{self.a.wire}{self.b.wire}"

    @property
    def ends(self) -> tuple[End, End]:
        return (self.a, self.b)

    def __str__(self) -> str:
        return f"{self.a}-{self.b}"


def node_number(node: str) -> int:
    """1 to 4, and 9 for the machine outside. Raises ValueError for any other name."""
    return 9 if node == OUTSIDE else ALL_NODES.index(node) + 1


def address(node: str) -> str:
    """Management address of a machine, without its prefix length."""
    return f"192.168.77.{254 if node == OUTSIDE else node_number(node)}"


def management_mac(node: str) -> str:
    return f"02:5a:00:0{node_number(node)}:77:00"


def management_wire(node: str) -> str:
    return f"s{node_number(node)}m"


def ends_of(node: str) -> tuple[End, ...]:
    """The four ends that a machine has, cabled or not."""
    return tuple(End(node, port, domain) for port in PORTS for domain in DOMAINS)


def links(nodes: Sequence[str] = NODES) -> tuple[Link, ...]:
    """The usual cabling: a ring from port 0 of each node to port 1 of the next; of two nodes, one cable of ports 0."""
    if len(nodes) == 2:
        return parse_cables([f"{nodes[0]}.p0-{nodes[1]}.p0"])
    following = (*nodes[1:], *nodes[:1])
    return parse_cables(f"{node}.p0-{after}.p1" for node, after in zip(nodes, following, strict=True))


def parse_cables(cables: Iterable[str]) -> tuple[Link, ...]:
    """The links of cables such as spark1.p0-spark2.p1, or of half ones such as spark1.p0.0002-spark2.p1.0002.

    Raises ValueError for a text that is no cable and for an end with two.
    """
    found: list[Link] = []
    for cable in cables:
        one, dash, other = cable.partition("-")
        pair = [match for match in map(_END.fullmatch, (one, other)) if match]
        halves = [match["domain"] for match in pair]
        if not dash or len(pair) != 2 or (halves[0] is None) != (halves[1] is None):
            raise ValueError(f"{cable!r} is no cable such as spark1.p0-spark2.p1 or spark1.p0.0000-spark2.p1.0002")
        for domain in DOMAINS if halves[0] is None else ("",):
            a, b = (End(match["node"], int(match["port"]), match["domain"] or domain) for match in pair)
            found.append(Link(a, b))
    ends = [end for link in found for end in link.ends]
    twice = sorted({str(end) for end in ends if ends.count(end) > 1})
    if twice:
        raise ValueError(f"two cables at {', '.join(twice)}")
    return tuple(found)


def links_at(node: str, port: int, domain: str | None = None, among: Sequence[Link] = links()) -> tuple[Link, ...]:
    """The links of the cable in a cage: both PCI domains unless one is named."""
    return tuple(
        link
        for link in among
        if any((e.node, e.port) == (node, port) and domain in (None, e.domain) for e in link.ends)
    )


@dataclass(frozen=True)
class Places:
    """Where one lab keeps its things.

    The lab's id is derived from its directory, so that `down` finds namespaces and cgroups of a lab
    whose own notes were lost, and two labs in two directories never meet.
    """

    directory: Path
    cache: Path

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.directory).encode()).hexdigest()[:6]

    @property
    def prefix(self) -> str:
        """Prefix of every namespace, cgroup and machine name of this lab."""
        return f"sparkd-lab-{self.id}"

    @property
    def lock(self) -> Path:
        return self.directory.with_name(self.directory.name + ".lock")

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    @property
    def wires_state(self) -> Path:
        return self.directory / "wires.json"

    @property
    def engine(self) -> Path:
        """Has the directory of the engine that the hosts see; not there in a lab of the probe."""
        return self.directory / "engine"

    @property
    def wires_netns(self) -> str:
        return f"{self.prefix}-wires"

    def netns(self, node: str) -> str:
        return f"{self.prefix}-{node}"

    def netns_path(self, node: str) -> Path:
        return NETNS_DIRECTORY / self.netns(node)

    def node(self, node: str) -> Path:
        return self.directory / node

    def root(self, node: str) -> Path:
        """Mount point of the node's root file system."""
        return self.node(node) / "root"

    def cgroup(self, node: str) -> str:
        """Path of the node's cgroup below the root of every hierarchy."""
        return f"{self.prefix}/{node}"


NETNS_DIRECTORY = Path("/run/netns")


def places(directory: Path | None = None) -> Places:
    """The lab of the environment (SPARKD_LAB_DIR, SPARKD_LAB_CACHE), or the one in `directory`."""
    chosen = directory or Path(os.environ.get("SPARKD_LAB_DIR") or "/var/tmp/sparkd-lab")
    cache = Path(os.environ.get("SPARKD_LAB_CACHE") or "/var/cache/sparkd-lab")
    return Places(chosen.resolve(), cache.resolve())
