"""The gates one by one, each with the one fact that has to shut it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ring_mesh import FABRIC_DEVICES
from sparkd.core import gates, recovery
from sparkd.core.actions import ApplyFabric, Remember, StopRank
from sparkd.core.decide import decide
from sparkd.core.model import FabricMemory, Finding, RankUnit, Unknown
from tests.core.builders import attempt, bare_network, configured_network, peer, running, snapshot, with_peer

AGAINST = Finding("kernel-known-bad", "spark2", "refuse", "kernel", "6.17.0-1008", "another kernel", "upgrade it")


def test_a_rank_of_a_later_epoch_is_one_of_another_start_too() -> None:
    """A peer that lost its disk, and with it the epoch that its rank belongs to."""
    s = snapshot("spark2")
    later = with_peer(s, peer("spark3", s.intent, units=(running(9),)))
    assert gates.no_older_rank(later) == ["sparkd-rank@9.service on spark3 is still alive"]
    own = replace(s, units=(running(9),))
    assert gates.no_older_rank(own) == ["sparkd-rank@9.service on spark2 is still alive"]


def test_what_a_peer_has_found_holds_the_start_back() -> None:
    """Its ports are as planned, and something else there is not."""
    s = snapshot("spark3")
    assert gates.waits(s) == ()
    assert gates.waits(with_peer(s, peer("spark2", s.intent, findings=(AGAINST,)))) == (AGAINST.sentence,)
    told = replace(AGAINST, severity="warn")
    assert gates.waits(with_peer(s, peer("spark2", s.intent, findings=(told,)))) == ()


@pytest.mark.parametrize(
    ("units", "runs"),
    [
        ((), False),
        ((RankUnit(7, "inactive", job="start"),), False),
        ((RankUnit(7, "activating", "start-pre"),), False),
        ((RankUnit(7, "deactivating", "stop-sigterm", main_pid=12),), False),
        ((RankUnit(7, "failed", "failed"),), False),
        ((RankUnit(7, "activating", "start", main_pid=12),), True),
        ((RankUnit(7, "active", "running", main_pid=12),), True),
    ],
    ids=["none", "queued", "without a process", "ending", "dead", "coming up", "ready"],
)
def test_rank_0_waits_until_the_processes_of_the_workers_run(units: tuple[RankUnit, ...], runs: bool) -> None:
    s = snapshot("spark1")
    s = with_peer(s, peer("spark2", s.intent, units=(running(7),)))
    s = with_peer(s, peer("spark3", s.intent, units=units))
    assert gates.waits(s) == (() if runs else ("rank 2 on spark3 does not run yet",))


def test_a_host_that_cannot_ask_its_systemd_knows_nothing_of_its_ranks() -> None:
    """It starts none, and says of none that it has ended or that it is not there."""
    s = snapshot("spark2", units=Unknown("systemd did not answer within 5 s"), attempt=attempt("spark2"))
    assert gates.no_older_rank(s) == ["spark2 cannot tell which ranks run: systemd did not answer within 5 s"]
    assert recovery.follow(s) is None
    decision = decide(s)
    assert decision.actions == ()
    assert decision.attempt == s.attempt
    assert next(rank for rank in decision.ranks if rank.node == "spark2").condition == "unknown"


def test_the_fabric_is_left_alone_while_it_is_not_known_whether_a_rank_runs() -> None:
    """An address is gone, and systemd does not answer: a rank may hold what a repair would replace."""
    seen = configured_network("spark2")
    lost = replace(seen, addresses=tuple(a for a in seen.addresses if a.device != "enp1s0f0np0"))
    s = snapshot("spark2", network=lost)
    assert any(isinstance(action, ApplyFabric) for action in decide(s).actions)
    assert decide(replace(s, units=Unknown("systemd did not answer within 5 s"))).actions == ()


def test_a_rank_does_not_run_on_when_another_was_stopped() -> None:
    """A stop that sparkd itself carried out is no death, but the epoch is over.

    1. spark2 stops its rank because it knows of a death, of which its own report says nothing.
    2. spark3 hears of that stop first, and not yet of the death.
    """
    why = "stopped by sparkd: rank 0 (spark1) ended: it was killed by SIGKILL"
    s = snapshot("spark3", units=(running(),), attempt=attempt("spark3", formed=True, ready=True))
    assert decide(s).actions == ()
    s = with_peer(s, peer("spark2", s.intent, attempt=attempt("spark2", stopped=why, sentence=why, ended_at=s.now)))
    stops = [action for action in decide(s).actions if isinstance(action, StopRank)]
    assert [stop.epoch for stop in stops] == [7]


def test_how_the_ports_were_is_on_disk_before_they_are_first_changed() -> None:
    """A daemon that dies in between must not take its own settings for those that it found."""
    found = bare_network("spark2")
    first = decide(snapshot("spark2", network=found, memory=FabricMemory()))
    assert [type(action) for action in first.actions] == [Remember, ApplyFabric]
    assert isinstance(first.actions[0], Remember)
    assert {port.device for port in first.actions[0].memory.before} == set(FABRIC_DEVICES)


def test_released_ports_are_left_alone_also_while_the_ring_is_wanted_up() -> None:
    memory = FabricMemory("boot-spark2", (), released=True)
    assert decide(snapshot("spark2", network=bare_network("spark2"), memory=memory)).actions == ()
