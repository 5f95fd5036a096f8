"""Draining: who orders it and takes it back, what rank 0 is told, what ends it, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core.actions import Adopt, ApplyFabric, StartRank, StopRank, TellRank
from sparkd.core.decide import decide
from sparkd.core.drain import Drain, Told, told
from sparkd.core.intent import Accepted, Refused, accept
from sparkd.core.maintenance import Maintenance
from sparkd.core.model import Intent, Unknown
from sparkd.core.news import words
from sparkd.core.snapshot import Snapshot
from tests.core.builders import CABLES, NODES, NOW, attempt, peer, running, snapshot

UP = Intent(7, "up", "operator", "start asked for", NOW - 900, cables=CABLES)
ORDER = Drain("operator on spark2", NOW - 18, 60)
DRAINS = replace(UP, revision=1, drain=ORDER)


def serving(
    intent: Intent = DRAINS, text: str = "draining 3, sockets (lab)", node: str = "spark1", **at: Any
) -> Snapshot:
    """`text`: what rank 0 says. `at`: what is different of the attempts of other nodes."""
    served: dict[str, Any] = {"formed": True, "ready": True}
    alive = [name for name in NODES if "ended_at" not in at.get(name, {})]
    texts = {name: "ready " + (text if name == "spark1" else "waits for work") for name in NODES}
    units = {name: (running(text=texts[name]),) if name in alive else () for name in NODES}
    attempts = {name: attempt(name, **(served | at.get(name, {}))) for name in NODES}
    peers = tuple(peer(name, intent, units=units[name], attempt=attempts[name]) for name in NODES if name != node)
    return snapshot(node, intent=intent, units=units[node], attempt=attempts[node], peers=peers)


def issued(s: Snapshot) -> list[Intent]:
    return [action.intent for action in decide(s).actions if isinstance(action, Adopt)]


def told_ranks(s: Snapshot) -> list[TellRank]:
    return [action for action in decide(s).actions if isinstance(action, TellRank)]


def accepted(answer: Accepted | Refused) -> Intent:
    assert isinstance(answer, Accepted) and answer.new
    return answer.intent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("draining 3, 12.5 tokens/s", Told(3, True)),
        ("draining 0", Told(0, True)),
        ("draining 2 and taking new requests, 1 tokens/s", Told(2, False)),
        ("draining, idle", Told(None, False)),
        ("idle, canary 0.3 s ago", None),
        ("drainings 3", None),
        ("7 draining 3", None),
    ],
)
def test_what_rank_0_tells(text: str, expected: Told | None) -> None:
    assert told(text) == expected


def test_an_order_is_a_revision_of_the_epoch_so_that_its_ranks_stay() -> None:
    answer = accept(serving(UP, "idle"), "stop", "operator on spark2", drain=60)
    assert accepted(answer) == replace(UP, revision=1, drain=Drain("operator on spark2", NOW, 60))


def test_rank_0_is_told_until_it_says_that_it_drains() -> None:
    for said in ("idle, canary 1 s ago", "2.0 tokens/s, 1 running"):
        decision = decide(serving(text=said))
        assert decision.actions == (TellRank(7, drain=True),)
        assert decision.phase == "draining"
        assert decision.waits == ("rank 0 (spark1) to say that it takes no new requests; 42 s at most",)
    assert decide(serving()).actions == ()


@pytest.mark.parametrize("node", ["spark2", "spark3"])
def test_no_other_rank_is_told_and_no_other_host_ends_it(node: str) -> None:
    for text in ("idle", "draining 0"):
        assert decide(serving(text=text, node=node)).actions == ()
    assert decide(replace(serving(node=node), now=NOW + 600)).actions == ()


@pytest.mark.parametrize("node", NODES)
def test_every_node_says_for_how_many_requests_and_how_long(node: str) -> None:
    decision = decide(serving(node=node))
    assert decision.phase == "draining"
    assert decision.summary == "epoch 7 is draining: waits for 3 requests on rank 0 (spark1), 42 s at most"
    assert decision.after == (42 if node == "spark1" else None)
    one = decide(serving(text="draining 1, x", node=node))
    assert one.waits == ("1 request on rank 0 (spark1), 42 s at most",)


def test_an_engine_that_cannot_refuse_or_count_is_named() -> None:
    [said] = decide(serving(text="draining 2 and taking new requests, x")).waits
    assert said == "2 requests on rank 0 (spark1), 42 s at most; rank 0 (spark1) cannot refuse new ones"
    [said] = decide(serving(text="draining, x")).waits
    assert said == "rank 0 (spark1) goes on taking requests and does not tell how many run; 42 s at most"


def test_the_ring_stops_as_soon_as_none_runs() -> None:
    s = serving(text="draining 0, idle")
    [end] = issued(s)
    assert (end.epoch, end.want, end.by, end.drain) == (8, "down", "operator on spark2", None)
    assert end.reason == "stop asked for; no request was running any more"
    assert [action.epoch for action in decide(s).actions if isinstance(action, StopRank)] == [7]
    [said] = decide(serving(text="draining 0, idle", node="spark2")).waits
    assert said == "spark1 to issue the stop: no request is running any more"


def test_the_ring_stops_when_the_time_is_over() -> None:
    assert issued(replace(serving(), now=ORDER.at + 59.9)) == []
    [end] = issued(replace(serving(), now=ORDER.at + 60))
    assert end.reason == "stop asked for; the 60 s to drain were over, and 3 requests were running"
    [end] = issued(replace(serving(text="draining, x"), now=ORDER.at + 60))
    assert end.reason == "stop asked for; the 60 s to drain were over"


def test_a_conductor_whose_systemd_is_silent_ends_it_in_time_and_tells_nobody() -> None:
    s = replace(serving(), units=Unknown("no answer"))
    assert decide(s).actions == ()
    assert [end.want for end in issued(replace(s, now=ORDER.at + 60))] == ["down"]


@pytest.mark.parametrize("node", ["spark1", "spark2"])
def test_a_death_ends_it_and_nothing_is_started_again(node: str) -> None:
    dead = {"ended_at": NOW - 1, "signature": "signal:9", "sentence": "it was killed by SIGKILL"}
    s = serving(spark3=dead, node=node)
    for now in (NOW, NOW + 3600):
        decision = decide(replace(s, now=now))
        assert not any(isinstance(action, StartRank) for action in decision.actions)
        assert [action.epoch for action in decision.actions if isinstance(action, StopRank)] == [7]
        assert decision.phase == "stopping"
    ends = issued(s)
    assert len(ends) == (node == "spark1")
    for end in ends:
        reason = "stop asked for; not all requests came to their end: rank 2 (spark3) ended: it was killed by SIGKILL"
        assert (end.want, end.held, end.reason) == ("down", False, reason)
        # Evidence is kept of it, on every node that reads this.
        assert [(death.node, death.epoch) for death in end.deaths] == [("spark3", 7)]


def test_a_rank_that_was_stopped_from_outside_ends_it_too() -> None:
    [end] = issued(serving(spark2={"ended_at": NOW, "stopped": "stopped by sparkd: a reason", "sentence": "a reason"}))
    assert end.want == "down" and end.deaths == ()


def test_a_stop_without_time_ends_it_at_once() -> None:
    stopped = accepted(accept(serving(), "stop", "operator on spark3"))
    assert (stopped.epoch, stopped.want, stopped.drain, stopped.reason) == (8, "down", None, "stop asked for")


def test_another_time_replaces_the_one_before() -> None:
    again = accepted(accept(serving(), "stop", "operator on spark3", drain=600))
    assert again == replace(UP, revision=2, drain=Drain("operator on spark3", NOW, 600))


def test_a_start_takes_it_back_and_rank_0_is_told_to_serve_again() -> None:
    resumed = accepted(accept(serving(), "start", "operator on spark3"))
    assert resumed == replace(UP, revision=2)
    assert decide(serving(resumed)).actions == (TellRank(7, drain=False),)
    assert decide(serving(resumed, "idle")).actions == ()
    assert decide(serving(resumed, "idle")).phase == "ready"


@pytest.mark.parametrize("state", ["starting", "ended", "not-started", "down", "held"])
def test_what_does_not_serve_is_stopped_at_once(state: str) -> None:
    if state == "starting":
        s = replace(serving(UP), units=(running(text="load 3/9", active="activating"),))
    elif state == "ended":
        s = serving(UP, spark3={"ended_at": NOW - 1, "sentence": "it was killed"})
    elif state == "not-started":
        s = snapshot("spark1")
    else:
        s = snapshot("spark1", intent=Intent(6, "down", "x", "y", NOW - 9, held=state == "held"))
    answer = accept(s, "stop", "operator", drain=60)
    assert isinstance(answer, Accepted)
    assert (answer.intent.want, answer.intent.drain) == ("down", None)


def test_a_silent_peer_keeps_no_serving_ring_from_draining() -> None:
    s = serving(UP, "idle")
    s = replace(s, peers=tuple(replace(view, age=100.0) for view in s.peers))
    assert accepted(accept(s, "stop", "operator", drain=60)).drain is not None


def test_no_longer_than_a_day() -> None:
    drain = accepted(accept(serving(UP, "idle"), "stop", "operator", drain=1e9)).drain
    assert drain is not None and drain.seconds == 86400


def test_a_clock_that_was_set_back_makes_it_no_longer_than_asked_for() -> None:
    s = replace(serving(), now=ORDER.at - 3600)
    [again] = issued(s)
    assert again == replace(DRAINS, revision=2, drain=replace(ORDER, at=s.now))
    assert ORDER.left(s.now) == 60
    assert decide(replace(serving(node="spark2"), now=s.now)).actions == ()


def test_maintenance_leaves_it_as_it_is() -> None:
    paused = accepted(accept(serving(), "hold", "operator on spark3", "a fan"))
    assert paused.drain == ORDER
    for s in (serving(paused), replace(serving(paused, "draining 0"), now=NOW + 600), serving(paused, "idle")):
        decision = decide(s)
        assert (decision.phase, decision.actions) == ("maintenance", ())
    assert decide(serving(paused)).summary.endswith(
        "epoch 7 is left as it is: 3 requests on rank 0 (spark1), 42 s at most"
    )
    assert isinstance(accept(serving(paused), "stop", "operator", drain=60), Refused)
    forced = accepted(accept(serving(paused), "stop", "operator", force=True, drain=60))
    assert (forced.epoch, forced.maintenance, forced.drain) == (7, None, Drain("operator", NOW, 60))


def test_the_recovery_of_a_death_takes_no_order_over() -> None:
    """A ring that was taken back from draining and dies then comes up again, and serves."""
    dead = {"ended_at": NOW - 100, "signature": "signal:9", "sentence": "it was killed"}
    s = serving(replace(UP, revision=2), spark3=dead)
    [again] = issued(replace(s, units=(), ages={"spark3": 100.0}))
    assert (again.want, again.drain, again.by) == ("up", None, "recovery")


def test_nothing_is_started_nor_planned_anew_by_a_host_that_lost_its_record() -> None:
    s = replace(serving(), units=(), attempt=None)
    assert not any(isinstance(action, StartRank | ApplyFabric) for action in decide(s).actions)
    paused = replace(DRAINS, maintenance=Maintenance("x", "", NOW))
    assert decide(serving(paused)).actions == ()


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        ("ready 3.1 tokens/s, 1 running", "ready idle, canary 0.1 s ago", False),
        ("ready idle", "ready draining 3, idle", True),
        ("ready draining 3, 1.0 tokens/s", "ready draining 3, 2.0 tokens/s", False),
        ("ready draining 3, x", "ready draining 2, x", True),
        ("ready draining 3, x", "ready draining 3 and taking new requests, x", True),
        ("ready idle", "ready no token for 21 s, canary: no answer", True),
        ("ready no token for 21 s, x", "ready no token for 22 s, x", False),
        ("load 1/3", "load 2/3", True),
    ],
)
def test_what_a_rank_tells_wakes_the_hosts_only_if_something_may_follow(before: str, after: str, news: bool) -> None:
    assert (words(before) != words(after)) is news
