"""Draining with real loops: who is told what, how often, and what outlives a daemon."""

from __future__ import annotations

from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until


@in_loop
async def test_rank_0_is_told_over_and_over_but_it_is_news_once() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.ask("stop", of="spark2", drain=60)
        await until(lambda: ring.conductor.units.drains(1) is True)
        for _ in range(3):
            ring.clock.advance(2)
            ring.conductor.wake("units")
            await ring.quiet()
        texts = [event.text for event in ring.conductor.events.since(0, 500).events]
        assert texts.count("sparkd-rank@1.service is to take no new requests") == 1
        assert "epoch 1: drain for 60 s, by operator on spark2" in texts
        assert [ring["spark2"].units.drains(1), ring["spark3"].units.drains(1)] == [False, False]


@in_loop
async def test_daemons_that_are_killed_in_the_middle_go_on_from_their_disks() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.ask("stop", drain=60)
        await until(lambda: all(machine.loop.state.intent.drain is not None for machine in ring))
        ring.conductor.units.status(1, "ready draining 1, busy")
        pids = [machine.pids for machine in ring]
        for machine in ring:
            await machine.kill()
        ring.boot()
        await ring.reach("draining", epoch=1)
        assert [machine.pids for machine in ring] == pids
        ring.conductor.units.status(1, "ready draining 0, idle")
        await ring.reach("down", epoch=2)


@in_loop
async def test_the_time_ends_it_without_any_news() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.ask("stop", drain=0.2)
        await until(lambda: ring.conductor.units.drains(1) is True)
        ring.conductor.units.status(1, "ready draining 5, busy")
        ring.clock.advance(0.3)
        ring.conductor.wake("units")
        await ring.reach("down", epoch=2)


@in_loop
async def test_a_start_takes_it_back() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.ask("stop", drain=60)
        await until(lambda: ring.conductor.units.drains(1) is True)
        ring.conductor.units.status(1, "ready draining 1, busy")
        await ring.quiet()
        await ring.ask("start", of="spark3")
        await until(lambda: ring.conductor.units.drains(1) is False)
        ring.conductor.units.status(1, "ready 1.0 tokens/s")
        await ring.reach("ready", epoch=1)
        texts = [event.text for event in ring.conductor.events.since(0, 500).events]
        assert "epoch 1: drain taken back" in texts


@in_loop
async def test_a_rank_that_does_not_know_how_to_drain_is_named_and_not_ended_by_it() -> None:
    async with cluster() as ring:
        await ring.up()
        ring.conductor.units.cannot_drain(1)
        await ring.ask("stop", drain=60)
        await until(lambda: "a version that cannot drain" in ring.conductor.loop.ring().summary)
        assert ring.conductor.loop.ring().phase == "draining"
        assert ring.conductor.pids != []
        ring.clock.advance(61)
        ring.conductor.wake("units")
        await ring.reach("down", epoch=2)
