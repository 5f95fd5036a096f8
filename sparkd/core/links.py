"""The fabric of this host: what differs from the plan, what that means, and the changes that put it right."""

from __future__ import annotations

from ipaddress import IPv4Network

from ring_mesh import FABRIC_DEVICES, End, Plan, Route, free_range, overlaps
from sparkd.core import findings as catalogue
from sparkd.core.actions import (
    ADDRESS_LABEL,
    ROUTE_PROTOCOL,
    AddAddress,
    AddRoute,
    FabricChange,
    RemoveAddress,
    RemoveRoute,
    SetMtu,
    SetUp,
)
from sparkd.core.model import EndState, Finding, NetworkFacts, RouteFact


def label(device: str) -> str:
    return f"{device}:{ADDRESS_LABEL}"


def changes(plan: Plan, node: str, seen: NetworkFacts, *, wanted: bool) -> tuple[FabricChange, ...]:
    """The steps from `seen` to the plan of `node`, or, when not `wanted`, to nothing of ours; () when it is so already.

    Ports are brought up in either case, because only a port that is up can tell whether a cable is there. Routes need
    their gateway on-link, so addresses come before routes and go after them. Additions come before removals.
    """
    ends = [end for end in plan.ends_of(node) if seen.link(end.device) is not None]
    steps: list[FabricChange] = [SetUp(end.device) for end in ends if not _link_up(seen, end)]
    routes = plan.routes_of(node) if wanted else ()
    if wanted:
        steps += [SetMtu(end.device, end.mtu) for end in ends if _mtu(seen, end) != end.mtu]
        steps += [AddAddress(e.device, str(e.address), label(e.device)) for e in ends if not _has_address(seen, e)]
        present = {end.device for end in ends}
        steps += [
            AddRoute(str(r.destination), str(r.gateway), r.device, str(r.source))
            for r in routes
            if r.device in present and not _has_route(seen, r)
        ]
    planned_routes = {(f"{r.destination}/32", str(r.gateway), r.device) for r in routes}
    steps += [
        RemoveRoute(r.destination, r.gateway, r.device)
        for r in seen.routes
        if r.protocol == ROUTE_PROTOCOL and (r.destination, r.gateway, r.device) not in planned_routes
    ]
    planned = {(end.device, str(end.address)) for end in ends} if wanted else set()
    steps += [
        RemoveAddress(a.device, a.address)
        for a in seen.addresses
        if a.label == label(a.device) and (a.device, a.address) not in planned
    ]
    return tuple(steps)


def ends(plan: Plan, node: str, seen: NetworkFacts) -> tuple[EndState, ...]:
    """The state of each of this host's ends, in the order of ring_mesh.PORTS."""
    routes = plan.routes_of(node)
    return tuple(
        EndState(
            end.device,
            carrier=_carrier(seen, end),
            verified=_carrier(seen, end)
            and _mtu(seen, end) == end.mtu
            and _has_address(seen, end)
            and all(_has_route(seen, route) for route in routes if route.device == end.device),
        )
        for end in plan.ends_of(node)
    )


def judge(plan: Plan, node: str, seen: NetworkFacts) -> tuple[Finding, ...]:
    """What stands in the way of a start on this host, cables first. Addresses, MTU and routes are sparkd's to mend."""
    found: list[Finding] = []
    for cage in (0, 1):
        found += _judge_cage(plan, node, cage, seen)
    found += _judge_management(plan, node, seen)
    found += _judge_overlap(plan, node, seen)
    found += _judge_foreign(plan, node, seen)
    return tuple(found)


def _judge_cage(plan: Plan, node: str, cage: int, seen: NetworkFacts) -> list[Finding]:
    here = [end for end in plan.ends_of(node) if end.port.cage == cage]
    missing = [end.device for end in here if seen.link(end.device) is None]
    if missing:
        return [catalogue.functions_missing(node, cage, missing)]
    # A port that is down has no carrier to speak of; it is brought up first, and judged then.
    dark = [end.device for end in here if _link_up(seen, end) and not _carrier(seen, end)]
    if not dark:
        return []
    far = plan.far_end(here[0])
    return [catalogue.cable_missing(node, cage, dark, len(here), far.node, far.port.cage)]


def _judge_management(plan: Plan, node: str, seen: NetworkFacts) -> list[Finding]:
    me = plan.cluster.node(node)
    holders = [a.device for a in seen.addresses if a.address.split("/")[0] == str(me.address)]
    if me.management_interface in holders:
        return []
    return [catalogue.management_address(node, me.management_interface, str(me.address), holders)]


def _judge_overlap(plan: Plan, node: str, seen: NetworkFacts) -> list[Finding]:
    others = [
        (IPv4Network(route.destination), f"{route.destination} on {route.device}")
        for route in seen.routes
        if route.device not in FABRIC_DEVICES
    ]
    collisions = overlaps(plan.cluster.base_range, others)
    if not collisions:
        return []
    where = ", ".join(dict.fromkeys(collision.where for collision in collisions))
    free = free_range(network for network, _ in others)
    return [catalogue.subnet_overlap(node, str(plan.cluster.base_range), where, str(free) if free else None)]


def _judge_foreign(plan: Plan, node: str, seen: NetworkFacts) -> list[Finding]:
    planned = {(end.device, str(end.address)) for end in plan.ends_of(node)}
    return [
        catalogue.address_foreign(node, a.device, a.address)
        for a in seen.addresses
        if a.device in FABRIC_DEVICES and a.label != label(a.device) and (a.device, a.address) not in planned
    ]


def _link_up(seen: NetworkFacts, end: End) -> bool:
    link = seen.link(end.device)
    return link is not None and link.up


def _carrier(seen: NetworkFacts, end: End) -> bool:
    link = seen.link(end.device)
    return link is not None and link.up and link.carrier


def _mtu(seen: NetworkFacts, end: End) -> int:
    link = seen.link(end.device)
    return link.mtu if link is not None else 0


def _has_address(seen: NetworkFacts, end: End) -> bool:
    return any(a.device == end.device and a.address == str(end.address) for a in seen.addresses)


def _has_route(seen: NetworkFacts, route: Route) -> bool:
    wanted = RouteFact(f"{route.destination}/32", route.device, str(route.gateway), str(route.source), ROUTE_PROTOCOL)
    return wanted in seen.routes
