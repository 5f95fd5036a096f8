"""The fabric of this host: what differs from the plan, what that means, and the changes that put it right."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv4Network

from ring_mesh import FABRIC_DEVICES, PORTS, End, Plan, Route, collisions, free_range
from sparkd.core import findings as catalogue
from sparkd.core import hearing
from sparkd.core.actions import (
    ADDRESS_LABEL,
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
from sparkd.core.checks.network_owners import writer
from sparkd.core.hardware import OwnerFacts
from sparkd.core.model import AddressClaim, EndState, Finding, NetworkFacts, PortBefore, RouteFact

# A host with several ports answers ARP for any of its addresses on any of them unless told otherwise, and a peer would
# learn the wrong port's MAC for an address behind another cable (arp_ignore, arp_announce). Replies to a far address
# come in by the direct cable, which strict reverse-path filtering would drop; the kernel takes the higher of this and
# conf.all, so 2 (loose) holds even where the distribution sets all to 1 (rp_filter).
SETTINGS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}


def label(device: str) -> str:
    return f"{device}:{ADDRESS_LABEL}"


def changes(plan: Plan, node: str, seen: NetworkFacts, *, wanted: bool) -> tuple[FabricChange, ...]:
    """The steps from `seen` to the plan of `node`, or, when not `wanted`, to nothing of ours; () when it is so already.

    Ports are brought up in either case, because only a port that is up can tell whether a cable is there. Routes need
    their gateway on-link, so addresses come before routes and go after them. Additions come before removals.
    """
    ends = [end for end in plan.ends_of(node) if seen.link(end.device) is not None]
    # All ports, also those that the plan does not use: what it is to be depends on what they are cabled to.
    steps: list[FabricChange] = [
        SetUp(port.device) for port in PORTS if (link := seen.link(port.device)) is not None and not link.up
    ]
    for link in seen.links:
        steps += hearing.mend(link)
    routes = plan.routes_of(node) if wanted else ()
    if wanted:
        steps += [SetMtu(end.device, end.mtu) for end in ends if _mtu(seen, end) != end.mtu]
        steps += [
            SetSysctl(end.device, name, value)
            for end in ends
            for name, value in SETTINGS.items()
            if _settings(seen, end.device).get(name) != value
        ]
        for end in ends:
            # The kernel makes the route of an address's own subnet when the address is set, and never again.
            if has_address(seen, end) and not connected(seen, end) and _ours(seen, end) and _link_up(seen, end):
                address = str(end.address)
                steps += [RemoveAddress(end.device, address), AddAddress(end.device, address, label(end.device))]
        steps += [AddAddress(e.device, str(e.address), label(e.device)) for e in ends if not has_address(seen, e)]
        present = {end.device for end in ends}
        steps += [
            AddRoute(str(r.destination), str(r.gateway), r.device, str(r.source))
            for r in routes
            if r.device in present and not has_route(seen, r)
        ]
    planned = {(e.device, str(e.address)) for e in ends} if wanted else set()
    kept = {(f"{r.destination}/32", str(r.gateway), r.device) for r in routes}
    return (*steps, *_without(seen, planned, kept))


def restore(seen: NetworkFacts, before: tuple[PortBefore, ...]) -> tuple[FabricChange, ...]:
    """The steps from `seen` to the ports as sparkd found them."""
    steps = list(_without(seen, set(), set()))
    for port in before:
        link = seen.link(port.device)
        if link is None:
            continue
        changed = [(name, value) for name, value in port.settings.items() if link.settings.get(name) != value]
        steps += [SetSysctl(port.device, name, value) for name, value in changed]
        if link.mtu != port.mtu:
            steps.append(SetMtu(port.device, port.mtu))
        if link.up and not port.up:
            steps.append(SetDown(port.device))
    return tuple(steps)


def claims(node: str, seen: NetworkFacts) -> tuple[AddressClaim, ...]:
    """The addresses on this host's fabric ports that sparkd has not put there."""
    return tuple(
        AddressClaim(node, a.device, a.address)
        for a in seen.addresses
        if a.device in FABRIC_DEVICES and a.label != label(a.device)
    )


def found(seen: NetworkFacts) -> tuple[PortBefore, ...]:
    """The fabric ports as they are now, to be remembered before the first change."""
    ports = [link for link in seen.links if link.device in FABRIC_DEVICES]
    return tuple(PortBefore(link.device, link.up, link.mtu, link.settings) for link in ports)


def _without(
    seen: NetworkFacts, addresses: set[tuple[str, str]], routes: set[tuple[str, str, str]]
) -> Iterator[FabricChange]:
    """The removal of everything with our tag but these: routes first, which an address would take with it."""
    for route in seen.routes:
        if route.protocol == ROUTE_PROTOCOL and (route.destination, route.gateway, route.device) not in routes:
            yield RemoveRoute(route.destination, route.gateway, route.device)
    for a in seen.addresses:
        if a.label == label(a.device) and (a.device, a.address) not in addresses:
            yield RemoveAddress(a.device, a.address)


def ends(plan: Plan, node: str, seen: NetworkFacts) -> tuple[EndState, ...]:
    """The state of each of this host's ends, in the order of ring_mesh.PORTS."""
    routes = plan.routes_of(node)
    return tuple(
        EndState(
            end.device,
            carrier=lit(seen, end),
            verified=lit(seen, end)
            and _mtu(seen, end) == end.mtu
            and has_address(seen, end)
            and connected(seen, end)
            and _settings(seen, end.device).items() >= SETTINGS.items()
            and all(has_route(seen, route) for route in routes if route.device == end.device),
        )
        for end in plan.ends_of(node)
    )


def judge(
    plan: Plan, node: str, seen: NetworkFacts, *, adopt: bool = False, owners: OwnerFacts | None = None
) -> tuple[Finding, ...]:
    """What stands in the way of a start on this host, cables first. Addresses, MTU and routes are sparkd's to mend."""
    found: list[Finding] = []
    for cage in (0, 1):
        found += _judge_cage(plan, node, cage, seen)
    found += _judge_management(plan, node, seen)
    found += _judge_overlap(plan, node, seen)
    if not adopt:
        found += _judge_foreign(plan, node, seen, owners)
    return tuple(found)


def _judge_cage(plan: Plan, node: str, cage: int, seen: NetworkFacts) -> list[Finding]:
    here = [end for end in plan.ends_of(node) if end.port.cage == cage]
    if not here:
        return []
    missing = [end.device for end in here if seen.link(end.device) is None]
    if missing:
        return [catalogue.functions_missing(node, cage, missing)]
    # A port that is down has no carrier to speak of; it is brought up first, and judged then.
    dark = [end.device for end in here if _link_up(seen, end) and not lit(seen, end)]
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
    hits = collisions([link.subnet for link in plan.links], others)
    if not hits:
        return []
    where = ", ".join(dict.fromkeys(hit.where for hit in hits))
    free = free_range([network for network, _ in others], len(plan.links))
    return [catalogue.subnet_overlap(node, str(plan.cluster.base_range), where, str(free) if free else None)]


def _judge_foreign(plan: Plan, node: str, seen: NetworkFacts, owners: OwnerFacts | None) -> list[Finding]:
    """Other addresses on the fabric ports; one that overlaps a planned subnet would draw its traffic."""
    subnets = [link.subnet for link in plan.links]
    found = []
    for claim in foreign(plan, node, seen):
        by = writer(owners, claim.device, claim.address) or seen.writer
        network = IPv4Interface(claim.address).network
        overlapped = next((str(subnet) for subnet in subnets if subnet.overlaps(network)), "")
        found.append(catalogue.address_foreign(node, claim.device, claim.address, by, overlapped))
    return found


def foreign(plan: Plan, node: str, seen: NetworkFacts) -> tuple[AddressClaim, ...]:
    """The addresses on this host's fabric ports that are neither planned nor sparkd's."""
    planned = {(end.device, str(end.address)) for end in plan.ends_of(node)}
    return tuple(claim for claim in claims(node, seen) if (claim.device, claim.address) not in planned)


def _link_up(seen: NetworkFacts, end: End) -> bool:
    link = seen.link(end.device)
    return link is not None and link.up


def lit(seen: NetworkFacts, end: End) -> bool:
    """The end is up and has carrier."""
    link = seen.link(end.device)
    return link is not None and link.up and link.carrier


def _settings(seen: NetworkFacts, device: str) -> dict[str, str]:
    link = seen.link(device)
    return link.settings if link is not None else {}


def _mtu(seen: NetworkFacts, end: End) -> int:
    link = seen.link(end.device)
    return link.mtu if link is not None else 0


def has_address(seen: NetworkFacts, end: End) -> bool:
    return any(a.device == end.device and a.address == str(end.address) for a in seen.addresses)


def connected(seen: NetworkFacts, end: End) -> bool:
    """The route of the end's own subnet is there, without which its neighbour is no gateway."""
    subnet = str(end.address.network)
    return any(r.destination == subnet and r.device == end.device and not r.gateway for r in seen.routes)


def _ours(seen: NetworkFacts, end: End) -> bool:
    return any(a.address == str(end.address) and a.label == label(end.device) for a in seen.addresses)


def has_route(seen: NetworkFacts, route: Route) -> bool:
    wanted = RouteFact(f"{route.destination}/32", route.device, str(route.gateway), str(route.source), ROUTE_PROTOCOL)
    return wanted in seen.routes
