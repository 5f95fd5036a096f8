"""Which measurements count, when rails are measured, and what their rates mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ring_mesh import by_order, parse_cluster, plan
from sparkd.core import gates, rails
from sparkd.core.actions import Measure, StartRank, StopMeasuring
from sparkd.core.cabling import names
from sparkd.core.decide import decide
from sparkd.core.intent import Accepted, Refused, accept
from sparkd.core.model import Finding, Intent, RoceFact, Unknown
from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts, RailPolicy
from sparkd.core.rails import Rail
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import (
    CABLES,
    NODES,
    NOW,
    PLAN,
    attempt,
    peer,
    rail_facts,
    report,
    running,
    snapshot,
    with_peer,
)

POLICY = Policy(rails=RailPolicy())
UP = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES)
DOWN = Intent(6, "down", "operator", "stop asked for", NOW)
DEVICES = tuple(end.device for end in PLAN.ends_of("spark1"))


def measured(node: str = "spark2", intent: Intent = UP, **changed: Any) -> Snapshot:
    """Every rail has been measured, and all are good; from there each test takes one thing away."""
    values: dict[str, Any] = {"policy": POLICY, "intent": intent, "rails": RailFacts(rail_facts(node), rested=1e6)}
    peers = tuple(peer(name, intent, rails=rail_facts(name)) for name in NODES if name != node)
    return snapshot(node, **(values | {"peers": peers} | changed))


def actions(s: Snapshot) -> list[Measure | StartRank | StopMeasuring]:
    return [action for action in decide(s).actions if isinstance(action, Measure | StartRank | StopMeasuring)]


def without(node: str, *devices: str) -> tuple[RailFact, ...]:
    return tuple(fact for fact in rail_facts(node) if fact.device not in devices)


def test_a_start_with_every_rail_measured_measures_nothing() -> None:
    (started,) = actions(measured())
    assert isinstance(started, StartRank)


def test_without_measurements_the_rails_are_measured_and_nothing_starts() -> None:
    s = measured("spark1", rails=RailFacts(), roce=(RoceFact("rocep1s0f1"), RoceFact("rocep1s0f0"), RoceFact("other")))
    assert actions(s) == [Measure(7, DEVICES, ("rocep1s0f0", "rocep1s0f1"))]
    assert gates.waits(s) == ("4 of 6 rails are to be measured, first enp1s0f0np0 of spark1 to spark2",)
    assert decide(s).phase == "gated"


def test_where_rails_are_not_measured_nothing_is_waited_for() -> None:
    s = measured(rails=RailFacts(), policy=Policy())
    assert [type(action) for action in actions(s)] == [StartRank]
    assert rails.examine(s)[0].verdict == "not-applicable"


@pytest.mark.parametrize(
    "changed",
    [
        {"boot_id": "another boot"},
        {"carrier_changes": 1},
        {"node": "spark9"},
        {"remote": "enP2p1s0f1np1"},
        {"error": "spark2 did not come"},
    ],
)
def test_a_measurement_counts_while_boot_carrier_and_far_end_are_the_same(changed: Mapping[str, Any]) -> None:
    facts = rail_facts("spark1")
    s = measured("spark1", rails=RailFacts((replace(facts[0], **changed), *facts[1:]), rested=1e6))
    assert rails.valid(s) == facts[1:]
    assert actions(s) == [Measure(7, (DEVICES[0],), ())]


def test_a_rail_that_only_its_far_end_lacks_is_measured_by_both() -> None:
    lacking = peer("spark2", UP, rails=without("spark2", "enp1s0f1np1"))
    assert actions(with_peer(measured("spark1"), lacking)) == [Measure(7, ("enp1s0f0np0",), ())]
    assert actions(with_peer(measured("spark3"), lacking)) == [], "it waits, and has nothing to measure"
    # Right after its own unit has ended, the news of the far end may be on its way.
    waiting = with_peer(measured("spark1", rails=RailFacts(rail_facts("spark1"), tries=1, rested=0.25)), lacking)
    assert (actions(waiting), decide(waiting).after) == ([], 1.75)
    assert gates.waits(waiting) == ("1 of 6 rails are to be measured, first enp1s0f0np0 of spark1 to spark2",)


def test_a_unit_that_has_left_nothing_points_to_its_journal() -> None:
    s = measured("spark1", rails=RailFacts(without("spark1", "enp1s0f0np0"), tries=1, rested=0.25))
    (wait,) = gates.waits(s)
    assert wait == "spark1: the rails could not be measured: journalctl -u 'sparkd-measure@*' says why; again in 2 s"


@pytest.mark.parametrize("node", NODES)
def test_nothing_starts_while_any_host_measures(node: str) -> None:
    for other in NODES:
        s = measured(node)
        if other == node:
            s = replace(s, rails=RailFacts(rail_facts(node), MeasureUnit(7, "measuring enp1s0f0np0 to spark2")))
        else:
            s = with_peer(s, peer(other, UP, rails=rail_facts(other), measuring="measuring enp1s0f0np0 to spark2"))
        assert actions(s) == []
        assert gates.waits(s) == (f"{other} is measuring enp1s0f0np0 to spark2, 6 of 6 rails are measured",)


def test_nothing_is_measured_before_every_earlier_gate_is_open() -> None:
    s = measured("spark1", rails=RailFacts())
    for shut in (
        peer("spark2", DOWN, rails=rail_facts("spark2")),
        peer("spark2", UP, age=16.0, rails=rail_facts("spark2")),
        peer("spark2", UP, units=(running(6),), rails=rail_facts("spark2")),
        peer("spark2", UP, ends=None, rails=rail_facts("spark2")),
        peer("spark2", UP, digests={"cluster": "other"}, rails=rail_facts("spark2")),
    ):
        closed = with_peer(s, shut)
        assert actions(closed) == []
        assert not any("rails" in wait for wait in gates.waits(closed))


@pytest.mark.parametrize("who", ["own", "peer"])
def test_nothing_is_measured_beside_a_rank(who: str) -> None:
    """A rank of this epoch runs: some host has found every gate open. What is missing now has to wait."""
    s = measured("spark1", rails=RailFacts())
    unit = running(text="init", active="activating")
    s = replace(s, units=(unit,)) if who == "own" else with_peer(s, peer("spark2", UP, units=(unit,)))
    assert not any(isinstance(action, Measure) for action in actions(s))
    busy = replace(s, rails=RailFacts((), MeasureUnit(7)))
    where = "spark1" if who == "own" else "spark2"
    assert actions(busy) == [StopMeasuring(7, f"a rank runs on {where}")]
    assert actions(replace(busy, rails=RailFacts((), MeasureUnit(7, "", stopping=True)))) == []


def test_a_rank_that_runs_is_not_left_alone_for_a_rail_that_is_not_measured() -> None:
    s = measured("spark2", rails=RailFacts())
    s = with_peer(s, peer("spark3", UP, units=(running(text="init", active="activating"),), rails=()))
    assert [type(action) for action in actions(s)] == [StartRank]


@pytest.mark.parametrize(
    ("intent", "why"),
    [
        (DOWN, "stop asked for"),
        (replace(UP, epoch=8), "the ring is at epoch 8"),
    ],
)
def test_measuring_for_nothing_is_stopped(intent: Intent, why: str) -> None:
    s = measured(intent=intent, rails=RailFacts((), MeasureUnit(7)))
    assert actions(s) == [StopMeasuring(7, why)]


def test_what_cannot_be_measured_is_tried_again_with_growing_pauses() -> None:
    facts = rail_facts("spark1")
    failed = (replace(facts[0], error="spark2 did not come"), *facts[1:])
    pauses = []
    for tries in range(1, 6):
        s = measured("spark1", rails=RailFacts(failed, tries=tries, rested=0.0))
        assert actions(s) == []
        pauses.append(decide(s).after)
        assert gates.waits(s) == (
            f"spark1: enp1s0f0np0 to spark2 is not measured: spark2 did not come; again in {pauses[-1]:.0f} s",
        )
        assert actions(replace(s, rails=RailFacts(failed, tries=tries, rested=8.0))) != []
    assert pauses == [2.0, 4.0, 8.0, 8.0, 8.0]
    again = measured("spark1", rails=RailFacts(failed, MeasureUnit(7, "meeting spark2 to measure"), tries=3))
    assert gates.waits(again) == (
        "spark1: enp1s0f0np0 to spark2 is not measured: spark2 did not come",
        "spark1 is meeting spark2 to measure, 5 of 6 rails are measured",
    )


def test_results_that_cannot_be_read_are_unknown_and_not_good() -> None:
    s = measured(rails=Unknown("results of measuring: Permission denied"))
    assert actions(s) == []
    assert gates.waits(s) == ("spark2 cannot tell what was measured: results of measuring: Permission denied",)


# What the rates mean.


def rate(s: Snapshot, changed: Mapping[int, float | None], method: str = "rdma") -> Snapshot:
    """With other rates of those links, by index; None: large packets do not pass."""

    def of(node: str) -> tuple[RailFact, ...]:
        found = []
        for fact in rail_facts(node, method=method):
            (link,) = (n for n in PLAN.links for end in n.ends if (end.node, end.device) == (node, fact.device))
            gbps = changed.get(link.index, fact.gbps)
            found.append(replace(fact, gbps=gbps, mtu_passed=gbps is not None))
        return tuple(found)

    s = replace(s, rails=RailFacts(of(s.node), rested=1e6))
    for view in s.peers:
        assert view.report is not None
        s = with_peer(s, replace(view, report=replace(view.report, rails=of(view.name))))
    return s


def told(found: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    return [(finding.id, finding.node, finding.subject) for finding in found]


@pytest.mark.parametrize("node", NODES)
def test_a_rail_at_13_gbps_refuses_with_the_same_words_on_every_host(node: str) -> None:
    s = rate(measured(node), {2: 13.1})
    (found,) = rails.findings(s)
    assert found.sentence == (
        "spark2: enp1s0f0np0: the rail to spark3 (enp1s0f1np1) has 13.1 Gb/s (rdma); expected at least 30 Gb/s"
    )
    assert found.fix.startswith("reboot all nodes with cables attached; if still slow, unplug AC for a minute")
    assert found.severity == "refuse"
    assert gates.waits(s) == (found.sentence,)
    assert actions(s) == []


def test_an_operators_start_is_refused_by_a_bad_rail_that_is_known() -> None:
    s = rate(measured("spark1", DOWN), {0: 13.0})
    answer = accept(s, "start", "operator")
    assert isinstance(answer, Refused)
    assert [finding.id for finding in answer.findings] == ["rail-degraded-13g"]
    assert "sparkctl fabric measure on spark1" in answer.findings[0].fix
    # Once one end has forgotten it, it is to be measured, and a start may be asked for.
    assert isinstance(accept(replace(s, rails=RailFacts()), "start", "operator"), Accepted)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("slow", NODES)
def test_a_node_whose_rails_are_all_slow_is_named_instead_of_them(node: str, slow: str) -> None:
    indices = {link.index for link in PLAN.links for end in link.ends if end.node == slow}
    found = rails.findings(rate(measured(node), dict.fromkeys(indices, 6.0)))
    assert told(found) == [("node-slow", slow, "all its rails")]
    assert "6 Gb/s, while those between the other nodes have 98 Gb/s" in found[0].observed


def test_a_node_at_half_the_rate_of_the_others_is_slow_though_above_the_threshold() -> None:
    indices = [link.index for link in PLAN.links for end in link.ends if end.node == "spark3"]
    assert told(rails.findings(rate(measured(), dict.fromkeys(indices, 49.0)))) == [
        ("node-slow", "spark3", "all its rails")
    ]
    assert rails.findings(rate(measured(), dict.fromkeys(indices, 49.5))) == ()
    # The others have 80 and 120, so that their median is 100.
    uneven = dict.fromkeys(indices, 50.0) | {0: 80.0, 1: 120.0}
    assert told(rails.findings(rate(measured(), uneven))) == [("node-slow", "spark3", "all its rails")]
    assert rails.findings(rate(measured(), uneven | {1: 119.0})) == ()
    lenient = replace(POLICY, rails=RailPolicy(slow_ratio=0.0))
    assert rails.findings(rate(measured(policy=lenient), dict.fromkeys(indices, 40.0))) == ()


def test_all_rails_slow_are_the_rails_and_no_node() -> None:
    found = rails.findings(rate(measured(), dict.fromkeys(range(6), 13.0)))
    assert [finding.id for finding in found] == ["rail-degraded-13g"] * 6


def test_a_slow_node_is_not_judged_before_all_its_rails_are_known() -> None:
    indices = [link.index for link in PLAN.links for end in link.ends if end.node == "spark3"]
    s = rate(measured("spark1"), dict.fromkeys(indices, 6.0))
    assert isinstance(s.rails, RailFacts)
    partly = replace(s, rails=replace(s.rails, measured=s.rails.measured[:3]))
    assert {finding.id for finding in rails.findings(partly)} == {"rail-degraded-13g"}
    assert rails.findings(replace(s, rails=replace(s.rails, running=MeasureUnit(7)))) == ()


def test_each_method_has_its_own_threshold_and_is_not_compared_with_the_other() -> None:
    assert rails.findings(rate(measured(), dict.fromkeys(range(6), 25.0), "tcp")) == ()
    assert len(rails.findings(rate(measured(), dict.fromkeys(range(6), 13.3), "tcp"))) == 6
    off = replace(POLICY, rails=RailPolicy(min_gbps=0.0, min_tcp_gbps=0.0))
    assert rails.findings(rate(measured(policy=off), dict.fromkeys(range(6), 1.0))) == ()
    indices = [link.index for link in PLAN.links for end in link.ends if end.node == "spark3"]
    mixed = rate(measured("spark3"), dict.fromkeys(indices, 25.0))
    assert isinstance(mixed.rails, RailFacts)
    by_tcp = tuple(replace(fact, method="tcp") for fact in mixed.rails.measured)
    mixed = replace(mixed, rails=replace(mixed.rails, measured=by_tcp))
    assert "node-slow" not in {finding.id for finding in rails.findings(mixed)}


def test_a_rail_that_drops_large_packets_is_no_slow_rail() -> None:
    found = rails.findings(rate(measured(), {4: None}))
    assert told(found) == [("mtu-wrong", "spark3", "enp1s0f0np0")]
    assert found[0].observed.startswith("packets of 8972 bytes do not pass to spark1 (enp1s0f1np1)")


def test_doctor_tells_good_bad_and_not_measured_apart() -> None:
    def verdicts(s: Snapshot) -> dict[str, str]:
        return {row.id: row.verdict for row in rails.examine(s)}

    assert set(verdicts(measured()).values()) == {"pass"}
    assert rails.examine(measured())[0].why == "6 rails measured, the slowest 98 Gb/s (rdma)"
    bad = verdicts(rate(measured(), {1: 9.0}))
    assert bad == {"rail-degraded-13g": "fail", "node-slow": "pass", "mtu-wrong": "pass"}
    fresh = rails.examine(measured(rails=RailFacts()))
    assert {row.verdict for row in fresh} == {"unknown"}
    assert fresh[0].why == "4 of 6 rails are not measured since boot, or since their carrier changed"


def test_two_nodes_have_no_slow_one() -> None:
    nodes = [{"name": name, "rank": rank, "address": f"192.168.77.{rank + 1}"} for rank, name in enumerate(NODES[:2])]
    pair = parse_cluster({"name": "pair", "base_range": "10.77.0.0/21", "node": nodes})
    cables = names(by_order(NODES[:2]))
    facts = {}
    for name in NODES[:2]:
        ends = plan(pair).ends_of(name)
        far = {end.device: plan(pair).far_end(end) for end in ends}
        facts[name] = tuple(
            RailFact(d, f.node, f.device, 8.0, "rdma", True, boot_id=f"boot-{name}", at=1.0) for d, f in far.items()
        )
    other = replace(peer("spark2", UP), report=report("spark2", UP, rails=facts["spark2"]))
    s = measured("spark1", replace(UP, cables=cables), rails=RailFacts(facts["spark1"]), peers=(other,))
    s = replace(s, cluster=pair)
    assert {finding.id for finding in rails.findings(s)} == {"rail-degraded-13g"}
    assert {row.id: row.verdict for row in rails.examine(s)}["node-slow"] == "not-applicable"


def test_the_slower_word_of_both_ends_counts() -> None:
    s = measured("spark1")
    slower = tuple(replace(fact, gbps=20.0) for fact in rail_facts("spark2"))
    s = with_peer(s, peer("spark2", UP, rails=slower))
    assert [rail.gbps for rail in s.rated] == [20.0, 20.0, 20.0, 20.0, 98.0, 98.0]
    assert all(isinstance(rail, Rail) for rail in s.rated)


def test_a_host_that_has_had_its_turn_measures_no_more_in_this_epoch() -> None:
    s = measured("spark1", rails=RailFacts(), attempt=attempt("spark1"))
    assert not any(isinstance(action, Measure) for action in actions(s))
