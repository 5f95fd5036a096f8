"""Pure: from what each rank knows of its own ends to the links of the group, and the rings over them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.environment import Rail

# Predictable names of PCI devices: en[P<domain>]p<bus>s<slot>..., the domain left out when it is zero.
_PCI_NAME = re.compile(r"en(?:P(?P<domain>[0-9]+))?p[0-9]+s[0-9]+")


class TopologyError(Exception):
    """The ranks' rails do not fit together; the message is one sentence."""


@dataclass(frozen=True, order=True)
class End:
    """One end of a link."""

    rank: int
    device: str
    address: str


@dataclass(frozen=True)
class Link:
    """One L2 link between two ranks. The lower rank listens, the higher one connects: both know both ranks."""

    index: int
    domain: int
    low: End
    high: End

    def end(self, rank: int) -> End:
        """The end at ``rank``, which must be one of the two."""
        return {self.low.rank: self.low, self.high.rank: self.high}[rank]

    def far(self, rank: int) -> End:
        """The end that is not at ``rank``."""
        return {self.low.rank: self.high, self.high.rank: self.low}[rank]


@dataclass(frozen=True)
class Ring:
    """A directed cycle through every rank: ``hops[i]`` is the index of the link ``order[i]`` sends on."""

    domain: int
    order: tuple[int, ...]
    hops: tuple[int, ...]

    def position(self, rank: int) -> int:
        """Where in the cycle ``rank`` stands."""
        return self.order.index(rank)

    def reversed(self) -> "Ring":
        """The same cycle walked the other way."""
        order = (self.order[0], *reversed(self.order[1:]))
        return Ring(self.domain, order, tuple(reversed(self.hops)))


def pci_domain(device: str, position: int) -> int:
    """The PCI domain in a predictable device name; other names follow the plan's order, 0 and 2 in turn."""
    match = _PCI_NAME.match(device)
    if match is None:
        return 2 * (position % 2)
    return int(match["domain"] or 0)


def find_links(rails: Mapping[int, Sequence[Rail]], world_size: int) -> tuple[Link, ...]:
    """Pair the ends of all ranks, in one order that is the same everywhere.

    :raises TopologyError: if an end's other end is missing, says something else or is in another PCI domain.
    """
    ends: dict[str, tuple[End, Rail, int]] = {}
    for rank in range(world_size):
        for position, rail in enumerate(rails.get(rank, ())):
            if rail.address in ends:
                raise TopologyError(f"ranks {ends[rail.address][0].rank} and {rank} both own {rail.address}")
            domain = pci_domain(rail.device, position)
            ends[rail.address] = (End(rank, rail.device, rail.address), rail, domain)
    pairs: list[tuple[int, End, End]] = []
    for end, rail, domain in ends.values():
        far = ends.get(rail.peer_address)
        if far is None or far[0].rank != rail.peer_rank or far[1].peer_address != end.address:
            raise TopologyError(
                f"rail {end.device} of rank {end.rank} expects rank {rail.peer_rank} at {rail.peer_address},"
                " which that rank does not have or links elsewhere"
            )
        if far[2] != domain:
            raise TopologyError(f"rail {end.device} of rank {end.rank} faces {far[0].device}, another PCI domain")
        if end.rank < far[0].rank:
            pairs.append((domain, end, far[0]))
    pairs.sort(key=lambda pair: (pair[1].rank, pair[2].rank, pair[0], pair[1].device))
    return tuple(Link(index, domain, low, high) for index, (domain, low, high) in enumerate(pairs))


def find_rings(links: Sequence[Link], world_size: int) -> tuple[Ring, ...]:
    """One cycle per PCI domain and direction, so that every link carries data each way.

    Two ranks with one link in a domain get one cycle, there and back on that link.

    :raises TopologyError: if the links of a domain are not one cycle through all ranks.
    """
    rings: list[Ring] = []
    for domain in sorted({link.domain for link in links}):
        mine = [link for link in links if link.domain == domain]
        if world_size == 2 and len(mine) == 1:
            rings.append(Ring(domain, (0, 1), (mine[0].index,) * 2))
            continue
        forward = _walk(mine, domain, world_size)
        rings += [forward, forward.reversed()]
    if not rings:
        raise TopologyError("the group has no link")
    return tuple(rings)


def _walk(links: Sequence[Link], domain: int, world_size: int) -> Ring:
    problem = TopologyError(
        f"the {len(links)} links of PCI domain {domain:04x} are not one ring through {world_size} ranks"
    )
    if len(links) != world_size:
        raise problem
    order, hops = [0], [min(link.index for link in links)]
    by_index = {link.index: link for link in links}
    if by_index[hops[0]].low.rank != 0:
        raise problem
    while len(order) < world_size:
        rank = by_index[hops[-1]].far(order[-1]).rank
        onward = [link.index for link in links if link.index not in hops and rank in (link.low.rank, link.high.rank)]
        if rank in order or len(onward) != 1:
            raise problem
        order.append(rank)
        hops.append(onward[0])
    if 0 not in (by_index[hops[-1]].low.rank, by_index[hops[-1]].high.rank):
        raise problem
    return Ring(domain, tuple(order), tuple(hops))
