"""Traffic to fabric addresses that the kernel would send another way than the plan's, though its routes are there.

A rule of `ip rule` with a table of its own, as VPNs and policy routing make, comes before the main table and is seen in
no list of its routes. So the kernel is asked, for each address that sparkd has a route or a subnet to.
"""

from __future__ import annotations

from collections.abc import Iterator

from ring_mesh import Plan
from sparkd.core import links
from sparkd.core.model import Finding, NetworkFacts


def leaks(plan: Plan, node: str, seen: NetworkFacts) -> Iterator[tuple[str, str, str]]:
    """(address, the way it goes, the way it should go), in words. A route that is not there is a fault of its own."""
    routes = (route for route in plan.routes_of(node) if links.has_route(seen, route))
    wanted = {str(route.destination): (route.device, str(route.source)) for route in routes}
    for end in plan.ends_of(node):
        if links.connected(seen, end):
            wanted[str(plan.far_end(end).address.ip)] = (end.device, str(end.address.ip))
    for way in seen.ways:
        device, source = wanted.get(way.destination, (way.device, way.source))
        if (way.device, way.source) != (device, source):
            actual = f"by {way.device} from {way.source or '?'}" if way.device else "nowhere"
            yield way.destination, actual, f"by {device} from {source}"


def judge(plan: Plan, node: str, seen: NetworkFacts) -> Iterator[Finding]:
    for address, actual, expected in leaks(plan, node, seen):
        yield Finding(
            "route-leaks",
            node,
            "refuse",
            address,
            f"the kernel sends what is for {address} {actual}, though the planned route is there",
            f"traffic {expected}",
            f"ip rule show, ip route get {address}: take the rule away that comes before the main table, or exempt the "
            "fabric's subnets from it",
        )
