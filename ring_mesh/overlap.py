"""Collisions of the planned subnets with other networks of a host."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from ring_mesh.plan import planned_subnets

_PRIVATE = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
_FIRST = IPv4Network("10.77.0.0/21")


@dataclass(frozen=True)
class Collision:
    """A planned subnet and a network of the host that share addresses. where: what the caller calls that network."""

    subnet: IPv4Network
    network: IPv4Network
    where: str


def overlaps(base_range: IPv4Network, networks: Iterable[tuple[IPv4Network, str]]) -> tuple[Collision, ...]:
    """The collisions of the six /24 planned in `base_range` with `networks`, by subnet, then in the given order.

    networks: routes and connected networks, each with a text that says where it is. Leave out what sits on the very
    device that the plan puts it on: that is the plan carried out, not a collision. A default route never collides.
    Raises ValueError if `base_range` has no room for six /24.
    """
    others = [(network, where) for network, where in networks if not _is_default(network)]
    return tuple(
        Collision(subnet, network, where)
        for subnet in planned_subnets(base_range)
        for network, where in others
        if subnet.overlaps(network)
    )


def free_range(networks: Iterable[IPv4Network]) -> IPv4Network | None:
    """A private /21 that overlaps none of `networks`, default routes aside; None if there is none."""
    taken = [network for network in networks if not _is_default(network)]
    return next((range_ for range_ in _candidates() if not any(range_.overlaps(network) for network in taken)), None)


def _is_default(network: IPv4Network) -> bool:
    # VPN clients override the default route by two halves, 0.0.0.0/1 and 128.0.0.0/1, instead of replacing it.
    return network.prefixlen <= 1


def _candidates() -> Iterator[IPv4Network]:
    # The lowest networks of 10/8 come last: they are the ones that a site most often uses behind its router, where
    # this host cannot see them.
    ranges = [subnet for private in _PRIVATE for subnet in private.subnets(new_prefix=21)]
    start = ranges.index(_FIRST)
    yield from ranges[start:]
    yield from ranges[:start]
