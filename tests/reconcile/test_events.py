"""What is told, how often, and what a reader of the log gets."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from sparkd.core import findings as catalogue
from sparkd.core.decide import Decision, decide
from sparkd.core.model import Intent, RankUnit
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.messages import as_audit, message_id
from tests.core.builders import NODES, NOW, attempt, peer, running, snapshot
from tests.fakes import FakeClock

CABLE = catalogue.cable_missing("spark1", 0, ["enp1s0f0np0"], 2, "spark2", 1)
OTHER_CABLE = catalogue.cable_missing("spark1", 1, ["enp1s0f1np1"], 2, "spark3", 0)


@pytest.fixture
def log() -> EventLog:
    return EventLog("spark1", FakeClock(NOW))


def told(log: EventLog) -> list[str]:
    return [event.text for event in log.since(0, 500).events]


def silent_for(age: float) -> Decision:
    """The ring serves, and one peer has not been heard for so long."""
    intent = Intent(7, "up", "operator", "start asked for", NOW)
    mine = attempt("spark1", formed=True, ready=True)
    peers = [peer(name, intent, attempt=attempt(name, formed=True, ready=True), units=(running(),)) for name in NODES]
    quiet = replace(peers[2], age=age)
    return decide(snapshot(intent=intent, units=(running(),), attempt=mine, peers=(peers[1], quiet)))


def starting(unit: RankUnit) -> Decision:
    return decide(snapshot(units=(unit,), attempt=attempt("spark1")))


def test_a_summary_is_told_once(log: EventLog) -> None:
    decision = silent_for(0.1)
    for _ in range(3):
        log.summary(decision)
    assert told(log) == ["epoch 7 is ready: all 3 ranks serve"]


def test_seconds_that_pass_are_no_news(log: EventLog) -> None:
    for age in (16.0, 17.0, 99.0):
        log.summary(silent_for(age))
    assert told(log) == ["epoch 7 serves, but spark3 has not answered for 16 s"]


def test_counts_that_grow_are_no_news_but_the_next_stage_is(log: EventLog) -> None:
    for text in ("load 1/9 shards", "load 2/9 shards", "warmup 1/6", "warmup 5/6"):
        log.summary(starting(running(text=text, active="activating")))
    assert [text.partition("(spark1): ")[2] for text in told(log)] == [
        "load 1/9, shards (and 2 more)",
        "warmup 1/6 (and 2 more)",
    ]


def test_the_same_words_in_another_epoch_are_news(log: EventLog) -> None:
    decision = silent_for(0.1)
    log.summary(decision)
    log.summary(replace(decision, intent=replace(decision.intent, epoch=8)))
    assert len(told(log)) == 2


def test_what_was_told_before_is_news_after_something_else(log: EventLog) -> None:
    for age in (0.1, 16.0, 0.1):
        log.summary(silent_for(age))
    assert len(told(log)) == 3


def test_a_finding_is_told_when_it_appears_and_when_it_is_put_right(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparkd")
    for found in ((CABLE,), (CABLE,), (CABLE, OTHER_CABLE), (OTHER_CABLE,)):
        log.findings(found)
    assert told(log) == [
        f"cable-missing: {CABLE.sentence}. Fix: {CABLE.fix}",
        f"cable-missing: {OTHER_CABLE.sentence}. Fix: {OTHER_CABLE.fix}",
        "cable-missing: spark1: port 0: put right",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_a_finding_that_comes_back_is_news(log: EventLog) -> None:
    for found in ((CABLE,), (), (CABLE,)):
        log.findings(found)
    assert len(told(log)) == 3


def test_every_event_is_one_line_of_the_journal(log: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparkd")
    log.add("action", "starting sparkd-rank@7.service")
    log.error("systemd did not answer within 5 s")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "starting sparkd-rank@7.service"),
        ("ERROR", "systemd did not answer within 5 s"),
    ]
    assert [event.kind for event in log.since(0, 9).events] == ["action", "error"]


def test_events_carry_the_epoch_and_phase_they_belong_to(log: EventLog) -> None:
    log.add("error", "before")
    log.at(Intent(7, "up"), "starting")
    log.add("action", "after")
    first, second = log.since(0, 9).events
    assert (first.epoch, first.phase, first.node, first.at) == (0, "down", "spark1", NOW)
    assert (second.epoch, second.phase) == (7, "starting")


def test_readers_go_on_after_what_they_have_seen(log: EventLog) -> None:
    for number in range(1, 6):
        log.add("action", str(number))
    seen = log.since(3, 500)
    assert [(event.id, event.text) for event in seen.events] == [(4, "4"), (5, "5")]
    assert seen.last == 5
    assert log.since(5, 500).events == ()
    assert not seen.lost
    assert log.since(99, 500).lost, "the id is of the daemon before this one"
    assert [event.id for event in log.since(99, 500).events] == [1, 2, 3, 4, 5]


def test_a_limit_keeps_the_newest(log: EventLog) -> None:
    for number in range(1, 6):
        log.add("action", str(number))
    seen = log.since(1, 2)
    assert [event.id for event in seen.events] == [4, 5]
    assert seen.last == 5
    assert seen.lost, "whoever goes on after the last would never hear of 2 and 3"
    assert not log.since(3, 2).lost
    assert log.since(0, 0).events == ()


def test_ids_go_on_when_the_oldest_events_are_dropped(log: EventLog) -> None:
    for number in range(1, 1001):
        log.add("action", str(number))
    ids = [event.id for event in log.since(0, 1000).events]
    assert ids == list(range(501, 1001))


def journalled(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [record.journal for record in caplog.records if hasattr(record, "journal")]


def test_each_line_has_fields_to_select_by(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = EventLog("spark1", FakeClock(NOW), {"spark1": 0, "spark2": 1})
    log.summary(silent_for(0.1))
    log.findings((replace(CABLE, node="spark2"),))
    log.findings(())
    log.add("intent", "epoch 9: up", epoch=9)
    summary, found, gone, intent = journalled(caplog)
    assert summary == {
        "MESSAGE_ID": message_id("summary-ready"),
        "SPARKD_EVENT": "summary",
        "SPARKD_EPOCH": "7",
        "SPARKD_PHASE": "ready",
        "SPARKD_NODE": "spark1",
        "SPARKD_RANK": "0",
    }
    assert found == {
        **summary,
        "MESSAGE_ID": message_id("finding-cable-missing"),
        "SPARKD_EVENT": "finding",
        "SPARKD_NODE": "spark2",
        "SPARKD_RANK": "1",
        "SPARKD_FINDING": "cable-missing",
        "SPARKD_SUBJECT": CABLE.subject,
        "SPARKD_OBSERVED": CABLE.observed,
        "SPARKD_EXPECTED": CABLE.expected,
        "SPARKD_FIX": CABLE.fix,
    }
    assert gone == {**found, "MESSAGE_ID": message_id("finding-gone")}
    assert (intent["SPARKD_EPOCH"], intent["MESSAGE_ID"]) == ("9", message_id("intent"))


def test_no_line_for_a_cycle_without_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = EventLog("spark1", FakeClock(NOW))
    for age in range(16, 100):
        log.summary(silent_for(float(age)))
        log.findings((CABLE,))
    assert len(journalled(caplog)) == 2


def test_who_asked_for_a_change_is_a_kind_of_its_own() -> None:
    record = logging.LogRecord("sparkd.audit", logging.INFO, "", 0, "start by root", (), None)
    assert as_audit(record)
    assert record.__dict__["journal"] == {"MESSAGE_ID": message_id("audit"), "SPARKD_EVENT": "audit"}
