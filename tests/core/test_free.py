"""A stop is over when the hosts are free: what is left is named and waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkd.core import gates
from sparkd.core.actions import ApplyFabric, StartRank, StopRank
from sparkd.core.decide import decide
from sparkd.core.model import Finding, HostFacts, Intent, Process
from sparkd.core.snapshot import Snapshot
from tests.core.builders import CABLES, NOW, attempt, bare_network, peer, running, snapshot

DOWN = Intent(8, "down", "operator", "stop asked for", NOW)
UP = Intent(8, "up", "operator", "start asked for", NOW, cables=CABLES)
LEFT = Process(812, "sparkd-rank", "python3 -m runtime.launch", "sparkd-rank@7.service")
NAMED = "pid 812 (python3 -m runtime.launch, user sparkd-rank) is left of sparkd-rank@7.service on spark2"


def host(*processes: Process) -> HostFacts:
    return HostFacts("boot-spark2", rank_processes=processes)


def at(intent: Intent, *processes: Process, **changed: Any) -> Snapshot:
    """spark2, of whose units none is alive."""
    peers = (peer("spark1", intent), peer("spark3", intent))
    return snapshot("spark2", intent=intent, **({"host": host(*processes), "peers": peers} | changed))


def elsewhere(intent: Intent, **told: Any) -> Snapshot:
    return snapshot("spark1", intent=intent, peers=(peer("spark2", intent, **told), peer("spark3", intent)))


def test_a_stop_waits_for_every_process_of_a_rank_on_every_host() -> None:
    """Field report stop-in-any-state."""
    for s in (at(DOWN, LEFT), elsewhere(DOWN, left=(LEFT,))):
        decision = decide(s)
        assert (decision.phase, decision.waits) == ("stopping", (NAMED,))
        assert decision.summary == f"epoch 8 is stopping: {NAMED}"
        assert not any(isinstance(action, StopRank) for action in decision.actions), "it is no unit"
    assert decide(at(DOWN, LEFT)).after == 1.0, "processes tell nobody when they are gone"
    assert decide(at(DOWN)).phase == "down"


def test_nothing_starts_and_nothing_is_repaired_beside_it() -> None:
    for s in (at(UP, LEFT), elsewhere(UP, left=(LEFT,))):
        assert NAMED in gates.waits(s)
        assert not any(isinstance(action, StartRank) for action in decide(s).actions)
    bare = at(UP, LEFT, network=bare_network("spark2"))
    assert not any(isinstance(action, ApplyFabric) for action in decide(bare).actions)
    assert any(isinstance(action, ApplyFabric) for action in decide(replace(bare, host=host())).actions)


def test_the_processes_of_a_rank_that_runs_are_none_that_are_left() -> None:
    s = at(UP, replace(LEFT, unit="sparkd-rank@8.service"), units=(running(8),), attempt=attempt("spark2", 8))
    assert decide(s).after is None
    assert gates.waits(s) == ()


def test_several_are_counted() -> None:
    decision = decide(at(DOWN, LEFT, replace(LEFT, pid=813), replace(LEFT, pid=814)))
    assert decision.waits == (f"{NAMED} (and 2 more)",)


def test_a_host_whose_rank_has_only_just_ended_is_not_known_to_be_free() -> None:
    s = at(DOWN, attempt=attempt("spark2", 7, stopped="stopped by sparkd: x"))
    decision = decide(s)
    assert (decision.phase, decision.waits) == ("stopping", ("spark2 has to look what is left of its rank",))
    assert decide(elsewhere(DOWN, left=None)).waits == decision.waits
    ended = decide(s).attempt
    assert decide(replace(s, attempt=ended)).phase == "down"


def finding(id_: str, severity: Any) -> Finding:
    return Finding(id_, "spark2", severity, "x", "20.0 GiB available", "96.0 GiB", "y")


def test_a_stop_waits_for_memory_that_may_still_come_back() -> None:
    waiting = decide(elsewhere(DOWN, findings=(finding("memory-not-back", "repair"),)))
    assert (waiting.phase, waiting.waits) == ("stopping", ("spark2: x: 20.0 GiB available; expected 96.0 GiB",))
    late = decide(elsewhere(DOWN, findings=(finding("memory-not-back", "refuse"),)))
    assert (late.phase, late.waits) == ("down", waiting.waits)


def test_who_else_is_on_a_port_is_named_and_left_alone() -> None:
    decision = decide(elsewhere(DOWN, findings=(finding("second-supervisor", "refuse"),)))
    assert decision.phase == "down"
    assert not any(isinstance(action, StopRank) for action in decision.actions)
    assert decision.summary == "down: stop asked for; spark2: x: 20.0 GiB available; expected 96.0 GiB"
