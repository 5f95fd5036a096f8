"""The plan of a ring: its cables, links and ends, and the routes between them.

Each link is a subnet of its own, because NCCL chooses the device for a peer by comparing subnets, and the two links
of a cable would be indistinguishable in one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import islice

from ring_mesh.cabling import CablePair, Cabling, Socket, by_order, cables_in_order, ring_order
from ring_mesh.cluster import MAX_NODES, MIN_NODES, Cluster, ClusterError, Problem, prefix_for
from ring_mesh.ports import PORTS, Port

MTU = 9000
"""Bytes. RoCE picks the largest of 256..4096 that fits, and TCP on the same rails wants jumbo frames."""


@dataclass(frozen=True)
class End:
    """One end of a link. address: with the prefix length of the link's subnet. mtu: bytes."""

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
    """One of the two links of a cable, on one PCI domain. ends: the one at a port 0 first.

    Two nodes may be cabled between equal ports: then the end of the lower rank comes first.
    """

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
        """Name of the node at the first end: in a ring, where the cable is in port 0."""
        return self.links[0].ends[0].node

    @property
    def b(self) -> str:
        """Name of the node at the second end: in a ring, where the cable is in port 1."""
        return self.links[0].ends[1].node

    @property
    def sockets(self) -> CablePair:
        """Where the cable is plugged in, in the order of its links' ends."""
        first, second = self.links[0].ends
        return Socket(first.node, first.port.cage), Socket(second.node, second.port.cage)


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

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return tuple(link for cable in self.cables for link in cable.links)

    @property
    def cabling(self) -> Cabling:
        return Cabling(tuple(cable.sockets for cable in self.cables))

    @property
    def order(self) -> tuple[str, ...]:
        """The nodes along the ring, from rank 0 on out of each one's port 0; two nodes: by rank."""
        return ring_order(self.cabling, [node.name for node in self.cluster.nodes])

    def ends_of(self, node: str) -> tuple[End, ...]:
        """The node's ends, in the order of PORTS: four, or two where only one port is cabled."""
        return self._ends[self.cluster.node(node).name]

    def routes_of(self, node: str) -> tuple[Route, ...]:
        """The node's routes, in the order of the PORTS they leave by: four, or none between two nodes."""
        name = self.cluster.node(node).name
        return tuple(route for route in self.routes if route.node == name)

    def far_end(self, end: End) -> End:
        """The other end of the link. Raises ValueError if `end` is not of this plan."""
        if end not in self._far:
            raise ValueError(f"{end.device} of {end.node} with {end.address} is not in the plan")
        return self._far[end]

    def cable_at(self, node: str, cage: int) -> Cable:
        """The cable in that cage (0 or 1) of the node. Raises ValueError for another cage and for one without cable."""
        name = self.cluster.node(node).name
        if cage not in (0, 1):
            raise ValueError(f"a Spark has cages 0 and 1, not {cage}")
        for cable in self.cables:
            if Socket(name, cage) in cable.sockets:
                return cable
        raise ValueError(f"no cable is planned at {Socket(name, cage)}")

    @cached_property
    def _far(self) -> dict[End, End]:
        return {end: far for link in self.links for end, far in (link.ends, link.ends[::-1])}

    @cached_property
    def _ends(self) -> dict[str, tuple[End, ...]]:
        ends: dict[str, list[End]] = {node.name: [] for node in self.cluster.nodes}
        for link in self.links:
            for end in link.ends:
                ends[end.node].append(end)
        return {node: tuple(sorted(found, key=lambda end: PORTS.index(end.port))) for node, found in ends.items()}


def planned_subnets(base_range: IPv4Network, subnets: int = 6) -> tuple[IPv4Network, ...]:
    """The first /24 of a range, by link index; a triangle takes six. Raises ValueError if they do not fit."""
    found = tuple(islice(base_range.subnets(new_prefix=24), subnets)) if base_range.prefixlen <= 24 else ()
    if len(found) < subnets:
        raise ValueError(f"{base_range} has no room for {subnets} /24 subnets")
    return found


def plan(cluster: Cluster, cabling: Cabling | None = None) -> Plan:
    """The plan of the cluster with that cabling; without one, of a ring in the order of the ranks.

    The first cable leaves port 0 of rank 0. Link i has the i-th /24 of the base range, and rank r has host number
    r + 1 in each of its subnets. Raises ClusterError unless there are 2 to 64 nodes, ordered by rank, and room for
    two /24 per cable; CablingError if the cables are not a ring of all nodes.
    """
    cables = ordered_cables(cluster, cabling)
    try:
        subnets = planned_subnets(cluster.base_range, 2 * len(cables))
    except ValueError as error:
        expected = f"room for {2 * len(cables)} /24 subnets (a /{prefix_for(2 * len(cables))} or larger)"
        raise ClusterError([Problem("cluster.base_range", str(cluster.base_range), expected)]) from error
    ranks = {node.name: node.rank for node in cluster.nodes}

    def address(link: int, node: str, _port: Port) -> IPv4Interface:
        subnet = subnets[link]
        return IPv4Interface((subnet.network_address + ranks[node] + 1, subnet.prefixlen))

    return assemble(cluster, cables, address)


def ordered_cables(cluster: Cluster, cabling: Cabling | None) -> tuple[CablePair, ...]:
    """The cables by index, checked. Raises ClusterError for the nodes and CablingError, as `plan` does."""
    ranks = [node.rank for node in cluster.nodes]
    if ranks != list(range(len(ranks))) or not MIN_NODES <= len(ranks) <= MAX_NODES:
        expected = f"{MIN_NODES} to {MAX_NODES} nodes with ranks 0, 1 and so on, in that order"
        raise ClusterError([Problem("cluster.node", f"ranks {ranks}", expected)])
    names = [node.name for node in cluster.nodes]
    return cables_in_order(by_order(names) if cabling is None else cabling, names)


def assemble(cluster: Cluster, cables: Sequence[CablePair], address: Callable[[int, str, Port], IPv4Interface]) -> Plan:
    """The plan with the given cables, already in order. address: of a link's index, a node and its port."""
    ranks = {node.name: node.rank for node in cluster.nodes}

    def end(link: int, socket: Socket, twin: int) -> End:
        port = PORTS[2 * socket.cage + twin]
        return End(socket.node, ranks[socket.node], port, address(link, socket.node, port))

    def link(cable: int, twin: int) -> Link:
        index = 2 * cable + twin
        first, second = cables[cable]
        ends = end(index, first, twin), end(index, second, twin)
        return Link(index, ends[0].address.network, ends)

    built = tuple(Cable(index, (link(index, 0), link(index, 1))) for index in range(len(cables)))
    unrouted = Plan(cluster, built, ())
    return Plan(cluster, built, tuple(route for node in cluster.nodes for route in _routes(unrouted, node.name)))


def unreachable(plan: Plan, node: str) -> tuple[str, ...]:
    """The nodes, by rank, that share no cable with `node`: no route leads to their fabric addresses.

    Packets between them would have to be forwarded by a neighbour. Raises ClusterError for an unknown node.
    """
    near = {plan.far_end(end).node for end in plan.ends_of(node)}
    return tuple(other.name for other in plan.cluster.nodes if other.name != node and other.name not in near)


def _routes(unrouted: Plan, node: str) -> list[Route]:
    """A neighbour's addresses on its other cable, over the direct cable and on the same PCI domain.

    Without them the kernel sends such packets out of the default route, and connection attempts hang unanswered.
    """
    routes = []
    for end in unrouted.ends_of(node):
        direct = unrouted.far_end(end)
        for beyond in unrouted.ends_of(direct.node):
            # With two cables between two nodes, the other cable leads here as well.
            other_cable = beyond.port.domain == end.port.domain and beyond.port.cage != direct.port.cage
            if other_cable and unrouted.far_end(beyond).node != node:
                routes.append(Route(node, beyond.address.ip, direct.address.ip, end.device, end.address.ip))
    return routes
