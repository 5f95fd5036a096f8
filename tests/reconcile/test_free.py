"""A stop that proves that the hosts are free, with real loops."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core.model import Process
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until

LEFT = Process(812, "sparkd-rank", "engine", "sparkd-rank@1.service")


@in_loop
async def test_a_process_that_outlives_its_unit_holds_the_stop_up_until_it_is_gone() -> None:
    async with cluster() as ring:
        await ring.up()
        # Nobody is told of it: the daemon has to look, also after its last look at the host.
        host = ring["spark2"].host
        host.facts = replace(host.facts, rank_processes=(LEFT,))
        await ring.ask("stop")
        await ring.quiet()
        assert ring.phases() == dict.fromkeys(ring.phases(), "stopping")
        assert not any(machine.running for machine in ring)
        assert "pid 812 (engine, user sparkd-rank) is left" in ring.conductor.loop.ring().summary
        host.facts = replace(host.facts, rank_processes=())
        await ring.reach("down")


@in_loop
async def test_a_stop_is_asked_for_again_and_again() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        ring.slow_engine = True
        await ring.ask("start")
        await until(lambda: any(machine.running for machine in ring))
        first = await ring.ask("stop")
        for node in ("spark2", "spark1", "spark3"):
            await ring.ask("stop", of=node)
        await ring.reach("down")
        assert ring.conductor.loop.state.intent.epoch == getattr(first, "epoch", 0) == 2
