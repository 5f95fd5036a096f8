"""What an operator's request is answered, and what has happened by then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import pytest

from sparkd import wire
from sparkd.core.intent import Request
from sparkd.core.snapshot import Policy
from sparkd.reconcile.loop import Forwarded
from sparkd.reconcile.refusal import Refusal
from sparkd.wire import Operation
from tests.core.builders import NOW
from tests.reconcile.alone import alone, published
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until


@in_loop
async def test_a_start_is_on_the_disk_and_told_to_the_peers_before_its_answer() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        answer = await machine.loop.request("start", "operator")
        assert answer == Operation("/v1/operations/4", 4, "up", machine.loop.ring().summary)
        intent = machine.disk.intent
        assert intent is not None
        assert (intent.epoch, intent.want, intent.by, intent.at) == (4, "up", "operator", NOW)
        assert published(machine).intent == intent
        assert machine.loop.ring().epoch == 4


@in_loop
async def test_a_start_that_is_already_so_makes_no_new_epoch() -> None:
    async with cluster() as ring:
        await ring.up()
        answer = await ring.ask("start")
        assert answer == Operation(
            "/v1/operations/1", 1, "up", "already wanted up: epoch 1 is ready: all 3 ranks serve"
        )
        assert ring.conductor.loop.operation(1) is not None
        assert ring.conductor.loop.state.intent.epoch == 1


@in_loop
async def test_a_refused_start_changes_nothing_and_is_told() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        machine.links.unplug("enp1s0f0np0")
        machine.loop.wake("network")
        before = machine.disk.intent
        with pytest.raises(Refusal) as caught:
            await machine.loop.request("start", "operator")
        assert caught.value.code == "start-refused"
        assert [finding.id for finding in caught.value.findings] == ["cable-missing"]
        assert machine.disk.intent == before
        last = machine.events.since(0, 500).events[-1]
        assert last.kind == "intent"
        assert last.text == f"start by operator refused: {caught.value.sentence}"


@pytest.mark.parametrize("request_", ["start", "clear"])
def test_a_request_that_cannot_be_saved_is_refused_and_changes_nothing(request_: Request) -> None:
    @in_loop
    async def ask() -> None:
        async with cluster(Policy(backoff=0.0, restarts=0)) as ring:
            if request_ == "clear":
                await ring.up()
                ring["spark3"].units.die(1, signal=11)
                await ring.reach("held")
            else:
                await ring.reach("down")
            await ring.quiet()
            machine = ring.conductor
            before = machine.disk.intent, machine.loop.state.intent, published(machine)
            events = machine.events.since(0, 500).last
            machine.disk.full = True
            with pytest.raises(Refusal) as caught:
                await machine.loop.request(request_, "operator")
            assert caught.value.code == "not-saved"
            assert caught.value.sentence == (
                "the request could not be saved: /var/lib/sparkd/intent.json cannot be saved: No space left on device"
            )
            await ring.quiet()
            assert (machine.disk.intent, machine.loop.state.intent, published(machine)) == before
            told = machine.events.since(events, 500).events
            assert [(event.kind, event.text) for event in told] == [
                ("error", f"{request_} by operator could not be saved: {caught.value.sentence.partition(': ')[2]}")
            ]

    ask()


@in_loop
async def test_what_follows_from_a_request_is_told_under_its_epoch() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.ask("stop")
        told = [event for event in ring.conductor.events.since(0, 500).events if event.epoch == 2]
        assert told[0].kind == "intent"
        assert told[0].text == "epoch 2: down, by operator on spark1: stop asked for"
        assert (told[1].kind, told[1].phase) == ("summary", "stopping")


@in_loop
async def test_only_the_conductor_issues_epochs() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        with pytest.raises(Refusal) as caught:
            await ring["spark2"].loop.conduct(wire.PeerRequest("start", "operator"))
        assert (caught.value.code, caught.value.sentence) == (
            "not-conductor",
            "spark2 is not the conductor, spark1 is",
        )


@in_loop
async def test_the_conductors_answer_is_relayed_as_it_is() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        asked: list[Mapping[str, object]] = []

        async def answer(body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
            asked.append(body)
            return 418, {"code": "teapot"}

        ring.mesh.handlers["spark1"] = answer
        assert await ring.ask("clear", "spark3") == Forwarded(418, {"code": "teapot"})
        assert asked == [wire.encode(wire.PeerRequest("clear", "operator on spark3"))]


@in_loop
async def test_operations_run_are_done_fail_or_are_superseded() -> None:
    async with cluster(Policy(backoff=0.0, restarts=0)) as ring:
        loop = ring.conductor.loop
        await ring.reach("down")
        ring.slow_engine = True
        await ring.ask("start")
        states = {}
        for phase in ("starting", "ready"):
            await ring.reach(phase)
            for node in ring:
                found = node.loop.operation(1)
                assert found is not None
                states[phase, node.name] = found.state
            ring.slow_engine = False
            ring.engine()
        assert {state for (phase, _), state in states.items() if phase == "starting"} == {"running"}
        assert {state for (phase, _), state in states.items() if phase == "ready"} == {"done"}
        ring["spark3"].units.die(1, signal=11)
        await ring.reach("held")
        superseded, failed = loop.operation(1), loop.operation(2)
        assert superseded is not None
        assert superseded.state == "superseded"
        assert (superseded.want, superseded.ended, superseded.superseded_by) == ("up", "done", 2)
        how, by, now = superseded.summary.split("; ", 2)
        reason = "0 restarts within 60 min were not enough: rank 2 (spark3) ended: it was killed by SIGSEGV"
        assert (how, by) == ("it got ready", f"superseded by epoch 2, by recovery: {reason}")
        assert now.startswith("epoch 2 is in force: held: ")
        assert failed is not None
        assert (failed.state, failed.want) == ("failed", "down")
        assert loop.operation(3) is None
        assert loop.operation(0) is None


@in_loop
async def test_what_became_of_an_operation_is_told_by_what_is_known() -> None:
    async with cluster(Policy(backoff=0.0)) as ring:
        await ring.reach("down")
        ring.slow_engine = True
        await ring.ask("start")
        await ring.reach("starting")
        await ring.ask("stop")
        await ring.reach("down")
        ring.slow_engine = False
        await ring.ask("start")
        await ring.reach("ready", epoch=3)
        ring["spark3"].units.die(3, signal=11)
        await ring.reach("ready", epoch=4)
        for machine in ring:
            told = [machine.loop.operation(epoch) for epoch in (1, 2, 3, 4)]
            assert [(o.want, o.state, o.ended, o.superseded_by) for o in told if o is not None] == [
                ("up", "superseded", "unfinished", 2),
                ("down", "superseded", "done", 3),
                ("up", "superseded", "done", 4),
                ("up", "done", "", None),
            ]
            assert "superseded by epoch 4, by recovery: rank 2 (spark3) ended: it was killed by SIGSEGV" in str(told[2])
        await ring["spark2"].kill()
        ring["spark2"].boot()
        await ring.reach("ready", epoch=4)
        told = [ring["spark2"].loop.operation(epoch) for epoch in (2, 3)]
        assert [(o.want, o.ended) for o in told if o is not None] == [("", "unknown"), ("up", "done")]
        assert "before this daemon has started" in str(told[0])
        assert "it got ready; rank 2 (spark3) ended: it was killed by SIGSEGV" in str(told[1])


@in_loop
async def test_the_status_tells_what_is_left_of_the_budget() -> None:
    async with cluster(Policy(backoff=0.0)) as ring:
        await ring.up()
        assert ring.conductor.loop.ring().budget == wire.BudgetStatus(0, 3, 3600.0)
        ring["spark3"].units.die(1, signal=11)
        await ring.reach("ready", epoch=2)
        assert {machine.loop.ring().budget for machine in ring} == {wire.BudgetStatus(1, 3, 3600.0)}
        ring.clock.advance(3601)
        assert ring.conductor.loop.ring().budget == wire.BudgetStatus(0, 3, 3600.0)


@in_loop
async def test_a_stop_needs_no_disk() -> None:
    async with cluster() as ring:
        await ring.up()
        ring.conductor.disk.full = True
        await ring.ask("stop", of="spark3")
        await until(lambda: not any(machine.running for machine in ring))
        assert ring["spark2"].loop.state.intent.want == "down"
        ring.conductor.disk.full = False


@in_loop
async def test_what_cannot_be_saved_leads_the_sentence() -> None:
    async with cluster(Policy(backoff=0.0)) as ring:
        await ring.up()
        ring.conductor.disk.full = True
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: "No space left on device" in ring.conductor.loop.ring().summary)
        assert "No space left on device" in ring.conductor.loop.ring().waits[0]
        ring.conductor.disk.full = False


@pytest.mark.parametrize("node", ["spark1", "spark3"])
def test_a_stop_is_not_overtaken_by_a_start_that_was_asked_for_before(node: str) -> None:
    """1. The ring is down, and a start is asked for: all hosts look at themselves first. 2. Whoever asked changes their
    mind and asks for a stop, which is answered: already down. 3. The hosts have looked. The ring stays down."""

    @in_loop
    async def ask() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            looks, may_go_on = asyncio.Event(), asyncio.Event()

            async def examine() -> None:
                looks.set()
                await may_go_on.wait()

            ring.conductor.loop.before_start(examine)
            start = asyncio.create_task(ring.ask("start", node))
            await looks.wait()
            await ring.ask("stop", node)
            may_go_on.set()
            with contextlib.suppress(Refusal):
                answer = await start
                assert isinstance(answer, Forwarded)
                assert (answer.status, answer.body["code"]) == (409, "overtaken")
            await ring.quiet()
            assert ring.conductor.loop.state.intent.want == "down"
            assert not any(machine.units.started for machine in ring)
            await ring.up()

    ask()
