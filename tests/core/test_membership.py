"""An intent is for one cluster: what another one wants moves nobody, whoever tells it."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core import gates, recovery
from sparkd.core import intent as intents
from sparkd.core.actions import Adopt
from sparkd.core.decide import decide
from sparkd.core.model import Intent
from sparkd.core.snapshot import Snapshot
from tests.core.builders import CABLES, CLUSTER, NOW, attempt, peer, snapshot, with_peer

DOWN = Intent(3, "down", "operator", "stop asked for", NOW, cluster=CLUSTER.name)
UP = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES, cluster=CLUSTER.name)


def told(intent: Intent, own: Intent = DOWN) -> Snapshot:
    """spark2's view, with what spark3 tells."""
    s = snapshot("spark2", intent=own)
    return with_peer(s, peer("spark3", intent))


def adopted(s: Snapshot) -> list[int]:
    return [action.intent.epoch for action in decide(s).actions if isinstance(action, Adopt)]


def test_an_intent_of_this_cluster_or_of_a_version_that_did_not_say_is_adopted() -> None:
    for cluster in (CLUSTER.name, ""):
        assert adopted(told(Intent(50, "up", cables=CABLES, cluster=cluster))) == [50]


def test_an_intent_of_another_cluster_is_not() -> None:
    assert adopted(told(Intent(50, "up", cables=CABLES, cluster="office"))) == []


def test_the_next_epoch_is_above_it_all_the_same() -> None:
    """So that the host that still has it follows."""
    s = snapshot("spark1", intent=DOWN)
    s = with_peer(s, peer("spark3", Intent(50, "down", cluster="office")))
    accepted = intents.accept(s, "stop", "operator")
    assert isinstance(accepted, intents.Accepted)
    started = intents.accept(s, "start", "operator")
    assert isinstance(started, intents.Accepted)
    assert (started.intent.epoch, started.intent.cluster) == (51, CLUSTER.name)


def test_a_host_at_the_same_epoch_of_another_cluster_has_not_adopted_this_one() -> None:
    s = told(replace(UP, cluster="office"), UP)
    assert "spark3 has not adopted epoch 7 yet (it is at 7 of cluster office)" in gates.waits(s)
    assert not any("spark3" in wait for wait in gates.all_adopted(told(UP, UP)))


def test_whatever_is_issued_names_the_cluster() -> None:
    dead = attempt("spark1", formed=True, ended_at=NOW - 60, signature="signal:9", sentence="killed")
    s = snapshot("spark1", intent=UP, attempt=dead)
    again = recovery.judge(s)
    assert again is not None and again.intent is not None
    assert (again.intent.want, again.intent.cluster) == ("up", CLUSTER.name)
    held = recovery.judge(replace(s, policy=replace(s.policy, restarts=0)))
    assert held is not None and held.intent is not None
    assert (held.intent.held, held.intent.cluster) == (True, CLUSTER.name)
