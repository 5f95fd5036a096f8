"""The last hour as it is kept: bounded, without gaps where nothing was seen, and never a wrong rate."""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace

from sparkd import wire
from sparkd.core import progress
from sparkd.core.decide import decide
from sparkd.core.facts import HostFacts, PortBytes, RoceFact, Unknown
from sparkd.core.model import Intent
from sparkd.core.snapshot import Snapshot
from sparkd.reconcile.samples import KEPT, STEP, History, RailHistory, Samples
from tests.core.builders import NOW, attempt, running, snapshot

PORT = "enp1s0f0np0"


def serving(text: str = "ready 12.5 tokens/s, 2 running, 1 queued", traffic: int = 0) -> Snapshot:
    intent = Intent(7, "up", "operator", "start asked for", NOW)
    mine = attempt("spark1", formed=True, ready=True)
    host = HostFacts("boot-spark1", 1000, 400, traffic=(PortBytes(PORT, traffic, 2 * traffic),))
    return snapshot(intent=intent, units=(running(text=text),), attempt=mine, host=host)


def see(samples: Samples, s: Snapshot, at: float) -> None:
    samples.see(replace(s, now=NOW + at), decide(s), at)


def rail(history: History) -> RailHistory:
    return next(rail for rail in history.rails if rail.device == PORT)


def test_a_sample_has_what_a_cycle_saw() -> None:
    samples = Samples()
    see(samples, serving(traffic=1000), 100.0)
    see(samples, serving("ready idle, canary 3.0 s ago", traffic=3000), 110.0)
    history = samples.after(0, "spark1")
    assert (history.node, history.last, history.step) == ("spark1", 2, STEP)
    assert history.at == (NOW + 100, NOW + 110)
    assert (history.memory_total, history.memory_available) == (1000 * 1024, (400 * 1024, 400 * 1024))
    assert (history.tokens_per_second, history.running, history.queued) == ((12.5, 0), (2, 0), (1, 0))
    assert (rail(history).received, rail(history).sent) == ((None, 200), (None, 400))
    assert all(set(other.received) == {None} for other in history.rails if other.device != PORT)
    assert wire.loads(History, wire.dumps(history)) == history


def test_cycles_in_between_add_nothing() -> None:
    samples = Samples()
    for tenth in range(1000):
        see(samples, serving(), tenth / 10)
    assert 9 <= samples.after(0, "spark1").last <= 12


def test_what_is_not_known_is_null_and_not_nought() -> None:
    samples = Samples()
    see(samples, serving("ready canary 1", traffic=100), 0.0)
    see(samples, replace(serving(), host=Unknown("no /proc"), units=Unknown("no systemd")), 10.0)
    see(samples, serving(traffic=500), 20.0)
    see(samples, serving(traffic=3), 30.0)  # the device has been reset
    see(samples, serving(traffic=103), 40.0)
    history = samples.after(0, "spark1")
    assert history.tokens_per_second == (None, None, 12.5, 12.5, 12.5)
    assert history.memory_available[:3] == (400 * 1024, None, 400 * 1024)
    assert rail(history).received == (None, None, None, None, 10)


def test_numbers_that_no_engine_can_mean_are_not_known() -> None:
    samples = Samples()
    see(samples, serving(f"ready {'9' * 310}.0 tokens/s, 2 running, 1 queued"), 0.0)
    see(samples, serving(f"ready 1.0 tokens/s, {'9' * 50} running, 1 queued"), 10.0)
    history = samples.after(0, "spark1")
    assert (history.tokens_per_second, history.running) == ((None, None), (None, None))
    assert wire.loads(History, wire.dumps(history)) == history
    assert progress.parse(f"load {'9' * 400}/1 x").total is None


def test_rdma_counts_with_the_rest() -> None:
    samples = Samples()
    for at, count in ((0.0, 0), (10.0, 500)):
        roce = (RoceFact("rocep1s0f0", "ACTIVE", PORT, None, count, 2 * count), RoceFact("rxe0", "ACTIVE", PORT))
        see(samples, replace(serving(traffic=count), roce=roce), at)
    history = samples.after(0, "spark1")
    assert (rail(history).received[1], rail(history).sent[1]) == (100, 200)


def test_it_never_grows_and_is_asked_for_in_parts() -> None:
    samples = Samples()
    assert samples.after(0, "spark1").at == ()
    for number in range(2 * KEPT):
        see(samples, serving(), number * STEP)
    whole, part = samples.after(0, "spark1"), samples.after(2 * KEPT - 3, "spark1")
    assert (len(whole.at), whole.last, len(whole.rails[0].sent)) == (KEPT, 2 * KEPT, KEPT)
    assert (part.at, part.phases) == (whole.at[-3:], whole.phases[-3:])
    assert samples.after(2 * KEPT, "spark1").at == () == samples.after(10**9, "spark1").at
    kept = sum(sys.getsizeof(row) for row in samples._rows) + sum(sys.getsizeof(at) for at in samples._at)
    assert all(isinstance(row, array) for row in samples._rows)
    assert kept < 64 * 1024
