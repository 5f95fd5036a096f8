"""Field report firewall-blocks: what a try of a peer's port says, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkd.core import gates
from sparkd.core import intent as intents
from sparkd.core.checks import CheckResult
from sparkd.core.doctor import examine
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Intent
from sparkd.core.reach import Answer, ReachFact
from sparkd.core.snapshot import Snapshot
from tests.core.builders import NOW, peer, snapshot

DOWN = Intent(6, "down", "operator", "stop asked for", NOW)
DROPPED = ReachFact("spark2", 41000, "no answer", "no answer within 3 s, as when a firewall drops it", 9.0)
OPEN = (ReachFact("spark2", 41000, "open", "", 60.0), ReachFact("spark3", 42000, "open", "", 60.0))


def ring(*facts: ReachFact, age: float = 0.5, error: str = "", ports: tuple[int, int] = (41000, 42000)) -> Snapshot:
    """spark1's view of a healthy ring that is down; both peers tell a port."""
    peers = tuple(
        peer(name, DOWN, age=age, probe_port=port) for name, port in zip(("spark2", "spark3"), ports, strict=True)
    )
    peers = (replace(peers[0], error=error), peers[1])
    return snapshot(intent=DOWN, peers=peers, reach=facts, hardware=HardwareFacts())


def firewall(s: Snapshot) -> CheckResult:
    return next(result for result in examine(s) if result.id == "firewall-blocks")


def about_firewalls(s: Snapshot) -> list[str]:
    return [finding.id for finding in gates.own_findings(s) if finding.id.startswith("firewall")]


def test_ports_that_can_be_reached_are_fine() -> None:
    assert (firewall(ring(*OPEN)).verdict, firewall(ring(*OPEN)).why) == ("pass", "spark2 and spark3 can be reached")
    assert about_firewalls(ring(*OPEN)) == []


def test_a_port_that_does_not_answer_though_its_daemon_does_is_refused_with_both_nodes_address_and_port() -> None:
    s = ring(DROPPED, OPEN[1])
    assert firewall(s).verdict == "fail"
    (finding,) = firewall(s).findings
    assert (finding.node, finding.severity, finding.subject) == ("spark1", "refuse", "TCP to spark2")
    assert finding.observed == (
        "spark2 answers sparkd, but its TCP port 192.168.77.2:41000, one that its kernel chose, cannot be reached from "
        "spark1 (192.168.77.1): no answer within 3 s, as when a firewall drops it"
    )
    assert "ufw allow from 192.168.77.1" in finding.fix and "on spark2" in finding.fix
    refused = intents.accept(s, "start", "operator")
    assert isinstance(refused, intents.Refused)
    assert "firewall-blocks" in {f.id for f in refused.findings}


@pytest.mark.parametrize("answer", ["refused", "unreachable"])
def test_other_ways_of_not_being_reached_are_the_same_finding(answer: Answer) -> None:
    fact = replace(DROPPED, answer=answer, why="no route to host")
    assert about_firewalls(ring(fact, OPEN[1])) == ["firewall-blocks"]


@pytest.mark.parametrize(
    "s",
    [
        pytest.param(ring(DROPPED, OPEN[1], error="no answer in time"), id="its daemon does not answer either"),
        pytest.param(ring(DROPPED, OPEN[1], age=20.0), id="it has not answered for long"),
        pytest.param(ring(replace(DROPPED, age=0.1), OPEN[1]), id="it has not answered since the try"),
        pytest.param(ring(replace(DROPPED, answer="untried"), OPEN[1]), id="this host could not try"),
        pytest.param(ring(OPEN[1], ports=(0, 42000)), id="it tells no port"),
    ],
)
def test_what_says_nothing_of_a_firewall_is_unknown_and_refuses_nothing(s: Snapshot) -> None:
    assert firewall(s).verdict == "unknown"
    assert about_firewalls(s) == []


@pytest.mark.parametrize("facts", [(OPEN[1],), (replace(DROPPED, port=40999), OPEN[1])], ids=["never", "another port"])
def test_a_port_that_has_not_been_tried_holds_a_start_up_and_refuses_none(facts: tuple[ReachFact, ...]) -> None:
    s = ring(*facts)
    assert [(f.id, f.severity) for f in firewall(s).findings] == [("firewall-untried", "repair")]
    assert isinstance(intents.accept(s, "start", "operator"), intents.Accepted)
    up = Intent(7, "up", "operator", "start asked for", NOW, cables=s.cables)
    waiting = replace(s, intent=up)
    assert "spark1: TCP to spark2: port 192.168.77.2:41000 has not been tried yet; expected a try within seconds" in (
        gates.waits(waiting)
    )


def test_a_daemon_that_knows_no_such_port_is_no_reason_to_wait() -> None:
    assert about_firewalls(ring(ports=(0, 0))) == []
