"""Changes that expect an epoch, that are only tried, and answers that have not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkd import wire
from sparkd.core.hardware import HardwareFacts, PciFacts
from sparkd.core.reach import ReachFact
from sparkd.core.snapshot import Policy
from tests.api.serving import BEARER, api
from tests.api.test_operators import exactly
from tests.core.builders import NODES
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until

EVERY_CHANGE = ["start", "stop", "clear", "hold", "resume"]


async def down(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.quiet()


def on_every_node(ring: Cluster) -> list[Any]:
    """What a change could have changed."""
    return [(m.disk.intent, m.disk.attempt, m.loop.state.intent, m.loop.events.since(0, 500).last) for m in ring]


@pytest.mark.parametrize("node", NODES)
def test_a_change_can_expect_an_epoch(node: str, tmp_path: Path) -> None:
    @in_loop
    async def change() -> None:
        async with cluster() as ring:
            await down(ring)
            async with api(ring[node].loop, tmp_path) as served:
                refused = await served.post("/v1/ring/start?expect_epoch=7")
                assert (refused.status, refused.problem["code"]) == (409, "epoch-changed")
                assert refused.problem["epoch"] == 0
                assert refused.problem["detail"].startswith("epoch 7 was expected, and epoch 0 is in force (down")
                assert ring.conductor.disk.intent is None
                assert (await served.post("/v1/ring/start?expect_epoch=0")).status == 202
                await ring.reach("ready")
                # Whoever decided on what was there before the start does not stop what others have started.
                late = await served.post("/v1/ring/stop?expect_epoch=0")
                assert (late.status, late.problem["epoch"]) == (409, 1)
                assert (await served.post("/v1/ring/stop?expect_epoch=1")).status == 202
                await ring.reach("down")
                for bad in ("-1", "x", "1e3", str(10**15)):
                    assert (await served.post(f"/v1/ring/stop?expect_epoch={bad}")).problem["code"] == "bad-request"

    change()


@pytest.mark.parametrize("node", ["spark1", "spark3"])
def test_a_trial_changes_nothing_and_says_all(node: str, tmp_path: Path) -> None:
    @in_loop
    async def attempt() -> None:
        async with cluster() as ring:
            await down(ring)
            async with api(ring[node].loop, tmp_path) as served:

                async def trial(path: str) -> wire.Trial:
                    before = on_every_node(ring)
                    answer = await served.post(path)
                    assert answer.status == 200, answer
                    assert "location" not in answer.headers
                    await ring.quiet()
                    assert on_every_node(ring) == before
                    told: wire.Trial = exactly(wire.Trial, answer.json)
                    return told

                for what in EVERY_CHANGE:
                    told = await trial(f"/v1/ring/{what}?dry_run=true")
                    assert (told.request, told.accepted, told.epoch, told.code) == (what, True, 0, "")
                    assert told.changes is (what in ("start", "hold"))
                ring["spark2"].links.unplug("enp1s0f0np0")
                await until(lambda: len(ring.conductor.loop.ring().findings) == 2)
                told = await trial("/v1/ring/start?dry_run=1")
                assert (told.accepted, told.changes, told.code) == (False, False, "start-refused")
                refusing = {(f.id, f.node) for f in told.findings if f.severity == "refuse"}
                assert refusing == {("cable-missing", "spark2"), ("cable-missing", "spark3")}
                told = await trial("/v1/ring/start?dry_run=1&expect_epoch=5")
                assert (told.code, told.epoch) == ("epoch-changed", 0)
                assert len(told.findings) >= 2, "and yet all that is to be said of a start"
                assert (await served.post("/v1/ring/hold?reason=fan")).status == 202
                await ring.quiet()
                told = await trial("/v1/ring/start?dry_run=1")
                assert (told.accepted, told.code) == (False, "maintenance")

    attempt()


@in_loop
async def test_a_trial_looks_at_the_hosts_as_a_start_would(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        looks = 0
        loop = ring["spark1"].loop

        async def look() -> None:
            nonlocal looks
            looks += 1
            loop.examined(HardwareFacts(pci=PciFacts()))

        loop.before_start(look)
        async with api(ring["spark2"].loop, tmp_path) as served:
            assert (await served.post("/v1/ring/start?dry_run=true")).json["accepted"]
        assert looks == 1
        assert ring.conductor.disk.intent is None


@in_loop
async def test_a_trial_needs_the_right_and_the_conductor_like_a_change(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring["spark2"].loop, tmp_path) as served:
            assert (await served.post("/v1/ring/start?dry_run=true", served.tcp)).status == 401
            assert (await served.post("/v1/ring/start?dry_run=true", served.tcp, headers=BEARER)).status == 200
            ring.mesh.silence("spark1")
            answer = await served.post("/v1/ring/start?dry_run=true")
            assert (answer.status, answer.problem["code"]) == (503, "conductor-unreachable")


@in_loop
async def test_what_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        async with api(ring.conductor.loop, tmp_path) as served:
            for path in ("/v1/ring", "/v1/host", "/v1/plan", "/v1/doctor"):
                tag = (await served.get(path)).headers["etag"]
                for given in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
                    again = await served.get(path, headers={"If-None-Match": given})
                    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag), (path, given)
                assert (await served.get(path, headers={"If-None-Match": '"x"'})).status == 200
            tag = (await served.get("/v1/ring")).headers["etag"]
            ring.clock.advance(0.4)
            aged = await served.get("/v1/ring")
            assert {peer["age"] for peer in aged.json["peers"]} == {0.4}
            assert aged.headers["etag"] == tag, "an age alone is no news"
            assert aged.headers["sparkd-peers"] == "spark2;age=0.4, spark3;age=0.4"
            ring.clock.advance(20)
            silent = await served.get("/v1/ring", headers={"If-None-Match": tag})
            assert (silent.status, silent.json["phase"]) == (200, "degraded")


class Ageing:
    """Of ports that were tried: each look finds the tries a little older."""

    port = 0
    age = 0.0

    def facts(self) -> tuple[ReachFact, ...]:
        self.age += 0.001
        return (ReachFact("spark2", 7, "open", age=self.age),)

    async def afresh(self) -> None:
        """Nothing to try."""


@in_loop
async def test_the_ring_is_worked_out_once_while_nothing_but_ages_changes() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        loop = ring.conductor.loop
        loop._reach = Ageing()
        first = loop.ring()
        assert loop.ring() is first
        ring.clock.advance(0.2)
        later = loop.ring()
        assert later is not first, "ages are told to a tenth of a second"
        await ring.ask("stop")
        assert loop.ring().want == "down", "and a change at once"


@in_loop
async def test_every_answer_says_how_old_what_it_knows_is(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring["spark2"].loop, tmp_path) as served:
            ring.mesh.silence("spark3")
            ring["spark2"].peers.forget()
            for path in ("/v1/ring", "/v1/events", "/v1/operations/5", "/v1/nowhere", "/v1/ring/start"):
                assert (await served.get(path)).headers["sparkd-peers"] == "spark1, spark3", path
            assert "sparkd-peers" not in (await served.get("/livez")).headers


@in_loop
async def test_only_json_is_to_be_had(tmp_path: Path) -> None:
    async with cluster(Policy()) as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for accept in ("text/html", "application/xml, text/*;q=0.5", "*/*;q=0", "application/json; q=0.0"):
                answer = await served.get("/v1/ring", headers={"Accept": accept})
                assert (answer.status, answer.problem["code"]) == (406, "not-acceptable"), accept
                assert answer.problem["detail"] == "there is application/json only"
            for accept in ("*/*", "application/*", "application/json;q=0.1", "text/html, */*;q=0.8", ""):
                assert (await served.get("/v1/ring", headers={"Accept": accept})).status == 200, accept
            assert (await served.get("/v1/ring", headers={"Accept": "text/event-stream"})).status == 406
