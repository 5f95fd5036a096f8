"""What a start knows of its hosts is not older than the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from sparkd.core.reach import ReachFact
from sparkd.reconcile import loop as loops
from sparkd.reconcile.examiner import Examiner
from sparkd.reconcile.kernellog import KernelWatch
from sparkd.reconcile.refusal import Refusal
from tests.core.builders import NODES
from tests.fakes.hardware import FakeHardware
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until

LONG = 60.0


class NoReach:
    """Nobody to be reached. `stuck`: a try that never ends."""

    port = 0
    tries = 0
    stuck = False

    def facts(self) -> tuple[ReachFact, ...]:
        return ()

    async def afresh(self) -> None:
        self.tries += 1
        if self.stuck:
            await asyncio.Event().wait()


class Examined:
    def __init__(self, ring: Cluster) -> None:
        self.ring = ring
        self.hardware = {name: FakeHardware() for name in NODES}
        self.reach = {name: NoReach() for name in NODES}
        self.examiners = {
            name: Examiner(ring[name].loop, self.hardware[name], self.reach[name], LONG) for name in NODES
        }
        for name, examiner in self.examiners.items():
            ring[name].loop.before_start(examiner.afresh)

    async def refusal(self) -> list[tuple[str, str]]:
        with pytest.raises(Refusal) as caught:
            await self.ring.ask("start")
        return [(finding.id, finding.node) for finding in caught.value.findings]


@contextlib.asynccontextmanager
async def examined() -> AsyncIterator[Examined]:
    """A ring that is down, and whose hosts have all been looked at once."""
    async with cluster() as ring:
        await ring.reach("down")
        made = Examined(ring)
        tasks = [asyncio.create_task(examiner.run()) for examiner in made.examiners.values()]
        await until(lambda: all(machine.loop.hardware is not None for machine in ring))
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.mark.parametrize("node", NODES)
@in_loop
async def test_who_has_just_come_refuses_and_who_has_just_left_does_not(node: str) -> None:
    """Field report second-supervisor. No minute passes here, and no tick."""
    async with examined() as bench:
        bench.hardware[node].listen(20000)
        assert await bench.refusal() == [("second-supervisor", node)]
        bench.hardware[node].leave(20000)
        await bench.ring.ask("start")
        await bench.ring.reach("ready")


@in_loop
async def test_a_start_against_which_there_is_nothing_looks_at_the_ports_alone() -> None:
    async with examined() as bench:
        await bench.ring.ask("start")
        assert [(len(door.asked), door.glances) for door in bench.hardware.values()] == [(1, 1)] * 3
        assert [reach.tries for reach in bench.reach.values()] == [1, 1, 1]


@in_loop
async def test_a_start_against_which_there_is_something_looks_at_everything() -> None:
    async with examined() as bench:
        bench.hardware["spark2"].listen(8888)
        await bench.refusal()
        await bench.refusal()
        assert len(bench.hardware["spark2"].asked) == 2
        assert len(bench.hardware["spark1"].asked) == 1


@in_loop
async def test_a_ring_that_is_wanted_up_already_is_not_looked_at_again() -> None:
    async with examined() as bench:
        await bench.ring.ask("start")
        await bench.ring.ask("start")
        assert [door.glances for door in bench.hardware.values()] == [1, 1, 1]


@in_loop
async def test_a_look_that_never_ends_does_not_keep_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "EXAMINATION", 0.05)
    async with examined() as bench:
        bench.reach["spark1"].stuck = bench.reach["spark3"].stuck = True
        bench.hardware["spark2"].listen(20000)
        assert await bench.refusal() == [("second-supervisor", "spark2")]
        bench.hardware["spark2"].leave(20000)
        await bench.ring.ask("start")


@in_loop
async def test_a_peer_that_does_not_answer_is_not_waited_for() -> None:
    async with examined() as bench:
        bench.ring.mesh.cut("spark1", "spark2")
        bench.ring.poll()
        await bench.ring.ask("start")
        assert [door.glances for door in bench.hardware.values()] == [1, 0, 1]
        assert bench.ring.conductor.peers.asked == ["spark3"]


@in_loop
async def test_a_full_look_knows_the_rank_the_planned_addresses_and_the_epoch_that_serves() -> None:
    async with examined() as bench:
        first = bench.hardware["spark1"].asked[0]
        assert (first[0], first[2]) == (0, 0)
        assert first[1]["enp1s0f0np0"] == "10.77.0.1"
        await bench.ring.ask("start")
        await bench.ring.reach("ready")
        bench.ring["spark1"].loop.hardware = None
        await bench.examiners["spark1"].afresh()
        pid, _, serving = bench.hardware["spark1"].asked[-1]
        assert (pid, serving) == (bench.ring["spark1"].pids[0], 1)


@in_loop
async def test_a_function_that_breaks_is_looked_at_at_once() -> None:
    """Field report pcie-fatal: the kernel's log tells it, and the host is not examined for another minute."""
    async with examined() as made:
        examiner, hardware = made.examiners["spark2"], made.hardware["spark2"]
        broken: dict[str, str] = {}
        kernel = KernelWatch(broken, lambda: None, examiner.soon)
        before = len(hardware.asked)
        kernel.hear("mlx5_core 0002:01:00.0: poll_health:800:(pid 0): Fatal error 1 detected", False)
        assert not broken, "from before this daemon: a ring that serves in spite of it is left alone"
        kernel.hear("mlx5_core 0000:01:00.0: poll_health:800:(pid 0): Fatal error 1 detected", True)
        await until(lambda: len(hardware.asked) > before)
        before = len(hardware.asked)
        kernel.hear("mlx5_core 0000:01:00.0: poll_health:800:(pid 0): Fatal error 2 detected", True)
        kernel.hear("mlx5_core 0000:01:00.1: Link down", True)
        await asyncio.sleep(0.01)
        assert len(hardware.asked) == before, "it is known already"
        assert list(broken.values()) == ["poll_health:800:(pid 0): Fatal error 1 detected"]
