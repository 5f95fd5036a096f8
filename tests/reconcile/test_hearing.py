"""A port that has lost its fe80:: address: put right while no rank runs, and told until then."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core import gates, links
from sparkd.core.decide import decide
from sparkd.core.model import HelloFacts, PortBefore
from tests.core.builders import PLAN, configured_network, running, snapshot
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until

DEVICE = "enp1s0f0np0"


@in_loop
async def test_a_flushed_port_is_heard_again_and_the_ring_can_start() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        ring["spark2"].links.flush_link_local(DEVICE)
        await until(lambda: any("sysctls" in event.text for event in ring["spark2"].events.since(0, 500).events))
        await ring.quiet()
        await ring.up()


def test_a_port_without_the_address_holds_a_start_up_and_is_not_blamed_for_its_cable() -> None:
    seen = configured_network("spark1")
    dumb = tuple(replace(link, link_local=link.device != DEVICE) for link in seen.links)
    s = snapshot(network=replace(seen, links=dumb))
    assert isinstance(s.hello, HelloFacts)
    s = replace(s, hello=replace(s.hello, neighbours=()))
    about = [finding for finding in gates.own_findings(s) if finding.subject in (DEVICE, "port 0")]
    assert [(finding.id, finding.severity, finding.subject) for finding in about] == [
        ("link-local-missing", "repair", DEVICE)
    ]


def test_nothing_is_changed_under_a_rank() -> None:
    seen = configured_network("spark1")
    dumb = tuple(
        replace(link, link_local=link.device != DEVICE, settings=link.settings | {"addr_gen_mode": "1"})
        for link in seen.links
    )
    s = snapshot(network=replace(seen, links=dumb), units=(running(text="init", active="activating"),))
    assert not any("addr_gen_mode" in str(action) for action in decide(s).actions)
    assert any("addr_gen_mode" in str(action) for action in decide(replace(s, units=())).actions)


def test_the_mode_is_as_it_was_once_the_port_is_given_back() -> None:
    seen = configured_network("spark1")
    before = PortBefore(DEVICE, True, 9000, {"addr_gen_mode": "1"})
    changed = tuple(replace(link, settings=link.settings | {"addr_gen_mode": "0"}) for link in seen.links)
    steps = links.restore(replace(seen, links=changed), (before,))
    assert any(getattr(step, "name", "") == "addr_gen_mode" and getattr(step, "value", "") == "1" for step in steps)
    assert links.changes(PLAN, "spark1", replace(seen, links=changed), wanted=True) == ()
