"""Which port is cabled to which, as the ports themselves hear it, and what is wrong with a cable.

A hello tells on a port which node and port sent it. One host knows the far ends of its own cables; all reports
together give the ring. A ring of three or more needs each cable to go from a port 0 to a port 1: between equal ports
NCCL pairs devices that are not on one cable, and hangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Interface

from ring_mesh import PORTS, Cabling, Cluster, Plan, Port, Socket, adopt, plan, ring_order
from sparkd.core import findings as catalogue
from sparkd.core import hearing
from sparkd.core.facts import HelloFacts, Neighbour, NetworkFacts
from sparkd.core.model import AddressClaim, Finding, PeerView

_BY_DEVICE = {port.device: port for port in PORTS}
Heard = Mapping[str, Sequence[Neighbour]]
"""What each node hears, by node name."""


@lru_cache(maxsize=16)
def plan_of(cluster: Cluster, cables: tuple[str, ...], addresses: tuple[AddressClaim, ...] = ()) -> Plan:
    """The plan over those cables and with those addresses; over the default cabling if they cannot be one."""
    if not cables:
        return plan(cluster)
    try:
        if addresses:
            return adopted(cluster, parse(cables), addresses)
        return plan(cluster, parse(cables))
    except ValueError:  # of which the errors of ring_mesh are some
        return plan(cluster)


def adopted(cluster: Cluster, cabling: Cabling, addresses: Iterable[AddressClaim]) -> Plan:
    """The plan with the addresses that the hosts have. Raises AdoptError."""
    found: dict[tuple[str, str], list[IPv4Interface]] = {}
    for claim in addresses:
        found.setdefault((claim.node, claim.device), []).append(IPv4Interface(claim.address))
    return adopt(cluster, cabling, found)


def parse(cables: Iterable[str]) -> Cabling:
    """The inverse of `names`. Raises ValueError for a text that is no cable."""
    pairs = []
    for cable in cables:
        one, _, other = cable.partition("~")
        pairs.append((_socket(one), _socket(other)))
    return Cabling(tuple(pairs))


def names(cabling: Cabling) -> tuple[str, ...]:
    """Each cable as "spark1.0~spark2.1"; a node's name has neither dot nor tilde."""
    return tuple(f"{a.node}.{a.cage}~{b.node}.{b.cage}" for a, b in cabling.cables)


def _socket(text: str) -> Socket:
    node, _, cage = text.rpartition(".")
    return Socket(node, int(cage))


def heard(node: str, own: HelloFacts | None, peers: Iterable[PeerView]) -> dict[str, Sequence[Neighbour]]:
    """What every host hears, as far as this one knows."""
    known: dict[str, Sequence[Neighbour]] = {node: own.neighbours} if own is not None else {}
    for peer in peers:
        if peer.report is not None and peer.report.neighbours is not None:
            known[peer.name] = peer.report.neighbours
    return known


def far_sockets(known: Heard) -> dict[Socket, Socket]:
    """The far end of each socket on which both PCI functions hear the same port of a member, and nobody else."""
    found = {}
    for node, neighbours in known.items():
        for cage in (0, 1):
            ends = {_remote(n) for n in neighbours if n.ours and _cage(n) == cage}
            on = {n.device for n in neighbours if _cage(n) == cage}
            if len(ends) == 1 and len(on) == 2:
                end = ends.pop()
                if end is not None:
                    found[Socket(node, cage)] = end
    return found


def discovered(cluster: Cluster, known: Heard) -> Cabling:
    """The cabling. Raises CablingError while not every cable is seen from both ends, or they make no ring of all."""
    far = far_sockets(known)
    cabling = Cabling(tuple((near, end) for near, end in far.items() if far.get(end) == near))
    ring_order(cabling, [node.name for node in cluster.nodes])
    return cabling


def judge(cluster: Cluster, node: str, seen: NetworkFacts, own: HelloFacts, known: Heard) -> Iterator[Finding]:
    """What is wrong with the cables of this host's ports that have carrier."""
    for device in own.deaf:
        yield hearing.port_deaf(node, device)
    mute = [link.device for link in seen.links if not link.link_local and link.device not in own.deaf]
    for device in mute:
        yield hearing.link_local_missing(node, device)
    for n in own.neighbours:
        others = [m for m in own.neighbours if m.node_id == n.node_id and m.boot != n.boot and m.ours]
        if n.ours and n.node_id != own.node_id and others:
            yield hearing.node_id_twice(node, n.device, n, others[0])
    for cage in (0, 1):
        lit = [port.device for port in PORTS if port.cage == cage and _lit(seen, port.device)]
        lit = [device for device in lit if device not in own.deaf and device not in mute]
        if len(lit) == 2:
            yield from _judge_cage(cluster, node, cage, lit, own, known)


def _judge_cage(
    cluster: Cluster, node: str, cage: int, lit: list[str], own: HelloFacts, known: Heard
) -> Iterator[Finding]:
    here = [n for n in own.neighbours if n.device in lit]
    strangers = [n for n in here if not n.ours]
    doubles = [n for n in here if n.ours and n.node == node and n.node_id != own.node_id]
    loops = [n for n in here if n.ours and n.node_id == own.node_id]
    copies = [n for n in loops if n.boot != own.boot or (n.mac and own.macs and n.mac not in own.macs)]
    if strangers:
        yield catalogue.cable_foreign(node, cage, strangers[0].node, strangers[0].cluster)
    elif copies:
        yield hearing.node_id_twice(node, f"port {cage}", copies[0], None)
    elif doubles:
        yield catalogue.name_clash(node, cage, doubles[0].remote)
    elif loops:
        yield catalogue.cable_loop(node, cage, loops[0].remote)
    elif len(here) > len({n.device for n in here}):
        yield catalogue.cable_shared(node, cage, sorted({n.node for n in here}))
    elif len({n.device for n in here}) < 2:
        silent = [device for device in lit if device not in {n.device for n in here}]
        if set(silent) <= set(own.settled):
            yield catalogue.cable_silent(node, cage, silent, [_told(n) for n in here])
        else:
            yield catalogue.cable_unheard(node, cage, silent)
    elif len({_remote(n) for n in here}) > 1 or any(_domain(n.device) != _domain(n.remote) for n in here):
        yield catalogue.twins_split(node, cage, [f"{n.device} reaches {_told(n)}" for n in here])
    elif len(cluster.nodes) > 2 and (end := _remote(here[0])) is not None and end.cage == cage:
        yield catalogue.cable_same_port(node, cage, end.node, _swap_at(node, end.node, known))


def _swap_at(node: str, other: str, known: Heard) -> str:
    """The node at which both cables end in equal ports: exchanging its two plugs mends both. Empty if there is none."""
    far = far_sockets(known)
    for name in sorted((node, other)):
        ends = [far.get(Socket(name, cage)) for cage in (0, 1)]
        if all(end is not None and end.cage == cage for cage, end in enumerate(ends)):
            return name
    return ""


def _cage(neighbour: Neighbour) -> int | None:
    port = _BY_DEVICE.get(neighbour.device)
    return port.cage if port else None


def _remote(neighbour: Neighbour) -> Socket | None:
    port = _BY_DEVICE.get(neighbour.remote)
    return Socket(neighbour.node, port.cage) if port else None


def _domain(device: str) -> str | None:
    port: Port | None = _BY_DEVICE.get(device)
    return port.domain if port else None


def _told(neighbour: Neighbour) -> str:
    end = _remote(neighbour)
    return f"{end.node} port {end.cage} ({neighbour.remote})" if end else f"{neighbour.node} {neighbour.remote}"


def _lit(seen: NetworkFacts, device: str) -> bool:
    link = seen.link(device)
    return link is not None and link.up and link.carrier
