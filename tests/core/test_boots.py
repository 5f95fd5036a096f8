"""Boots without a shutdown: what is remembered, what follows, and what clears it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core.actions import Adopt, NoteBoot, Record, StartRank
from sparkd.core.boots import BootMemory, Reset
from sparkd.core.decide import decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.intent import Accepted, Refused, accept
from sparkd.core.model import Death, HostFacts, Intent
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import CABLES, NOW, attempt, peer, snapshot

UP = Intent(8, "up", "recovery", "restart", NOW, cables=CABLES)
ONCE = Reset(NOW - 7200, 0)


def booted(boots: BootMemory, intent: Intent = UP, **changed: Any) -> Snapshot:
    """spark2, in its second boot."""
    values: dict[str, Any] = {
        "intent": intent,
        "host": HostFacts("second"),
        "hardware": HardwareFacts(),
        "boots": boots,
        "memory": replace(snapshot("spark2").memory, boot_id="second"),
        "peers": (peer("spark1", intent), peer("spark3", intent)),
    }
    return snapshot("spark2", **(values | changed))


def noted(s: Snapshot) -> list[BootMemory]:
    return [action.boots for action in decide(s).actions if isinstance(action, NoteBoot)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BootMemory(), BootMemory("second")),
        (BootMemory("second", clean=True), BootMemory("second")),
        (BootMemory("first", clean=True), BootMemory("second")),
        (BootMemory("first"), BootMemory("second", resets=(Reset(NOW, 0),))),
        (BootMemory("first", resets=(ONCE,)), BootMemory("second", resets=(ONCE, Reset(NOW, 0)))),
        (BootMemory("first", resets=(Reset(NOW - 90000, 0),)), BootMemory("second", resets=(Reset(NOW, 0),))),
    ],
    ids=["never seen", "restarted", "shut down", "reset", "reset again", "long after"],
)
def test_what_is_remembered_of_a_boot(before: BootMemory, after: BootMemory) -> None:
    assert noted(booted(before)) == [after]
    assert noted(booted(after)) == [], "once"


def test_a_daemon_that_starts_does_not_wait_for_this() -> None:
    assert noted(booted(BootMemory("first"), hardware=None)) == []


@pytest.mark.parametrize(("clean", "sentence"), [(True, "rebooted"), (False, "rebooted without a shutdown")])
def test_the_end_of_a_rank_tells_a_reset_from_a_reboot(clean: bool, sentence: str) -> None:
    s = booted(BootMemory("first", clean), attempt=replace(attempt("spark2", 8), boot_id="first"))
    [record] = [action.attempt for action in decide(s).actions if isinstance(action, Record)]
    assert record.sentence == f"the host has {sentence}"
    assert record.signature == ("reboot" if clean else "node-hard-reset")


def starts(s: Snapshot) -> bool:
    return any(isinstance(action, StartRank) for action in decide(s).actions)


def test_node_hard_reset_twice_within_hours_holds_the_node_out_until_it_is_cleared() -> None:
    """Field report node-hard-reset."""
    assert starts(booted(BootMemory("first")))
    again = booted(BootMemory("first", resets=(ONCE,)))
    [found] = decide(again).findings
    assert (found.id, found.node, found.severity) == ("node-hard-reset", "spark2", "refuse")
    assert found.observed == "it was reset 2 times within 6 h, without a shutdown"
    assert "sparkctl clear" in found.fix
    assert not starts(again)
    [memory] = noted(again)
    later = replace(again, boots=memory, now=NOW + 90000)
    assert decide(later).findings == (found,), "time alone clears nothing"
    cleared = replace(UP, revision=1, clears=1)
    peers = (peer("spark1", cleared), peer("spark3", cleared))
    after = replace(later, intent=cleared, peers=peers)
    assert starts(after)
    assert noted(after) == [BootMemory("second")]


def test_clear_reaches_the_node_without_another_epoch() -> None:
    theirs = decide(booted(BootMemory("first", resets=(ONCE,)))).findings
    s = snapshot("spark1", intent=UP, peers=(peer("spark2", UP, findings=theirs), peer("spark3", UP)))
    assert accept(s, "clear", "x") == Accepted(replace(UP, revision=1, clears=1), new=True)
    down = replace(UP, want="down")
    refused = accept(replace(s, intent=down, peers=(peer("spark2", down, findings=theirs), s.peers[1])), "start", "x")
    assert isinstance(refused, Refused)
    assert [found.id for found in refused.findings] == ["node-hard-reset"]


def test_what_was_cleared_once_stays_so_in_every_later_intent() -> None:
    held = Intent(9, "down", "recovery", "gave up", NOW, held=True, clears=3)
    peers = (peer("spark2", held), peer("spark3", held))
    cleared = accept(snapshot("spark1", intent=held, peers=peers), "clear", "x")
    assert isinstance(cleared, Accepted)
    assert cleared.intent.clears == 4
    again = cleared.intent
    peers = (peer("spark2", again), peer("spark3", again))
    up = accept(snapshot("spark1", intent=again, peers=peers), "start", "x")
    assert isinstance(up, Accepted)
    assert up.intent.clears == 4
    for deaths, want in ((0, "up"), (9, "down")):
        history = tuple(Death(epoch, 1, "spark2", NOW - 500, True, True, "1:x", "y") for epoch in range(deaths))
        running = replace(up.intent, deaths=history)
        ended = attempt("spark2", running.epoch, ended_at=NOW - 400, formed=True, ready=True, signature="signal:9")
        s = snapshot("spark1", intent=running, peers=(peer("spark2", running, attempt=ended), peer("spark3", running)))
        [issued] = [action.intent for action in decide(s).actions if isinstance(action, Adopt)]
        assert (issued.want, issued.clears) == (want, 4)


def test_it_can_be_switched_off() -> None:
    s = booted(BootMemory("first", resets=(ONCE,)), policy=Policy(hard_reset_window=0.0))
    assert decide(s).findings == ()
