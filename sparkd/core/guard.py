"""What befalls the fabric of this host under a group that has formed: an incident, which ends the epoch for all.

NCCL keeps the addresses and GIDs that it found at its start. After a link has flapped, an address or a route has gone,
or an MTU has changed, it goes on with what no longer is, and hangs sooner or later; so the group is stopped in order,
the fabric is put right and verified, and a new epoch starts. A cable that is out is no incident yet: the engine ends by
itself when it notices, and nothing could start before the cable is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ring_mesh import Plan
from sparkd.core import leaks, links
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Attempt, NetworkFacts, RoceFact, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot


def incident(plan: Plan, node: str, seen: NetworkFacts, began: Attempt) -> str:
    """The first of them as "id: sentence"; empty if there is none. `began` has the ports as they were at the start."""
    return next(_incidents(plan, node, seen, began.flaps, began.foreign), "")


def _incidents(
    plan: Plan, node: str, seen: NetworkFacts, flaps: dict[str, int], foreign: tuple[str, ...]
) -> Iterator[str]:
    by = f", changed by {seen.writer}" if seen.writer else ""
    for end in plan.ends_of(node):
        link = seen.link(end.device)
        if link is None:
            yield f"cx7-functions-missing: {end.device} is gone"
            continue
        moved = link.carrier_changes - flaps.get(end.device, link.carrier_changes)
        if moved > 0 and link.carrier:
            yield f"carrier-flap: the carrier of {end.device} has changed {moved} times since the start"
        if link.mtu != end.mtu:
            yield f"mtu-wrong: the MTU of {end.device} is {link.mtu}, not {end.mtu}"
        if not links.has_address(seen, end):
            yield f"address-lost: {end.address} is no longer on {end.device}{by}"
        elif link.up and not links.connected(seen, end):
            yield f"route-lost: the route to {end.address.network} on {end.device} is gone{by}"
    for route in plan.routes_of(node):
        if not links.has_route(seen, route):
            yield f"route-lost: the route to {route.destination} via {route.gateway} on {route.device} is gone{by}"
    for address, actual, _ in leaks.leaks(plan, node, seen):
        yield f"route-leaks: what is for {address} now goes {actual}{by}"
    # Another address makes another GID, and may move those that are in use.
    for claim in links.foreign(plan, node, seen):
        if f"{claim.device} {claim.address}" not in foreign:
            yield f"address-foreign: {claim.address} has come up on {claim.device}{by}"


def gid_incident(roce: Sequence[RoceFact], began: Attempt) -> str:
    """A GID that is no longer where NCCL found it, as "id: sentence"; empty if there is none, or nobody can tell."""
    there = {fact.hca: fact for fact in roce}
    for hca, gid in began.gids.items():
        index, _, address = gid.partition(" ")
        fact = there.get(hca)
        if fact is None:
            return f"gid-missing: {hca} is gone, and the GID of {address} with it"
        if fact.gid == "":
            return f"gid-missing: the GID of {address} is no longer in {hca}'s table, where it was at index {index}"
        if fact.gid not in (gid, None):
            moved = fact.gid.partition(" ")[0]
            return f"gid-moved: the GID of {address} is at index {moved} of {hca}'s table, not {index} as at the start"
    return ""


def function_lost(seen: HardwareFacts | None, began: Attempt) -> str:
    """A PCI function that was there at the start and is not now, or has had a fatal error, as "id: sentence".

    Its network device may linger. With a fatal error nothing could have started, so it is new.
    """
    if seen is None:
        return ""
    for address, said in seen.broken.items():
        return f"pcie-fatal: the kernel's log says of {address}: {said}"
    if seen.pci is None:
        return ""
    broken = next((function for function in seen.pci.functions if function.fatal), None)
    if broken is not None:
        return f"pcie-fatal: {broken.address} has reported {broken.fatal} fatal PCIe errors"
    gone = began.pci.keys() - {function.address for function in seen.pci.functions}
    return f"cx7-functions-missing: {', '.join(sorted(gone))} no longer on the PCI bus" if gone else ""


def peer_lost(s: Snapshot) -> str:
    """A peer that is silent on both planes, as "peer-lost: sentence"; empty if there is none.

    Silent on management: it was heard before, and the last question got no answer. Silent on the fabric: this host has
    ports that are cabled to it, all of them are dark, and no hello comes from it. The management network alone says
    nothing: it may be gone while the group serves. Nor does a cable alone.
    """
    if isinstance(s.network, Unknown) or isinstance(s.hello, Unknown):
        return ""
    heard = {neighbour.node for neighbour in s.hello.neighbours}
    for peer in s.peers:
        facing = [end for end in s.plan.ends_of(s.node) if s.plan.far_end(end).node == peer.name]
        dark = [end for end in facing if not links.lit(s.network, end)]
        if peer.report is not None and peer.error and peer.name not in heard and facing and len(dark) == len(facing):
            ports = ", ".join(end.device for end in facing)
            return f"peer-lost: {peer.name} does not answer ({peer.error}), and its cables are dark ({ports})"
    return ""
