"""Field report route-leaks: the kernel picks another device or source, whatever its routing table says."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core import gates
from sparkd.core.actions import Record
from sparkd.core.decide import decide
from sparkd.core.model import NetworkFacts, RouteFact
from tests.core.builders import PLAN, configured_network, snapshot
from tests.core.test_guard import guarded, whole


def ways(seen: NetworkFacts, *others: RouteFact) -> NetworkFacts:
    """As the plan has it for all addresses but those of `others`."""
    found = {
        str(r.destination): RouteFact(str(r.destination), r.device, "", str(r.source)) for r in PLAN.routes_of("spark1")
    }
    for end in PLAN.ends_of("spark1"):
        far = str(PLAN.far_end(end).address.ip)
        found[far] = RouteFact(far, end.device, "", str(end.address.ip))
    return replace(seen, ways=tuple((found | {other.destination: other for other in others}).values()))


FAR = str(PLAN.routes_of("spark1")[0].destination)
NEAR = str(PLAN.far_end(PLAN.ends_of("spark1")[0]).address.ip)


def test_the_planned_ways_are_fine_and_other_addresses_nobodys_business() -> None:
    seen = ways(configured_network("spark1"), RouteFact("10.99.0.1", "wlP9s9", "", "192.168.1.5"))
    assert gates.own_findings(snapshot(network=seen)) == ()


def test_another_device_or_source_or_no_way_at_all_is_refused() -> None:
    for way, words in (
        (RouteFact(FAR, "wlP9s9", "", "192.168.1.5"), "by wlP9s9 from 192.168.1.5"),
        (RouteFact(FAR, PLAN.routes_of("spark1")[0].device, "", "192.168.77.1"), "from 192.168.77.1"),
        (RouteFact(NEAR, "", "", ""), "nowhere"),
    ):
        (finding,) = gates.own_findings(snapshot(network=ways(configured_network("spark1"), way)))
        assert (finding.id, finding.severity, finding.subject) == ("route-leaks", "refuse", way.destination)
        assert words in finding.observed
        assert finding.expected.startswith("traffic by en")


def test_the_way_of_a_route_that_is_not_there_is_no_fault_of_its_own() -> None:
    seen = ways(configured_network("spark1"), RouteFact(FAR, "enP7s7", "", "192.168.77.1"))
    seen = replace(seen, routes=tuple(r for r in seen.routes if r.destination != f"{FAR}/32"))
    assert gates.own_findings(snapshot(network=seen)) == ()


def test_under_a_group_it_is_an_incident() -> None:
    assert decide(guarded(ways(whole()))).actions == ()
    record = decide(guarded(ways(whole(), RouteFact(FAR, "wlP9s9", "", "192.168.1.5")))).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident == f"route-leaks: what is for {FAR} now goes by wlP9s9 from 192.168.1.5"
