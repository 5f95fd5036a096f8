"""Snapshots for tests of the core: a healthy triangle, from which each test takes one thing away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

from ring_mesh import FABRIC_DEVICES, PORTS, Cabling, Cluster, Socket, by_order, parse_cluster, plan
from sparkd.core import links
from sparkd.core.actions import (
    ROUTE_PROTOCOL,
    AddAddress,
    AddRoute,
    FabricChange,
    RemoveAddress,
    RemoveRoute,
    SetDown,
    SetMtu,
    SetSysctl,
    SetUp,
)
from sparkd.core.cabling import names
from sparkd.core.model import (
    AddressFact,
    Attempt,
    FabricMemory,
    HelloFacts,
    HostFacts,
    Intent,
    LinkFact,
    Neighbour,
    NetworkFacts,
    PeerView,
    RankUnit,
    Report,
    RouteFact,
)
from sparkd.core.railfacts import RailFact
from sparkd.core.snapshot import Policy, Snapshot

NODES = ("spark1", "spark2", "spark3")
NOW = 1_700_000_000.0


def cluster_of(names: Sequence[str]) -> Cluster:
    return parse_cluster(
        {
            "name": "test",
            "base_range": "10.77.0.0/21",
            "node": [
                {"name": name, "rank": rank, "address": f"192.168.77.{rank + 1}"} for rank, name in enumerate(names)
            ],
        }
    )


CLUSTER = cluster_of(NODES)
PLAN = plan(CLUSTER)
CABLING = by_order(NODES)
CABLES = names(CABLING)


def hears(node: str, cabling: Cabling = CABLING) -> HelloFacts:
    """What the ports of `node` hear over those cables."""
    found = []
    for port in PORTS:
        for far in cabling.far(Socket(node, port.cage)):
            remote = next(p.device for p in PORTS if (p.cage, p.domain) == (far.cage, port.domain))
            found.append(Neighbour(port.device, far.node, f"id-{far.node}", remote, "test"))
    return HelloFacts(f"id-{node}", tuple(found), settled=tuple(port.device for port in PORTS))


DEFAULTS = {"arp_ignore": "0", "arp_announce": "0", "rp_filter": "1"}


def bare_network(node: str, cluster: Cluster = CLUSTER) -> NetworkFacts:
    """Cables in, ports down, nothing configured but management."""
    me = cluster.node(node).address
    fabric = tuple(
        LinkFact(device, up=False, carrier=False, mtu=1500, settings=DEFAULTS) for device in sorted(FABRIC_DEVICES)
    )
    return NetworkFacts(
        (LinkFact("enP7s7", up=True, carrier=True, mtu=1500), *fabric),
        (AddressFact("enP7s7", f"{me}/24", "enP7s7"),),
        (RouteFact("192.168.77.0/24", "enP7s7", source=str(me), protocol=2),),
    )


def configured_network(node: str) -> NetworkFacts:
    seen = bare_network(node)
    for _ in range(3):
        for change in links.changes(PLAN, node, seen, wanted=True):
            seen = applied(seen, change)
    return seen


def applied(seen: NetworkFacts, change: FabricChange) -> NetworkFacts:
    """What the kernel shows after a change. Refuses a route whose gateway no address of the device reaches."""
    match change:
        case SetUp(device):
            return _with_link(seen, device, up=True, carrier=True)
        case SetDown(device):
            return _with_link(seen, device, up=False, carrier=False)
        case SetSysctl(device, name, value):
            link = seen.link(device)
            assert link is not None, f"there is no {device}"
            return _with_link(seen, device, settings=link.settings | {name: value})
        case SetMtu(device, mtu):
            return _with_link(seen, device, mtu=mtu)
        case AddAddress(device, address, label):
            interface = IPv4Interface(address)
            connected = RouteFact(str(interface.network), device, "", str(interface.ip), 2)
            return replace(
                seen,
                addresses=(*seen.addresses, AddressFact(device, address, label)),
                routes=seen.routes if connected in seen.routes else (*seen.routes, connected),
            )
        case RemoveAddress(device, address):
            kept = tuple(a for a in seen.addresses if (a.device, a.address) != (device, address))
            source = address.partition("/")[0]
            return replace(seen, addresses=kept, routes=tuple(r for r in seen.routes if r.source != source))
        case AddRoute(destination, gateway, device, source):
            prefix = gateway.rpartition(".")[0]
            if not any(a.device == device and a.address.startswith(prefix) for a in seen.addresses):
                raise AssertionError(f"the kernel refuses {change}: network is unreachable")
            route = RouteFact(f"{destination}/32", device, gateway, source, ROUTE_PROTOCOL)
            return replace(seen, routes=(*seen.routes, route))
        case RemoveRoute(destination, gateway, device):
            gone = (destination, gateway, device)
            kept_routes = tuple(r for r in seen.routes if (r.destination, r.gateway, r.device) != gone)
            assert len(kept_routes) < len(seen.routes), f"the kernel has no {change}"
            return replace(seen, routes=kept_routes)


def _with_link(seen: NetworkFacts, device: str, **changed: Any) -> NetworkFacts:
    return replace(seen, links=tuple(replace(x, **changed) if x.device == device else x for x in seen.links))


def report(node: str, intent: Intent, **changed: Any) -> Report:
    values: dict[str, Any] = {
        "node": node,
        "instance": "one",
        "sequence": 1,
        "boot_id": f"boot-{node}",
        "version": "0.1.0",
        "wire": 1,
        "intent": intent,
        "units": (),
        "ends": links.ends(PLAN, node, configured_network(node)),
        "digests": {"cluster": "same"},
        "neighbours": hears(node).neighbours,
    }
    return Report(**(values | changed))


def peer(node: str, intent: Intent, age: float = 0.5, **changed: Any) -> PeerView:
    return PeerView(node, report(node, intent, **changed), age)


def snapshot(node: str = "spark1", **changed: Any) -> Snapshot:
    """By default: every gate is open and the ring is to be up at epoch 7, nothing tried yet."""
    intent = changed.pop("intent", Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES))
    values: dict[str, Any] = {
        "now": NOW,
        "node": node,
        "cluster": CLUSTER,
        "policy": Policy(),
        "intent": intent,
        "host": HostFacts(f"boot-{node}"),
        "units": (),
        "network": configured_network(node),
        "roce": (),
        "hello": hears(node),
        "memory": FabricMemory(f"boot-{node}", links.found(bare_network(node))),
        "peers": tuple(peer(name, intent) for name in NODES if name != node),
        "digests": {"cluster": "same"},
    }
    return Snapshot(**(values | changed))


def rail_facts(node: str, gbps: float = 98.0, **changed: Any) -> tuple[RailFact, ...]:
    """All rails of a node as measured; `changed`: values of other fields, in all of them."""
    found = []
    for end in PLAN.ends_of(node):
        far = PLAN.far_end(end)
        fact = RailFact(end.device, far.node, far.device, gbps, "rdma", True, boot_id=f"boot-{node}", at=1.0)
        found.append(replace(fact, **changed))
    return tuple(found)


def running(epoch: int = 7, text: str = "ready canary 1", active: str = "active") -> RankUnit:
    return RankUnit(epoch, active, "running", main_pid=100 + epoch, text=text)


def attempt(node: str, epoch: int = 7, **changed: Any) -> Attempt:
    return replace(Attempt(epoch, f"boot-{node}", NOW - 10), **changed)


def with_peer(s: Snapshot, changed: PeerView) -> Snapshot:
    return replace(s, peers=tuple(changed if p.name == changed.name else p for p in s.peers))
