"""One decision at a time: gates, order, death, stop. Each test takes one thing away from a healthy triangle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkd.core import gates
from sparkd.core.actions import Adopt, ApplyFabric, ForgetRank, Record, StartRank, StopRank
from sparkd.core.decide import decide
from sparkd.core.model import HostFacts, Intent, PeerView, RankUnit, RoceFact, Unknown
from sparkd.core.snapshot import Snapshot
from tests.core.builders import NODES, NOW, attempt, bare_network, peer, report, running, snapshot, with_peer

UP = Intent(7, "up", "operator", "start asked for", NOW)
WORKERS = ("spark2", "spark3")


def started(s: Snapshot) -> list[int]:
    return [action.attempt.epoch for action in decide(s).actions if isinstance(action, StartRank)]


def workers_running() -> tuple[PeerView, ...]:
    return tuple(peer(name, UP, units=(running(text="init", active="activating"),)) for name in WORKERS)


def serving(node: str = "spark1") -> Snapshot:
    """Epoch 7 is ready everywhere, seen from `node`."""
    peers = tuple(
        peer(name, UP, units=(running(),), attempt=attempt(name, formed=True, ready=True))
        for name in NODES
        if name != node
    )
    return snapshot(node, units=(running(),), attempt=attempt(node, formed=True, ready=True), peers=peers)


@pytest.mark.parametrize("node", WORKERS)
def test_a_worker_starts_when_every_gate_is_open(node: str) -> None:
    assert started(snapshot(node)) == [7]


def test_rank_0_starts_once_the_workers_processes_run() -> None:
    assert started(snapshot("spark1")) == []
    assert "rank 1 on spark2 does not run yet" in decide(snapshot("spark1")).waits
    assert started(snapshot("spark1", peers=workers_running())) == [7]


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"intent": Intent(6, "up", "operator", "", NOW)}, "has not adopted epoch 7 yet (it is at 6)"),
        ({"units": (running(6),)}, "sparkd-rank@6.service on {peer} is still alive"),
        ({"units": (RankUnit(6, "deactivating"),)}, "sparkd-rank@6.service on {peer} is still alive"),
        ({"units": None, "unknown": ("systemd is silent",)}, "{peer} cannot tell which ranks run"),
        ({"digests": {"cluster": "other"}}, "cluster differs: {peer} has other, expected same, as on {node}"),
        ({"digests": {}}, "cluster differs: {peer} has missing"),
        ({"ends": None}, "{peer} is still configuring every port"),
        ({"attempt": attempt("x", ended_at=NOW, sentence="it broke")}, "it broke"),
    ],
)
def test_one_shut_gate_at_one_peer_starts_nothing_and_is_named(
    node: str, changed: dict[str, object], words: str
) -> None:
    other = next(name for name in NODES if name != node)
    base = snapshot(node, peers=workers_running()) if node == "spark1" else snapshot(node)
    intent = changed.get("intent", UP)
    assert isinstance(intent, Intent)
    units = () if node != "spark1" else (running(text="init", active="activating"),)
    values = {"units": units} | {key: value for key, value in changed.items() if key != "intent"}
    s = with_peer(base, PeerView(other, report(other, intent, **values), 0.5))
    assert started(s) == []
    said = " | ".join(gates.waits(s))
    assert words.format(peer=other, node=node) in said


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("view", [PeerView("spark2"), PeerView("spark2", error="connection refused")])
def test_a_peer_that_never_answered_is_waited_for_by_name(node: str, view: PeerView) -> None:
    """Field report unknown-is-a-state: silence is neither "stopped" nor "fine"."""
    if node == "spark2":
        view = replace(view, name="spark1")
    s = with_peer(snapshot(node), view)
    assert started(s) == []
    assert f"{view.name} has not answered yet" in decide(s).waits[0]


def test_a_peer_that_has_been_silent_for_long_is_waited_for_with_its_age() -> None:
    s = with_peer(snapshot("spark3"), peer("spark1", UP, age=17.0))
    assert started(s) == []
    assert decide(s).waits == ("spark1 has not answered for 17 s",)


@pytest.mark.parametrize("source", ["units", "network", "roce", "host"])
def test_a_source_of_this_host_that_cannot_be_asked_starts_nothing(source: str) -> None:
    s = snapshot("spark2", **{source: Unknown(f"{source} did not answer within 2 s")})
    assert started(s) == []
    assert any("did not answer within 2 s" in wait for wait in decide(s).waits)
    assert [f.id for f in decide(s).findings] == ["unknown-is-a-state"]


def test_a_fabric_that_is_not_as_planned_is_mended_first() -> None:
    s = snapshot("spark2", network=bare_network("spark2"))
    (action,) = decide(s).actions
    assert isinstance(action, ApplyFabric)


def test_the_fabric_is_left_alone_under_a_running_rank() -> None:
    s = replace(serving(), network=bare_network("spark1"))
    assert [type(action) for action in decide(s).actions] == [Record, StopRank]


def test_nothing_is_configured_on_a_range_that_another_network_uses() -> None:
    from sparkd.core.model import RouteFact

    bare = bare_network("spark2")
    s = snapshot("spark2", network=replace(bare, routes=(*bare.routes, RouteFact("10.77.0.0/16", "wg0"))))
    changes = [action.changes for action in decide(s).actions if isinstance(action, ApplyFabric)]
    assert "Address" not in str(changes)


def test_an_older_unit_is_stopped_and_a_dead_one_forgotten_before_anything_starts() -> None:
    s = snapshot("spark2", units=(running(5), RankUnit(4, "failed")))
    assert decide(s).actions == (StopRank(5, "the ring is at epoch 7"), ForgetRank(4))


def test_the_end_of_this_epochs_unit_is_kept_as_evidence() -> None:
    s = snapshot("spark2", units=(RankUnit(7, "failed", exit_code=2, exit_status=9),), attempt=attempt("spark2"))
    assert not any(isinstance(action, ForgetRank) for action in decide(s).actions)


def test_a_host_tries_each_epoch_once() -> None:
    s = snapshot("spark2", attempt=attempt("spark2", ended_at=NOW, signature="left"))
    assert started(s) == []


def test_a_unit_whose_start_job_is_queued_has_not_ended() -> None:
    """Between StartUnit's answer and the fork, systemd shows the unit as inactive."""
    s = snapshot("spark2", units=(RankUnit(7, "inactive", "dead", job="start"),), attempt=attempt("spark2"))
    assert not any(isinstance(action, Record) for action in decide(s).actions)
    assert decide(s).phase == "starting"


@pytest.mark.parametrize("node", NODES)
def test_ready_needs_every_rank(node: str) -> None:
    assert decide(serving(node)).phase == "ready"
    other = next(name for name in NODES if name != node)
    for unit in (running(text="warmup 2/6 measuring", active="activating"), RankUnit(7, "deactivating")):
        s = with_peer(serving(node), peer(other, UP, units=(unit,), attempt=attempt(other)))
        assert decide(s).phase in ("starting", "stopping")


@pytest.mark.parametrize("node", NODES)
def test_mgmt_lost_fabric_up_keeps_a_serving_ring_and_shows_it_degraded(node: str) -> None:
    """Field report mgmt-lost-fabric-up: no death is inferred from the management network alone."""
    s = serving(node)
    s = replace(s, peers=tuple(replace(p, age=250.0, error="no answer in time") for p in s.peers))
    decision = decide(s)
    assert (decision.phase, decision.actions) == ("degraded", ())
    assert "has not answered for 250 s" in decision.summary


def test_a_daemon_that_has_just_started_beside_a_ready_rank_does_not_call_the_ring_starting() -> None:
    s = replace(serving("spark2"), peers=(PeerView("spark1"), PeerView("spark3")))
    decision = decide(s)
    assert (decision.phase, decision.actions) == ("degraded", ())
    nothing_ready = replace(s, units=(running(text="init", active="activating"),), attempt=attempt("spark2"))
    assert decide(nothing_ready).phase == "starting"


def test_a_cable_pulled_while_serving_is_shown_and_kills_nothing() -> None:
    s = serving()
    network = s.network
    assert not isinstance(network, Unknown)
    dark = tuple(replace(x, carrier=False) if "f0np0" in x.device else x for x in network.links)
    decision = decide(replace(s, network=replace(network, links=dark)))
    assert (decision.phase, decision.actions) == ("degraded", ())
    assert "port 0: no carrier" in decision.summary


@pytest.mark.parametrize("node", NODES)
def test_rank_exited_stops_the_others(node: str) -> None:
    """Field report rank-exited."""
    victim = next(name for name in NODES if name != node)
    dead = attempt(victim, formed=True, ready=True, ended_at=NOW, signature="signal:9", sentence="it was killed")
    s = with_peer(serving(node), peer(victim, UP, units=(), attempt=dead))
    actions = decide(s).actions
    assert [type(action) for action in actions] == [StopRank, Record], "no stop waits for a disk"
    assert isinstance(actions[0], StopRank)
    assert victim in actions[0].why


def test_a_silent_peers_last_word_about_its_dead_rank_still_counts() -> None:
    dead = attempt("spark2", formed=True, ended_at=NOW - 60, signature="signal:9", sentence="it was killed")
    s = with_peer(serving("spark3"), peer("spark2", UP, age=60.0, units=(), attempt=dead))
    assert any(isinstance(action, StopRank) for action in decide(s).actions)


@pytest.mark.parametrize("node", NODES)
def test_a_stop_is_followed_in_every_state(node: str) -> None:
    down = Intent(8, "down", "operator", "stop asked for", NOW)
    for unit in (running(), running(text="init", active="activating"), RankUnit(7, "inactive", job="start")):
        s = snapshot(node, intent=down, units=(unit,), attempt=attempt(node))
        assert StopRank(7, "stop asked for") in decide(s).actions
        assert decide(s).phase == "stopping"
    for going in (RankUnit(7, "deactivating"), RankUnit(7, "active", job="stop", main_pid=9)):
        s = snapshot(node, intent=down, units=(going,), attempt=attempt(node, stopped="x"))
        assert not any(isinstance(action, StopRank) for action in decide(s).actions), "a stop is asked for once"


def test_a_ring_is_down_only_when_no_known_rank_is_alive() -> None:
    down = Intent(8, "down", "operator", "stop asked for", NOW)
    s = snapshot("spark1", intent=down)
    assert decide(s).phase == "down"
    assert decide(with_peer(s, peer("spark3", down, units=(running(),)))).phase == "stopping"


def test_a_newer_intent_of_any_peer_is_adopted_before_anything_else() -> None:
    newer = Intent(9, "down", "operator", "stop asked for", NOW)
    s = with_peer(serving("spark3"), peer("spark2", newer, units=(running(),)))
    actions = decide(s).actions
    assert actions[0] == Adopt(newer)
    assert StopRank(7, "stop asked for") in actions


def test_generation_mixed_stops_what_is_older_and_starts_nothing_meanwhile() -> None:
    """Field report generation-mixed."""
    s = snapshot("spark2", units=(running(6),))
    assert StopRank(6, "the ring is at epoch 7") in decide(s).actions
    assert started(s) == []


def test_waits_shrink_as_gates_open() -> None:
    s = snapshot("spark3", network=bare_network("spark3"))
    s = with_peer(s, PeerView("spark1"))
    s = with_peer(s, peer("spark2", Intent(6, "up"), units=(running(6),)))
    states = [
        s,
        with_peer(s, peer("spark1", UP)),
        with_peer(with_peer(s, peer("spark1", UP)), peer("spark2", UP, units=(running(6),))),
        with_peer(with_peer(s, peer("spark1", UP)), peer("spark2", UP)),
        snapshot("spark3"),
    ]
    counts = [len(gates.waits(state)) for state in states]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_only_planned_rdma_devices_are_given_to_the_engine_in_the_plans_order() -> None:
    roce = tuple(RoceFact(name) for name in ("mlx5_9", "roceP2p1s0f0", "rocep1s0f0"))
    (action,) = (a for a in decide(snapshot("spark2", roce=roce)).actions if isinstance(a, StartRank))
    assert action.hcas == ("rocep1s0f0", "roceP2p1s0f0")


def test_the_same_facts_give_the_same_decision() -> None:
    for node in NODES:
        assert decide(snapshot(node)) == decide(snapshot(node))
        assert decide(snapshot(node, host=HostFacts("b"))) == decide(snapshot(node, host=HostFacts("b")))
