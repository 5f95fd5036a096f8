"""Maintenance with real loops: from any node, on all nodes, told in events and status."""

from __future__ import annotations

import pytest

from sparkd.reconcile.refusal import Refusal
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until


@in_loop
async def test_a_hold_from_any_node_reaches_all_and_outlasts_their_daemons() -> None:
    async with cluster() as ring:
        await ring.up()
        pids = [machine.pids for machine in ring]
        await ring.ask("hold", of="spark3", reason="a new cable")
        await until(lambda: all(machine.loop.ring().maintenance is not None for machine in ring))
        for machine in ring:
            told = machine.loop.ring()
            assert told.maintenance is not None
            assert (told.maintenance.by, told.maintenance.reason) == ("operator on spark3", "a new cable")
            assert (told.phase, told.epoch) == ("ready", 1)
            texts = [event.text for event in machine.events.since(0, 500).events]
            assert "epoch 1: maintenance, by operator on spark3: a new cable" in texts
        for machine in ring:
            await machine.kill()
        ring["spark2"].units.die(1, signal=9)
        ring.boot()
        await ring.reach("maintenance", epoch=1)
        await ring.quiet()
        assert [ring["spark1"].pids, ring["spark2"].pids, ring["spark3"].pids] == [pids[0], [], pids[2]]
        with pytest.raises(Refusal, match="stay as they are: the ring is in maintenance"):
            await ring["spark2"].loop.release(True, "operator")
        await ring.ask("stop", force=True)
        await ring.reach("down", epoch=2)
        assert ring.conductor.loop.ring().maintenance is None


@in_loop
async def test_resume_is_told_with_who_ended_it() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        await ring.ask("hold")
        await ring.ask("resume", of="spark2")
        await until(lambda: all(machine.loop.state.intent.revision == 2 for machine in ring))
        for machine in ring:
            texts = [event.text for event in machine.events.since(0, 500).events]
            assert "epoch 0: maintenance ended by operator on spark2" in texts
        await ring.ask("start")
        await ring.reach("ready", epoch=1)
