"""The guard of the memory floor: a kill without waiting for anything, and the ring after it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparkd.core.snapshot import Policy
from sparkd.reconcile.floor import FloorGuard
from sparkd.reconcile.kernellog import KernelWatch
from tests.fakes import FakeClock, FakeUnits
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, turns, until

GIB = 1024 * 1024
POLICY = Policy(backoff=0.0, memory_floor_kib=4 * GIB)


@dataclass
class Host:
    """What the guard is given. `stuck`: systemd does not answer."""

    units: FakeUnits
    clock: FakeClock
    gib: float = 20.0
    refused: str = ""
    looks: int = 0
    told: list[tuple[int, str]] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    guards: list[FloorGuard] = field(default_factory=list)

    def available(self) -> int:
        self.looks += 1
        return int(self.gib * GIB)

    def kill(self, epoch: int) -> str:
        self.killed.append(epoch)
        return self.refused

    def befell(self, epoch: int, sentence: str) -> None:
        assert not self.killed
        self.told.append((epoch, sentence))

    def guard(self) -> FloorGuard:
        return FloorGuard(
            self.available, self.units, self.clock, befell=self.befell, kill=self.kill, error=self.errors.append
        )


async def watched(ring: Cluster, name: str = "spark2") -> tuple[Host, asyncio.Task[None]]:
    machine = ring[name]
    host = Host(machine.units, ring.clock)
    guard = FloorGuard(
        host.available, machine.units, ring.clock, befell=machine.loop.befell, kill=host.kill, error=host.errors.append
    )
    host.guards.append(guard)
    machine.loop.follow(guard.see)
    machine.wake("units")
    task = asyncio.create_task(guard.run())
    await until(lambda: host.looks > 0)
    return host, task


@in_loop
async def test_memory_floor_ends_the_rank_and_the_ring_comes_back_once() -> None:
    """Field report memory-floor."""
    async with cluster(POLICY) as ring:
        await ring.up()
        host, task = await watched(ring)
        host.gib = 1.5
        began = ring.conductor.loop.cycles
        await until(lambda: not ring["spark2"].running or ring["spark2"].running[0].epoch == 2)
        host.gib = 20.0
        await ring.reach("ready", epoch=2)
        [death] = ring.conductor.loop.state.intent.deaths
        assert (death.node, death.signature) == ("spark2", "1:incident:memory-floor")
        assert death.sentence.startswith("memory-floor: 1.5 GiB of memory available")
        assert ring.conductor.loop.cycles > began
        host.gib = 1.5
        await ring.reach("held")
        assert ring.conductor.loop.state.intent.reason.startswith("out of memory 2 times")
        task.cancel()


@in_loop
async def test_a_driver_without_memory_ends_the_rank_only_when_little_is_left() -> None:
    """Field report memory-floor: NV_ERR_NO_MEMORY, which engines that come up well leave in the kernel's log too."""
    async with cluster(POLICY) as ring:
        await ring.up()
        host, task = await watched(ring)
        looks = host.looks
        kernel = KernelWatch({}, host.guards[0].driver_says, lambda: None)
        kernel.hear("NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY]", True)
        await until(lambda: host.looks > looks)
        assert ring["spark2"].running
        host.gib = 6.0
        kernel.hear("NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY]", False)  # from before this daemon
        kernel.hear("NVRM: Xid (PCI:000f:01:00): 31", True)
        await turns(200)
        assert ring["spark2"].running
        kernel.hear("NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY]", True)
        await ring.reach("ready", epoch=2)
        [death] = ring.conductor.loop.state.intent.deaths
        assert (death.node, death.signature) == ("spark2", "1:incident:memory-floor")
        assert death.sentence.startswith("memory-floor: the driver is out of memory")
        task.cancel()


@in_loop
async def test_a_driver_without_memory_is_nothing_to_a_host_without_a_rank() -> None:
    host = Host(FakeUnits(), FakeClock(), gib=6.0)
    guard = host.guard()
    guard._floor = 4 * GIB
    guard.driver_says()
    await guard.look(7)
    assert not host.told


@in_loop
async def test_the_kill_does_not_wait_for_a_daemon_that_is_stuck() -> None:
    """Its cycle hangs in a save to a disk that does not answer."""
    async with cluster(POLICY) as ring:
        await ring.up()
        host, task = await watched(ring)
        ring["spark2"].doom.hangs = True
        host.gib = 1.5
        await until(lambda: not ring["spark2"].running)
        ring["spark2"].doom.hangs = False
        task.cancel()


@in_loop
async def test_when_systemd_does_not_answer_the_processes_are_killed_one_by_one() -> None:
    units = FakeUnits()
    for broken, refused, said in (
        ("systemd did not answer within 5 s", "", "killed directly"),
        ("systemd did not answer within 5 s", "cannot kill pid 7: Operation not permitted", "cannot kill pid 7"),
    ):
        units.broken = broken
        host = Host(units, FakeClock(), gib=1.0, refused=refused)
        guard = host.guard()
        guard._floor = 4 * GIB
        assert await guard.look(7) < 1.0, "it is tried again at once"
        assert host.killed == [7]
        assert host.told == [(7, "memory-floor: 1.0 GiB of memory available")]
        assert said in host.errors[0]


class Hanging(FakeUnits):
    async def kill(self, epoch: int) -> None:
        await asyncio.Event().wait()


@in_loop
async def test_a_systemd_that_hangs_is_given_two_seconds() -> None:
    host = Host(Hanging(), FakeClock(), gib=1.0)
    guard = host.guard()
    guard._floor = 4 * GIB
    began = asyncio.get_running_loop().time()
    await guard.look(7)
    assert 1.5 < asyncio.get_running_loop().time() - began < 5.0
    assert host.killed == [7]


@in_loop
async def test_without_a_rank_nothing_is_looked_at() -> None:
    async with cluster(POLICY) as ring:
        await ring.up()
        host, task = await watched(ring)
        await ring.ask("stop")
        await ring.reach("down")
        await ring.quiet()
        looks = host.looks
        host.gib = 1.0
        await turns(200)
        assert host.looks == looks
        assert not host.killed
        task.cancel()


@in_loop
async def test_memory_that_cannot_be_read_is_told_and_kills_nobody() -> None:
    host = Host(FakeUnits(), FakeClock())

    def broken() -> int:
        raise OSError("no such file")

    guard = FloorGuard(broken, host.units, host.clock, befell=host.befell, kill=host.kill, error=host.errors.append)
    assert await guard.look(7) > 1.0
    assert (host.told, host.killed) == ([], [])
    assert "is not watched: no such file" in host.errors[0]
