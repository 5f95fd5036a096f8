"""Names, places and cabling of the lab: everything that is known before anything runs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

NODES: tuple[str, ...] = ("spark1", "spark2", "spark3")
OUTSIDE = "outside"
"""A machine on the management network that is no member of the cluster."""
OUTSIDE_ADDRESS = "192.168.77.254"
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


@dataclass(frozen=True, order=True)
class End:
    """One end of one link: a cage of a node and one of the two PCI functions behind it."""

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


@dataclass(frozen=True, order=True)
class Link:
    """One of the two layer 2 links of a cable, from a node's port 0 to the next node's port 1."""

    a: End
    b: End

    @property
    def key(self) -> str:
        """Stable name, also the name of the bridge that stands for this part of the cable."""
        return f"c{node_number(self.a.node)}{node_number(self.b.node)}d{int(self.a.domain)}"

    @property
    def ends(self) -> tuple[End, End]:
        return (self.a, self.b)


def node_number(node: str) -> int:
    """1, 2 or 3. Raises ValueError for anything that is no node of the lab."""
    return NODES.index(node) + 1


def address(node: str) -> str:
    """Management address of a node, without its prefix length."""
    return f"192.168.77.{node_number(node)}"


def management_mac(node: str) -> str:
    return f"02:5a:00:0{node_number(node)}:77:00"


def management_wire(node: str) -> str:
    return f"s{node_number(node)}m"


def links() -> tuple[Link, ...]:
    """The six links of the triangle's three cables."""
    return tuple(
        Link(End(node, 0, domain), End(NODES[(index + 1) % len(NODES)], 1, domain))
        for index, node in enumerate(NODES)
        for domain in DOMAINS
    )


def links_at(node: str, port: int, domain: str | None = None) -> tuple[Link, ...]:
    """The links of the cable in a cage: both PCI domains unless one is named."""
    return tuple(
        link
        for link in links()
        if any((e.node, e.port) == (node, port) and domain in (None, e.domain) for e in link.ends)
    )


def ends_of(node: str) -> tuple[End, ...]:
    return tuple(end for link in links() for end in link.ends if end.node == node)


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
