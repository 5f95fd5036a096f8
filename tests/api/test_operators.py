"""Every route of the operators' API: its status codes, and bodies that are the types of sparkd.wire and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ring_mesh
from sparkd import __version__, wire
from sparkd.core.hardware import HardwareFacts, KernelFacts, PciFacts
from sparkd.core.railfacts import RailFact
from sparkd.core.snapshot import Policy
from sparkd.reconcile.refusal import Refusal
from tests.api.serving import PROBLEM, api
from tests.core.builders import NODES, PLAN
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until

TYPES = {
    "/v1/ring": wire.RingStatus,
    "/v1/doctor": wire.DoctorStatus,
    "/v1/events": wire.Events,
    "/v1/host": wire.HostStatus,
}
EVERY_GET = [
    "/v1/ring",
    "/v1/doctor",
    "/v1/host",
    "/v1/plan",
    "/v1/events",
    "/v1/operations/1",
    "/livez",
    "/readyz",
    "/metrics",
]
OPERATIONS = {
    ("get", "/v1/history"),
    ("post", "/v1/ring/start"),
    ("post", "/v1/ring/stop"),
    ("post", "/v1/ring/clear"),
    ("post", "/v1/ring/hold"),
    ("post", "/v1/ring/resume"),
    ("post", "/v1/host/fabric/down"),
    ("post", "/v1/host/fabric/up"),
    ("post", "/v1/host/fabric/measure"),
    ("get", "/v1/smoke"),
    ("get", "/v1/logs"),
    ("get", "/v1/incidents"),
    ("get", "/v1/incidents/{epoch}"),
    *(("get", path.replace("/1", "/{epoch}")) for path in EVERY_GET),
}


def exactly(kind: type[Any], data: Any) -> Any:
    """The value of the type, which must have no other fields than the type."""
    value = wire.decode(kind, data)
    assert wire.encode(value) == data
    return value


async def down(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.quiet()


@pytest.mark.parametrize("node", NODES)
def test_answers_are_what_the_loop_knows(node: str, tmp_path: Path) -> None:
    @in_loop
    async def get() -> None:
        async with cluster() as ring:
            await ring.up()
            await ring.quiet()
            loop = ring[node].loop
            loop.examined(HardwareFacts(kernel=KernelFacts("6.17.0-1008-nvidia"), pci=PciFacts(gb10=True)))
            await ring.quiet()
            known = {
                "/v1/ring": loop.ring,
                "/v1/events": lambda: replace(loop.events.since(0, 100), daemon=loop.site.identity.instance),
                "/v1/host": loop.host,
                "/v1/doctor": loop.doctor,
            }
            async with api(loop, tmp_path) as served:
                for path, kind in TYPES.items():
                    answer = await served.get(path)
                    assert answer.status == 200
                    assert exactly(kind, answer.json) == known[path]()

    get()


@in_loop
async def test_a_ready_ring_is_complete(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        async with api(ring["spark2"].loop, tmp_path) as served:
            status = exactly(wire.RingStatus, (await served.get("/v1/ring")).json)
            assert (status.phase, status.want, status.epoch, status.waits) == ("ready", "up", 1, ())
            assert (status.node, status.conductor, status.version) == ("spark2", "spark1", __version__)
            assert [(rank.rank, rank.node, rank.state, rank.stage) for rank in status.ranks] == [
                (rank, node, "ready", "ready") for rank, node in enumerate(NODES)
            ]
            assert [rank.unit for rank in status.ranks] == ["sparkd-rank@1.service"] * 3
            assert [(peer.node, peer.epoch, peer.error) for peer in status.peers] == [
                ("spark1", 1, ""),
                ("spark3", 1, ""),
            ]
            assert [len(fabric.ends or ()) for fabric in status.fabric] == [4, 4, 4]


@in_loop
async def test_progress_of_a_rank(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        ring.slow_engine = True
        await ring.ask("start")
        await until(lambda: ring.conductor.running != [])
        ring.conductor.units.status(1, "load 3/9 shards")
        await ring.quiet()
        async with api(ring["spark3"].loop, tmp_path) as served:
            status = exactly(wire.RingStatus, (await served.get("/v1/ring")).json)
            first = status.ranks[0]
            assert (first.state, first.stage, first.progress, first.text) == (
                "starting",
                "load",
                wire.Progress(3, 9),
                "shards",
            )


@in_loop
async def test_the_plan(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            assert (await served.get("/v1/plan")).json == ring_mesh.plan_as_json(PLAN)


@in_loop
async def test_a_host_that_cannot_tell_says_null_and_why(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        machine = ring.conductor
        machine.host.broken = machine.roce.broken = machine.links.broken = "no answer"
        for source in ("host", "roce", "network"):
            machine.loop.wake(source)
        await ring.quiet()
        async with api(machine.loop, tmp_path) as served:
            status = exactly(wire.HostStatus, (await served.get("/v1/host")).json)
            assert (status.host, status.roce, status.links) == (None, None, None)
            assert status.unknown == ("no answer",) * 3


@in_loop
async def test_events_by_page(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        async with api(ring.conductor.loop, tmp_path) as served:
            everything = exactly(wire.Events, (await served.get("/v1/events")).json)
            assert len(everything.events) > 3
            rest = exactly(wire.Events, (await served.get("/v1/events?after=2&limit=500")).json)
            assert rest.events == everything.events[2:]
            newest = exactly(wire.Events, (await served.get("/v1/events?limit=1")).json)
            assert newest.events == everything.events[-1:]
            assert newest.last == everything.last == everything.events[-1].id


@pytest.mark.parametrize("node", NODES)
def test_start_and_stop_from_any_node_can_be_followed(node: str, tmp_path: Path) -> None:
    @in_loop
    async def change() -> None:
        async with cluster() as ring:
            await down(ring)
            async with api(ring[node].loop, tmp_path) as served:
                for epoch, (path, want, phase) in enumerate(
                    [("/v1/ring/start", "up", "ready"), ("/v1/ring/stop", "down", "down")], 1
                ):
                    answer = await served.post(path)
                    assert answer.status == 202
                    made = exactly(wire.Operation, answer.json)
                    assert (made.operation, made.epoch, made.want) == (f"/v1/operations/{epoch}", epoch, want)
                    assert answer.headers["location"] == made.operation
                    await ring.reach(phase)
                    followed = exactly(wire.OperationStatus, (await served.get(made.operation)).json)
                    assert (followed.epoch, followed.want, followed.state) == (epoch, want, "done")
                past = exactly(wire.OperationStatus, (await served.get("/v1/operations/1")).json)
                assert past.state == "superseded"
                assert ring.conductor.disk.intent is not None
                assert ring.conductor.disk.intent.by == f"root (uid 0) on {node}"

    change()


@in_loop
async def test_a_change_takes_no_body_and_says_so(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for body in (b"{}", b"null", b'{"reason": "new fan"}', b"no JSON \xff"):
                answer = await served.post("/v1/ring/hold", body=body)
                assert (answer.status, answer.problem["code"]) == (400, "body-not-allowed")
                assert "?reason=" in answer.problem["hint"]
            assert ring.conductor.disk.intent is None
            assert (await served.post("/v1/ring/clear", headers={"Content-Length": "0"})).status == 202


@in_loop
async def test_readyz_is_for_load_balancers(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        loop = ring["spark2"].loop
        async with api(loop, tmp_path) as served:
            assert (await served.get("/livez")).body == b"ok\n"
            before = await served.get("/readyz")
            assert (before.status, before.body.decode()) == (503, loop.ring().summary + "\n")
            await ring.up()
            ready = await served.get("/readyz")
            assert (ready.status, ready.body) == (200, b"epoch 1 is ready: all 3 ranks serve\n")
            assert loop.ring().serving
            ring.conductor.units.status(1, "ready no token for 21 s, canary: no answer in time")
            await ring.quiet()
            silent = await served.get("/readyz")
            assert (silent.status, loop.ring().phase) == (503, "ready")
            assert silent.body == (
                b"epoch 1 is ready: all 3 ranks serve; spark1: no token for 21 s, canary: no answer in time\n"
            )
            ring.conductor.units.status(1, "ready idle, canary 0.1 s ago")
            ring.clock.advance(20)
            await ring.quiet()
            degraded = await served.get("/readyz")
            assert (loop.ring().phase, degraded.status) == ("degraded", 200)


@in_loop
async def test_a_stop_with_time_drains_and_readyz_follows_at_once(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        async with api(ring["spark3"].loop, tmp_path) as served:
            for bad in ("-1", "86401", "soon"):
                assert (await served.post(f"/v1/ring/stop?drain={bad}")).status == 422
            asked = await served.post("/v1/ring/stop?drain=60")
            operation = exactly(wire.Operation, asked.json)
            assert (asked.status, operation.epoch, operation.want) == (202, 1, "down")
            assert "is draining: waits for rank 0 (spark1) to say" in operation.summary
            await until(lambda: ring.conductor.units.drains(1) is True)
            ring.conductor.units.status(1, "ready draining 2, 12.5 tokens/s")
            await ring.quiet()
            status = exactly(wire.RingStatus, (await served.get("/v1/ring")).json)
            assert (status.phase, status.want, status.serving) == ("draining", "down", False)
            assert (status.by, status.reason) == (status.drain and status.drain.by, "stop asked for")
            assert status.drain is not None and status.drain.by.endswith(" on spark3")
            assert (status.drain.seconds, status.drain.left, status.drain.running) == (60, 60, 2)
            assert (await served.get("/readyz")).status == 503
            told = exactly(wire.OperationStatus, (await served.get("/v1/operations/1")).json)
            assert (told.want, told.state) == ("down", "running")
            ring.conductor.units.status(1, "ready draining 0, idle")
            await ring.reach("down", epoch=2)
            await ring.quiet()
            told = exactly(wire.OperationStatus, (await served.get("/v1/operations/1")).json)
            assert (told.state, told.superseded_by) == ("superseded", 2)
            assert exactly(wire.RingStatus, (await served.get("/v1/ring")).json).drain is None


@in_loop
async def test_every_path_is_in_openapi_with_types_that_exist(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            document = (await served.get("/openapi.json")).json
            found = {(method, path) for path, methods in document["paths"].items() for method in methods}
            assert found == OPERATIONS
            for kind in (wire.RingStatus, wire.Operation, wire.OperationStatus, wire.Events, wire.HostStatus):
                schema = document["components"]["schemas"][kind.__name__]
                assert set(schema["properties"]) == {field.name for field in dataclasses.fields(kind)}
            assert "HTTPValidationError" not in document["components"]["schemas"]
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    check_problems(path, operation["responses"], document["components"]["responses"])


def check_problems(path: str, responses: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
    """All errors but /readyz's, which is for load balancers, are problems."""
    for status, told in responses.items():
        response = shared[told["$ref"].rpartition("/")[2]] if "$ref" in told else told
        if int(status) >= 400 and path != "/readyz":
            assert set(response["content"]) == {PROBLEM}, (path, status)
            assert response["description"]


@in_loop
async def test_fabric_ports_are_released_only_while_the_ring_is_down(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        machine = ring["spark2"]
        async with api(machine.loop, tmp_path) as served:
            refused = await served.post("/v1/host/fabric/down")
            assert (refused.status, refused.json["code"]) == (409, "fabric-in-use")
            await ring.ask("stop")
            await ring.reach("down")
            before = machine.disk.memory
            assert before is not None and before.before
            assert (await served.post("/v1/host/fabric/down")).status == 202
            await until(lambda: machine.disk.memory is not None and machine.disk.memory.before == ())
            now = await machine.links.observe()
            for port in before.before:
                link = now.link(port.device)
                assert link is not None
                assert (link.up, link.mtu, link.settings) == (port.up, port.mtu, port.settings)
            with pytest.raises(Refusal) as refusal:
                await ring.ask("start")
            assert "fabric-released" in {finding.id for finding in refusal.value.findings}
            assert (await served.post("/v1/host/fabric/up")).status == 202
            await ring.reach("down")
            await ring.up()


@in_loop
async def test_the_doctor_of_any_node_answers_for_all_of_them(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        bad = HardwareFacts(kernel=KernelFacts("6.17.0-1008-nvidia"), pci=PciFacts(gb10=True))
        ring["spark3"].loop.examined(bad)
        ring["spark1"].loop.examined(HardwareFacts(pci=PciFacts()))
        await ring.quiet()
        async with api(ring["spark1"].loop, tmp_path) as served:
            told = exactly(wire.DoctorStatus, (await served.get("/v1/doctor")).json)
        verdicts = {
            node.node: {check.id: check.verdict for check in node.checks} if node.checks is not None else None
            for node in told.nodes
        }
        assert verdicts["spark2"] is None, "it has not looked yet, which is not the same as fine"
        assert verdicts["spark3"] is not None and verdicts["spark3"]["kernel-known-bad"] == "fail"
        assert verdicts["spark1"] is not None and verdicts["spark1"]["gid-missing"] == "unknown"
        assert [f.node for node in told.nodes for f in node.findings if f.id == "kernel-known-bad"] == ["spark3"]
        with pytest.raises(Refusal) as refusal:
            await ring.ask("start")
        assert "kernel-known-bad" in {finding.id for finding in refusal.value.findings}


@in_loop
async def test_a_held_ring_is_cleared(tmp_path: Path) -> None:
    async with cluster(Policy(backoff=0.0, restarts=0)) as ring:
        await ring.up()
        ring["spark3"].units.die(1, signal=11)
        await ring.reach("held")
        async with api(ring["spark2"].loop, tmp_path) as served:
            status = exactly(wire.RingStatus, (await served.get("/v1/ring")).json)
            assert [(death.node, death.signature, death.ready) for death in status.deaths] == [
                ("spark3", "2:signal:11", True)
            ]
            assert (await served.post("/v1/ring/clear")).status == 202
            await ring.reach("down")


@in_loop
async def test_rails_are_measured_anew_only_while_no_rank_runs(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        machine = ring["spark2"]
        async with api(machine.loop, tmp_path) as served:
            refused = await served.post("/v1/host/fabric/measure")
            assert (refused.status, refused.json["code"]) == (409, "fabric-in-use")
            assert refused.json["hint"] == "sparkctl down --wait"
            await ring.ask("stop")
            await ring.reach("down")
            machine.rails.facts["enp1s0f0np0"] = RailFact("enp1s0f0np0", "spark3", "enp1s0f1np1", 9.0)
            answer = await served.post("/v1/host/fabric/measure")
            assert (answer.status, answer.json["node"]) == (202, "spark2")
            assert machine.rails.facts == {}
