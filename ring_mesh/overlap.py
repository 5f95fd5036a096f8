"""Collisions of the planned subnets with other networks of a host."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from ring_mesh.cluster import prefix_for
from ring_mesh.plan import planned_subnets

# First and last address of the private ranges. The lowest networks of 10/8 come last: they are the ones that a site
# most often uses behind its router, where this host cannot see them.
_PRIVATE = tuple(
    (IPv4Address(first), IPv4Address(last))
    for first, last in (
        ("10.77.0.0", "10.255.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("10.0.0.0", "10.76.255.255"),
    )
)


@dataclass(frozen=True)
class Collision:
    """A planned subnet and a network of the host that share addresses. where: what the caller calls that network."""

    subnet: IPv4Network
    network: IPv4Network
    where: str


def overlaps(
    base_range: IPv4Network, networks: Iterable[tuple[IPv4Network, str]], subnets: int = 6
) -> tuple[Collision, ...]:
    """The collisions of the /24 planned in `base_range` with `networks`, by subnet, then in the given order.

    networks, and what to leave out of them: see `collisions`. subnets: how many /24 are planned, two per cable.
    Raises ValueError if `base_range` has no room for them.
    """
    return collisions(planned_subnets(base_range, subnets), networks)


def collisions(subnets: Iterable[IPv4Network], networks: Iterable[tuple[IPv4Network, str]]) -> tuple[Collision, ...]:
    """The collisions of the subnets of a plan's links with `networks`, by subnet, then in the given order.

    networks: routes and connected networks, each with a text that says where it is. Leave out what sits on the very
    device that the plan puts it on: that is the plan carried out, not a collision. A default route never collides.
    """
    others = [(network, where) for network, where in networks if not _is_default(network)]
    return tuple(
        Collision(subnet, network, where) for subnet in subnets for network, where in others if subnet.overlaps(network)
    )


def free_range(networks: Iterable[IPv4Network], subnets: int = 6) -> IPv4Network | None:
    """A private range that overlaps none of `networks`, default routes aside; None if there is none.

    subnets: how many /24 it has room for, at most 256; six give a /21.
    """
    taken = [network for network in networks if not _is_default(network)]
    size = prefix_for(subnets)
    free = (_first_free(first, last, size, taken) for first, last in _PRIVATE)
    return next((network for network in free if network is not None), None)


def _is_default(network: IPv4Network) -> bool:
    # VPN clients override the default route by two halves, 0.0.0.0/1 and 128.0.0.0/1, instead of replacing it.
    return network.prefixlen <= 1


def _first_free(first: IPv4Address, last: IPv4Address, size: int, taken: Sequence[IPv4Network]) -> IPv4Network | None:
    start = int(first)
    while start <= int(last):
        candidate = IPv4Network((start, size))
        hit = next((network for network in taken if candidate.overlaps(network)), None)
        if hit is None:
            return candidate
        # One of the two contains the other; the next range starts after the larger.
        start = 1 + max(int(candidate.broadcast_address), int(hit.broadcast_address))
    return None
