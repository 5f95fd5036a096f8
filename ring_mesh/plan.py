"""The plan of a triangle: three cables, six links, twelve ends and the routes between them.

Each cable runs from port 0 of rank i to port 1 of rank i + 1. A cable between equal ports makes NCCL pair RDMA
devices that are not on one cable. Each link is a subnet of its own, because NCCL chooses the device for a peer by
comparing subnets, and the two links of a cable would be indistinguishable in one.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import islice

from ring_mesh.cluster import RING_SIZE, SUBNETS, Cluster, ClusterError, Problem
from ring_mesh.ports import PORTS, Port

MTU = 9000
"""Bytes. RoCE picks the largest of 256..4096 that fits, and TCP on the same rails wants jumbo frames."""


@dataclass(frozen=True)
class End:
    """One end of a link. address: with the link's /24. mtu: bytes."""

    node: str
    rank: int
    port: Port
    address: IPv4Interface
    mtu: int = MTU

    @property
    def device(self) -> str:
        return self.port.device

    @property
    def hca(self) -> str:
        return self.port.hca


@dataclass(frozen=True)
class Link:
    """One of the two links of a cable, on one PCI domain. ends: the one at a port 0 first."""

    index: int
    subnet: IPv4Network
    ends: tuple[End, End]


@dataclass(frozen=True)
class Cable:
    """A cable. links: of PCI domain 0000 and of 0002."""

    index: int
    links: tuple[Link, Link]

    @property
    def a(self) -> str:
        """Name of the node where the cable is in port 0."""
        return self.links[0].ends[0].node

    @property
    def b(self) -> str:
        """Name of the node where the cable is in port 1."""
        return self.links[0].ends[1].node


@dataclass(frozen=True)
class Route:
    """A /32 route on `node`: to `destination` by `gateway`, out of `device`, with `source` as own address."""

    node: str
    destination: IPv4Address
    gateway: IPv4Address
    device: str
    source: IPv4Address


@dataclass(frozen=True)
class Plan:
    """What the fabric should be. Methods that take a node's name raise ClusterError if the cluster has no such node."""

    cluster: Cluster
    cables: tuple[Cable, ...]
    routes: tuple[Route, ...]

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(link for cable in self.cables for link in cable.links)

    def ends_of(self, node: str) -> tuple[End, ...]:
        """The node's four ends, in the order of PORTS."""
        name = self.cluster.node(node).name
        ends = {end.port: end for link in self.links for end in link.ends if end.node == name}
        return tuple(ends[port] for port in PORTS)

    def routes_of(self, node: str) -> tuple[Route, ...]:
        """The node's four routes, in the order of the PORTS they leave by."""
        name = self.cluster.node(node).name
        return tuple(route for route in self.routes if route.node == name)

    def far_end(self, end: End) -> End:
        """The other end of the link. Raises ValueError if `end` is not of this plan."""
        for link in self.links:
            if end in link.ends:
                return link.ends[1] if end == link.ends[0] else link.ends[0]
        raise ValueError(f"{end.device} of {end.node} with {end.address} is not in the plan")

    def cable_at(self, node: str, cage: int) -> Cable:
        """The cable in that cage (0 or 1) of the node. Raises ValueError for another cage."""
        name = self.cluster.node(node).name
        if cage not in (0, 1):
            raise ValueError(f"a Spark has cages 0 and 1, not {cage}")
        return next(cable for cable in self.cables if (cable.a, cable.b)[cage] == name)


def planned_subnets(base_range: IPv4Network) -> tuple[IPv4Network, ...]:
    """The six /24 that a triangle takes of a range, by link index. Raises ValueError if they do not fit."""
    subnets = tuple(islice(base_range.subnets(new_prefix=24), SUBNETS)) if base_range.prefixlen <= 24 else ()
    if len(subnets) < SUBNETS:
        raise ValueError(f"{base_range} has no room for {SUBNETS} /24 subnets")
    return subnets


def plan(cluster: Cluster) -> Plan:
    """The plan of the cluster. Raises ClusterError unless it has three nodes, ordered by rank."""
    ranks = [node.rank for node in cluster.nodes]
    if ranks != list(range(RING_SIZE)):
        raise ClusterError([Problem("cluster.node", f"ranks {ranks}", "ranks 0, 1 and 2, in that order")])
    subnets = planned_subnets(cluster.base_range)
    cables = tuple(_cable(cluster, index, subnets) for index in range(RING_SIZE))
    unrouted = Plan(cluster, cables, ())
    routes = tuple(route for node in cluster.nodes for route in _routes(unrouted, node.name))
    return Plan(cluster, cables, routes)


def _cable(cluster: Cluster, index: int, subnets: tuple[IPv4Network, ...]) -> Cable:
    lower, upper = (_link(cluster, index, 2 * index + twin, subnets[2 * index + twin], twin) for twin in (0, 1))
    return Cable(index, (lower, upper))


def _link(cluster: Cluster, cable: int, index: int, subnet: IPv4Network, twin: int) -> Link:
    a, b = cluster.nodes[cable], cluster.nodes[(cable + 1) % RING_SIZE]
    near, far = PORTS[twin], PORTS[2 + twin]
    return Link(
        index,
        subnet,
        (
            End(a.name, a.rank, near, _address(subnet, a.rank)),
            End(b.name, b.rank, far, _address(subnet, b.rank)),
        ),
    )


def _address(subnet: IPv4Network, rank: int) -> IPv4Interface:
    return IPv4Interface((subnet.network_address + rank + 1, subnet.prefixlen))


def _routes(unrouted: Plan, node: str) -> list[Route]:
    """A peer's addresses on its cable to the third node, over the direct cable and on the same PCI domain.

    Without them the kernel sends such packets out of the default route, and connection attempts hang unanswered.
    """
    routes = []
    for end in unrouted.ends_of(node):
        direct = unrouted.far_end(end)
        (beyond,) = (
            other
            for other in unrouted.ends_of(direct.node)
            if other.port.domain == end.port.domain and other.port.cage != direct.port.cage
        )
        routes.append(Route(node, beyond.address.ip, direct.address.ip, end.device, end.address.ip))
    return routes
