"""What the facts of this host say against a start: every finding, each from its own part of the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ring_mesh import AdoptError
from sparkd.core import boots, cabling, checks, doctor, leaks, links, settle
from sparkd.core import findings as catalogue
from sparkd.core.model import Finding, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot


def own(s: Snapshot) -> tuple[Finding, ...]:
    found: list[Finding] = [
        catalogue.source_unknown(s.node, name, fact.why) for name, fact in _sources(s) if isinstance(fact, Unknown)
    ]
    if (settling := settle.finding(s)) is not None:
        found.append(settling)
    if (reset := boots.finding(s)) is not None:
        found.append(reset)
    if s.memory.released:
        found.append(catalogue.fabric_released(s.node))
    if not isinstance(s.network, Unknown):
        owners = s.hardware.owners if s.hardware is not None else None
        found += links.judge(s.plan, s.node, s.network, adopt=s.policy.adopt, owners=owners)
        found += leaks.judge(s.plan, s.node, s.network)
        if not isinstance(s.hello, Unknown):
            found += cabling.judge(s.cluster, s.node, s.network, s.hello, s.heard)
    found += [finding for finding in unfit_addresses(s) if finding.node == s.node]
    # What netlink shows is fresher than what the periodic look at the hardware saw of the same thing.
    known = {finding.id for finding in found}
    found += [finding for finding in checks.findings(doctor.examine(s)) if finding.id not in known]
    return tuple(found)


def unfit_addresses(s: Snapshot) -> tuple[Finding, ...]:
    """What keeps the addresses that hosts have from being adopted, on any of them."""
    if not s.policy.adopt or not s.cables or s.intent.want == "up":
        return ()
    try:
        cabling.adopted(s.cluster, cabling.parse(s.cables), s.claims)
    except AdoptError as error:
        return tuple(catalogue.address_unfit(p.node, p.device, p.found, p.expected) for p in error.addresses)
    return ()


def _sources(s: Snapshot) -> Iterator[tuple[str, object]]:
    yield "systemd", s.units
    yield "network", s.network
    yield "rdma", s.roce
    yield "host", s.host
    yield "hello", s.hello
