"""The settle gate: memory that was there before the last start is back before the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core.actions import StartRank
from sparkd.core.decide import decide
from sparkd.core.hardware import HardwareFacts, PciFacts
from sparkd.core.intent import Accepted, Refused, accept
from sparkd.core.model import HostFacts, Intent
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import CABLES, NOW, attempt, peer, running, snapshot

GIB = 1024 * 1024
UP = Intent(8, "up", "recovery", "restart", NOW, cables=CABLES)
SPARK = HardwareFacts(pci=PciFacts(gb10=True))


def settling(available: float, *, ended: float = 12, policy: Policy | None = None, **changed: Any) -> Snapshot:
    """spark2 after a rank of epoch 7, before which 107 GiB were available, ended so many seconds ago."""
    last = attempt("spark2", 7, ended_at=NOW - ended, sentence="it left", available_kib=107 * GIB)
    values: dict[str, Any] = {
        "intent": UP,
        "host": HostFacts("boot-spark2", 121 * GIB, int(available * GIB)),
        "attempt": last,
        "policy": policy or Policy(memory_back=0.9),
        "peers": (peer("spark1", UP), peer("spark3", UP)),
    }
    return snapshot("spark2", **(values | changed))


def starts(s: Snapshot) -> list[StartRank]:
    return [action for action in decide(s).actions if isinstance(action, StartRank)]


def test_a_start_waits_for_the_memory_and_looks_again_by_itself() -> None:
    """Field report memory-not-back."""
    s = settling(31)
    assert starts(s) == []
    decision = decide(s)
    assert decision.after == 1.0
    assert decision.waits == (
        "spark2: memory: 31.0 GiB available, waiting for 96.3 GiB to be back (12 s); "
        "expected 96.3 GiB, of the 107.0 GiB before the last start",
    )
    assert [found.severity for found in decision.findings] == ["repair"]
    [start] = starts(settling(97))
    assert start.attempt.available_kib == 107 * GIB, "the most of this boot, so that it cannot go bit by bit"


def test_after_the_deadline_it_is_refused_with_what_to_do() -> None:
    s = settling(31, ended=121)
    assert starts(s) == []
    [found] = decide(s).findings
    assert (found.id, found.severity) == ("memory-not-back", "refuse")
    assert "31.0 GiB available, not 96.3 GiB after 121 s" in found.observed
    assert "reboot the node" in found.fix
    assert decide(s).after is None
    assert starts(settling(97, ended=121)) != [], "and goes on by itself should it come back after all"


def test_other_hosts_wait_too_and_a_start_that_is_asked_for_is_told() -> None:
    down = replace(UP, want="down")
    for ended, kind in ((12, Accepted), (121, Refused)):
        theirs = decide(settling(31, ended=ended, intent=down)).findings
        peers = (peer("spark2", UP, findings=theirs), peer("spark3", UP))
        assert starts(snapshot("spark1", intent=UP, peers=peers)) == []
        asked = snapshot("spark1", intent=down, peers=(peer("spark2", down, findings=theirs), peer("spark3", down)))
        assert isinstance(accept(asked, "start", "x"), kind)


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": Policy()},
        {"policy": Policy(memory_back=0.0), "hardware": SPARK},
        {"attempt": None},
        {"attempt": attempt("spark2", 7, ended_at=NOW - 1, available_kib=0)},
        {"attempt": replace(attempt("spark2", 7, ended_at=NOW - 1, available_kib=107 * GIB), boot_id="before")},
    ],
    ids=["no Spark", "switched off", "first start", "nothing remembered", "another boot"],
)
def test_where_nothing_is_remembered_nothing_is_waited_for(changed: dict[str, Any]) -> None:
    assert "memory-not-back" not in [found.id for found in decide(settling(31, **changed)).findings]


def test_on_a_spark_it_is_on_by_default() -> None:
    s = settling(31, policy=Policy(), hardware=SPARK)
    assert [found.id for found in decide(s).findings if found.severity == "repair"] == ["memory-not-back"]


def test_a_running_rank_has_its_memory() -> None:
    s = settling(31, units=(running(8),), attempt=attempt("spark2", 8, available_kib=107 * GIB))
    assert decide(s).findings == ()


def test_a_clock_that_was_set_back_does_not_end_the_wait_early() -> None:
    [found] = decide(settling(31, ended=-5000)).findings
    assert (found.severity, "(0 s)" in found.observed) == ("repair", True)
