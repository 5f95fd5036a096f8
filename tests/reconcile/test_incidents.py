"""Evidence of a failure: kept by every node, shown by any, and never in the way of a stop or a start."""

from __future__ import annotations

import pytest

from sparkd.core.snapshot import Policy
from sparkd.reconcile.refusal import Refusal
from tests.core.builders import NODES
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, turns, until


async def ready(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.ask("start")
    await ring.reach("ready")


async def restarted(ring: Cluster, epoch: int) -> None:
    for _ in range(3):
        ring.clock.advance(6)
        await turns(20)
    await ring.reach("ready", epoch)


def kept(ring: Cluster, epoch: int) -> dict[str, str]:
    """How the rank of each node ended, of those that have all of it."""
    entries = {machine.name: machine.archive.entries.get(epoch) for machine in ring}
    return {name: entry.outcome for name, entry in entries.items() if entry is not None and entry.complete}


@in_loop
async def test_every_node_keeps_its_part_of_a_death() -> None:
    async with cluster() as ring:
        await ready(ring)
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: len(kept(ring, 1)) == 3)
        outcomes = kept(ring, 1)
        assert outcomes["spark2"] == "it was killed by SIGKILL"
        assert outcomes["spark1"] == "stopped by sparkd: rank 1 (spark2) ended: it was killed by SIGKILL"
        entry = ring["spark3"].archive.entries[1]
        assert (entry.root, entry.rank, entry.signature) == ("spark2", 1, "1:signal:9")
        assert entry.first == "RuntimeError: of epoch 1"
        await restarted(ring, 2)
        assert kept(ring, 1) == outcomes
        assert [list(machine.archive.entries) for machine in ring] == [[1]] * 3


@in_loop
async def test_rank_hung_is_looked_at_while_it_is_being_stopped() -> None:
    """Field report rank-hung: the rank that does not obey SIGTERM has ten seconds in which it can be seen."""
    async with cluster() as ring:
        await ready(ring)
        hung = ring["spark1"]
        hung.units.ignore_sigterm(1)
        ring["spark2"].units.die(1, status=70)
        ring["spark3"].units.die(1, status=70)
        await until(lambda: set(kept(ring, 1)) == {"spark2", "spark3"} and 1 in hung.archive.texts)
        assert hung.archive.texts[1]["processes.txt"].startswith("process ")
        assert not hung.archive.entries[1].complete
        hung.units.stop_timeout(1)
        await until(lambda: len(kept(ring, 1)) == 3)
        assert set(hung.archive.texts[1]) == {"processes.txt", "journal.txt", "memory.txt"}


@pytest.mark.parametrize(("lost", "looked"), [("rank 0 (spark1)", True), ("rank 2 (spark3)", False)])
@in_loop
async def test_only_a_rank_that_seems_to_hang_is_looked_at_before_its_stop(lost: str, looked: bool) -> None:
    """systemd sends SIGCONT after SIGTERM, so that afterwards there is nothing left to see of a stopped process."""
    async with cluster() as ring:
        await ready(ring)
        seen: list[str] = []
        hung = ring["spark1"]
        hung.witness.watch = lambda: seen.extend(unit.active for unit in hung.units.loaded())
        ring["spark2"].units.status(1, f"failed {lost} lost: said nothing for 3 s")
        ring["spark2"].units.die(1, status=70)
        await until(lambda: len(kept(ring, 1)) == 3)
        assert (seen[:1] == ["active"]) == looked, seen


@in_loop
async def test_a_stop_that_was_asked_for_leaves_nothing() -> None:
    async with cluster() as ring:
        await ready(ring)
        await ring.ask("stop")
        await ring.reach("down")
        await ring.quiet()
        assert [machine.archive.entries for machine in ring] == [{}] * 3


@in_loop
async def test_a_host_that_started_no_rank_keeps_what_its_kernel_said() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        ring["spark3"].units.installed = False  # so that rank 0, which waits for the others, is never started
        await ring.ask("start")
        await until(lambda: set(kept(ring, 1)) == {"spark1", "spark2", "spark3"})
        assert kept(ring, 1)["spark1"] == "it had started no rank of this epoch"
        assert ring["spark1"].archive.entries[1].root == "spark3"


@in_loop
async def test_so_does_a_conductor_that_issues_the_next_epoch_in_the_same_cycle() -> None:
    """As it does with every hold."""
    async with cluster(Policy(backoff=0.0)) as ring:
        await ring.reach("down")
        ring["spark3"].units.installed = False
        await ring.ask("start")
        await until(lambda: ring.conductor.loop.state.intent.held)
        await until(lambda: kept(ring, 1).get("spark1") == "it had started no rank of this epoch")
        assert ring["spark1"].archive.entries[1].root == "spark3"


@in_loop
async def test_evidence_is_looked_for_once_the_ring_has_had_a_moment_to_stop() -> None:
    async with cluster(boot=False) as ring:
        ring.moment = 0.2
        ring.boot()
        await ready(ring)
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: not any(machine.running for machine in ring))
        await turns(20)
        assert [machine.archive.entries for machine in ring] == [{}] * 3
        await until(lambda: len(kept(ring, 1)) == 3)


@pytest.mark.parametrize("fault", ["witness hangs", "witness refuses", "disk is full"])
@in_loop
async def test_a_collection_that_fails_or_hangs_holds_up_neither_stop_nor_restart(fault: str) -> None:
    async with cluster() as ring:
        await ready(ring)
        for machine in ring:
            machine.witness.hangs = fault == "witness hangs"
            machine.witness.broken = "the journal does not answer" if fault == "witness refuses" else ""
            machine.archive.broken = "no space left" if fault == "disk is full" else ""
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: not any(machine.running for machine in ring))
        await restarted(ring, 2)
        assert kept(ring, 1) == {}
        told = [event.text for event in ring["spark2"].events.since(0, 500).events if event.kind == "error"]
        expected = {"witness hangs": "", "witness refuses": "the journal does not answer", "disk is full": "no space"}
        assert not expected[fault] or any(expected[fault] in text for text in told)


@in_loop
async def test_what_a_daemon_did_not_come_to_is_kept_by_the_next_one_and_only_once() -> None:
    async with cluster() as ring:
        await ready(ring)
        machine = ring["spark2"]
        machine.witness.hangs = True
        machine.units.die(1, signal=9)
        await until(lambda: set(kept(ring, 1)) == {"spark1", "spark3"})
        await machine.kill()
        machine.boot()
        ring.poll()
        await until(lambda: "spark2" in kept(ring, 1))
        first = machine.archive.entries[1]
        await machine.kill()
        machine.boot()
        ring.poll()
        await ring.quiet()
        told = [event.text for event in machine.events.since(0, 500).events if "evidence" in event.text]
        assert machine.archive.entries[1] is first
        assert told == []


@in_loop
async def test_any_node_shows_what_all_have_and_who_is_silent() -> None:
    async with cluster() as ring:
        await ready(ring)
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: len(kept(ring, 1)) == 3)
        listed = await ring["spark3"].loop.incidents()
        assert [(n.node, [i.epoch for i in n.incidents], n.error) for n in listed.nodes] == [
            (n, [1], "") for n in NODES
        ]
        ring.mesh.cut("spark3", "spark1")
        details = await ring["spark3"].loop.incident(1)
        assert [n.error for n in details.nodes] == ["spark1 does not answer", "", ""]
        assert [n.incident.outcome if n.incident else "" for n in details.nodes][1] == "it was killed by SIGKILL"
        assert details.nodes[1].files["journal.txt"].startswith("since ")
        ring.mesh.mend("spark3", "spark1")
        with pytest.raises(Refusal, match="no node has kept anything of epoch 5"):
            await ring["spark1"].loop.incident(5)
