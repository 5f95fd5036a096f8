"""A plan out of the addresses that the hosts already have, where they can serve."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from ring_mesh.cabling import CablePair, Cabling
from ring_mesh.cluster import Cluster, PlanError, Problem
from ring_mesh.plan import Plan, assemble, ordered_cables
from ring_mesh.ports import PORTS, Port

LENGTHS = range(24, 32)
"""Prefix lengths that a link may have. A /31 has no network and broadcast address: both of its addresses are hosts."""

# RFC 3927: what a port without a DHCP server gives itself, on all ports in the same network.
_AUTOMATIC = IPv4Network("169.254.0.0/16")
_ONE = f"one address with a prefix length of {LENGTHS[0]} to {LENGTHS[-1]}"


@dataclass(frozen=True)
class AddressProblem(Problem):
    """One address that cannot serve, or that is not there. key: node and device in words."""

    node: str
    device: str


class AdoptError(PlanError):
    """The addresses break the rules of `adopt`. Each of `problems` is an AddressProblem."""

    def __init__(self, problems: Iterable[AddressProblem]) -> None:
        self.addresses: tuple[AddressProblem, ...] = tuple(problems)
        super().__init__(self.addresses)


@dataclass(frozen=True)
class _Seat:
    """Where an end of a link will be."""

    node: str
    port: Port

    @property
    def device(self) -> str:
        return self.port.device

    def __str__(self) -> str:
        return f"{self.node} {self.device}"

    def problem(self, found: object, expected: str) -> AddressProblem:
        return AddressProblem(str(self), str(found), expected, self.node, self.device)


_Pair = tuple[_Seat, _Seat]
_Chosen = Mapping[_Seat, IPv4Interface]


def adopt(cluster: Cluster, cabling: Cabling | None, found: Mapping[tuple[str, str], Sequence[IPv4Interface]]) -> Plan:
    """The plan of that cabling with the addresses that are there, wherever they are from; `base_range` says nothing.

    found: the addresses on each fabric port, by node and network device; a port that is not a key has none. Passed
    over are addresses that no link can use: /32, those that a port gave itself (169.254.0.0/16), loopback and
    multicast. Of the rest each port of a cable must have exactly one, of a /24 to /31 without a management address.
    The two ends of a link must be different hosts of one subnet; the subnets of any two links must be disjoint,
    because NCCL chooses the device by the subnet; and all must have one length, because NCCL has one
    NCCL_IB_SUBNET_PREFIX_LEN for all.

    The addresses of a plan are adopted as that plan. Raises AdoptError with every violation; ClusterError and
    CablingError as `plan` does.
    """
    cables = ordered_cables(cluster, cabling)
    pairs = [_seats(cable, twin) for cable in cables for twin in (0, 1)]
    chosen: dict[_Seat, IPv4Interface] = {}
    problems: list[AddressProblem] = []
    for seat in (seat for pair in pairs for seat in pair):
        answer = _choose(cluster, seat, found.get((seat.node, seat.device), ()))
        if isinstance(answer, AddressProblem):
            problems.append(answer)
        else:
            chosen[seat] = answer
    problems += [*_lengths(chosen), *_links(pairs, chosen), *_duplicates(chosen)]
    if problems:
        raise AdoptError(problems)
    return assemble(cluster, cables, lambda _link, node, port: chosen[_Seat(node, port)])


def _seats(cable: CablePair, twin: int) -> _Pair:
    first, second = (_Seat(socket.node, PORTS[2 * socket.cage + twin]) for socket in cable)
    return first, second


def _choose(cluster: Cluster, seat: _Seat, addresses: Sequence[IPv4Interface]) -> IPv4Interface | AddressProblem:
    usable = [address for address in dict.fromkeys(addresses) if _may_serve(address)]
    if len(usable) != 1:
        return seat.problem(_listed(usable or addresses), _ONE)
    (address,) = usable
    network = address.network
    if network.prefixlen not in LENGTHS:
        return seat.problem(address, _ONE)
    if network.prefixlen < 31 and address.ip in (network.network_address, network.broadcast_address):
        kind = "network" if address.ip == network.network_address else "broadcast"
        return seat.problem(f"{address}, the {kind} address of {network}", "the address of a host")
    for node in cluster.nodes:
        if node.address in network:
            found = f"{address}, in whose network {node.name} has its management address {node.address}"
            return seat.problem(found, "a network of the fabric alone")
    return address


def _may_serve(address: IPv4Interface) -> bool:
    ip = IPv4Address(address.ip)
    no_host = ip.is_loopback or ip.is_multicast or ip.is_unspecified
    return not (no_host or address.network.prefixlen == 32 or address.network == _AUTOMATIC)


def _lengths(chosen: _Chosen) -> Iterator[AddressProblem]:
    lengths = Counter(address.network.prefixlen for address in chosen.values())
    usual = lengths.most_common(1)[0][0] if lengths else 0
    for seat, address in chosen.items():
        if address.network.prefixlen != usual:
            yield seat.problem(address, f"/{usual}, the prefix length of most ports: NCCL has one for all")


def _links(pairs: Sequence[_Pair], chosen: _Chosen) -> Iterator[AddressProblem]:
    earlier: list[tuple[IPv4Network, _Pair]] = []
    for pair in pairs:
        first, second = pair
        if first not in chosen or second not in chosen:
            continue
        network, other = chosen[first].network, chosen[second].network
        if network != other:
            # Two lengths on one link are a problem already.
            if network.prefixlen == other.prefixlen:
                expected = f"an address in {network}, like {chosen[first].ip} at the far end, {first}"
                yield second.problem(chosen[second], expected)
            continue
        for taken, (a, b) in earlier:
            if taken.overlaps(network):
                twins = {a.node, b.node} == {first.node, second.node}
                where = f"{a.device} and {b.device} between the same nodes" if twins else f"{a} and {b}"
                found = f"{chosen[first]}, which overlaps {taken} of {where}"
                yield first.problem(found, "a subnet of its own for each link")
                break
        earlier.append((network, pair))


def _duplicates(chosen: _Chosen) -> Iterator[AddressProblem]:
    holders: dict[IPv4Address, _Seat] = {}
    for seat, address in chosen.items():
        holder = holders.setdefault(address.ip, seat)
        if holder != seat:
            yield seat.problem(f"{address}, which {holder} has as well", "an address that no other port has")


def _listed(addresses: Sequence[IPv4Interface]) -> str:
    return ", ".join(str(address) for address in addresses) or "no address"
