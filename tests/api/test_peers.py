"""The peers' application: reports change hands, and whatever else arrives is refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sparkd import wire
from sparkd.api.guard import BODY_LIMIT
from sparkd.core.hardware import HardwareFacts, PciFacts
from sparkd.core.model import Intent, Report
from tests.api.serving import Answer, ask, peers_api
from tests.core.builders import NOW, report
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

THEIRS = report("spark2", Intent(3, "down", "operator", "stop asked for", NOW))


def changed(**fields: Any) -> bytes:
    return json.dumps(wire.encode(THEIRS) | fields).encode()


def nested(**fields: Any) -> bytes:
    return changed(intent=wire.encode(THEIRS.intent) | fields)


NO_REPORTS = {
    b"": "Report: not JSON",
    b"{": "Report: not JSON",
    b"\xff\xfe": "Report: not JSON",
    b"null": "value: expected an object",
    b"[]": "value: expected an object",
    b"{}": "node: missing",
    b"[" * 100_000: "",
    b'{"a":' * 40_000: "",
    changed(node=7): "node: expected a string",
    changed(sequence="1"): "sequence: expected an integer",
    changed(sequence=True): "sequence: expected an integer",
    changed(units={}): "units: expected a list",
    changed(ends=[{"device": "enp1s0f0np0"}]): "ends[0].carrier: missing",
    changed(digests=[]): "digests: expected an object",
    nested(want="sideways"): "intent.want: expected one of",
    nested(at=None): "intent.at: expected a number",
    nested(at=10**400): "",
    changed().replace(b"1700000000.0", b"NaN"): "intent.at: expected a finite number",
    changed().replace(b"1700000000.0", b"1e999"): "intent.at: expected a finite number",
    changed().replace(b'"sequence": 1', b'"sequence": ' + b"1" * 5000): "Report: not JSON",
}
NO_REQUESTS = {
    b"": "PeerRequest: not JSON",
    b"{}": "request: missing",
    b'{"request": "start"}': "by: missing",
    b'{"request": "restart", "by": "x"}': "request: 'restart' is none of start, stop, clear",
    b'{"request": ["start"], "by": "x"}': "request: expected a string",
    b"[" * 100_000: "",
}


async def post(port: int, path: str, body: bytes) -> Answer:
    return await ask(port, "POST", path, body=body)


@in_loop
async def test_a_report_is_given_and_taken() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        await ring.quiet()
        await ring["spark2"].kill()
        machine = ring.conductor
        async with peers_api(machine.loop, "spark2") as port:
            own = machine.loop.report()
            pulled = await ask(port, "GET", "/peer/v1/report")
            assert (pulled.status, wire.decode(Report, pulled.json)) == (200, own)
            answer = await post(port, "/peer/v1/report", wire.dumps(replace(THEIRS, instance="new")))
            assert (answer.status, wire.decode(Report, answer.json)) == (200, own)
            heard = next(view.report for view in machine.peers.views() if view.name == "spark2")
            assert heard == replace(THEIRS, instance="new")


@in_loop
async def test_a_host_that_is_to_look_at_itself_answers_with_what_it_has_seen() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        machine = ring["spark2"]
        looked = HardwareFacts(pci=PciFacts(gb10=True))

        async def look() -> None:
            machine.loop.examined(looked)

        machine.loop.before_start(look)
        async with peers_api(machine.loop, "spark2") as port:
            asked = wire.PeerRequest("examine", "spark1")
            answer = await post(port, "/peer/v1/intent", wire.dumps(asked))
            assert answer.status == 200
            assert wire.decode(Report, answer.json).hardware == looked


@in_loop
async def test_what_a_newer_daemon_says_besides_is_ignored() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring.conductor.loop, "spark2") as port:
            assert (await post(port, "/peer/v1/report", changed(colour="blue"))).status == 200


@in_loop
async def test_reports_of_strangers_change_nothing() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring.conductor.loop, "spark2") as port:
            before = ring.conductor.peers.views()
            for name in ("spark1", "spark3", "spark9", ""):
                stranger = replace(THEIRS, node=name, intent=Intent(99, "up"))
                answer = await post(port, "/peer/v1/report", wire.dumps(stranger))
                assert (answer.status, answer.problem["code"]) == (403, "not-yours")
                assert answer.problem["detail"] == f"a report of {name} with the certificate of spark2"
            assert ring.conductor.peers.views() == before
            await ring.quiet()
            assert ring.conductor.loop.state.intent.epoch == 0


@in_loop
async def test_before_the_first_cycle_there_is_no_report() -> None:
    async with cluster(boot=False) as ring, peers_api(ring.conductor.build(), "spark2") as port:
        for answer in (await ask(port, "GET", "/peer/v1/report"), await post(port, "/peer/v1/report", changed())):
            assert (answer.status, answer.problem["code"]) == (503, "starting")


@in_loop
async def test_what_is_no_report_is_refused_with_the_field() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring.conductor.loop, "spark2") as port:
            before = ring.conductor.peers.views()
            for body, words in NO_REPORTS.items():
                answer = await post(port, "/peer/v1/report", body)
                assert (answer.status, answer.problem["code"]) == (422, "bad-request"), body[:60]
                assert answer.problem["detail"].startswith(words)
            assert ring.conductor.peers.views() == before


@in_loop
async def test_what_is_no_request_is_refused_with_the_field() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring.conductor.loop, "spark2") as port:
            for body, words in NO_REQUESTS.items():
                answer = await post(port, "/peer/v1/intent", body)
                assert (answer.status, answer.problem["code"]) == (422, "bad-request"), body[:60]
                assert answer.problem["detail"].startswith(words)
            assert ring.conductor.loop.state.intent.epoch == 0


@in_loop
async def test_a_request_is_answered_like_an_operators() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        await ring.quiet()
        body = wire.dumps(wire.PeerRequest("start", "operator at 127.0.0.1 on spark3"))
        async with peers_api(ring.conductor.loop, "spark3") as port:
            answer = await post(port, "/peer/v1/intent", body)
            assert answer.status == 202
            made = wire.decode(wire.Operation, answer.json)
            assert (made.operation, made.want) == ("/v1/operations/1", "up")
            assert ring.conductor.disk.intent is not None
            assert ring.conductor.disk.intent.by == "operator at 127.0.0.1 on spark3"


@in_loop
async def test_a_worker_refuses_to_conduct() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring["spark2"].loop, "spark2") as port:
            answer = await post(port, "/peer/v1/intent", wire.dumps(wire.PeerRequest("start", "x")))
            assert (answer.status, answer.problem["code"]) == (409, "not-conductor")


@in_loop
async def test_operators_routes_are_not_here_and_bodies_have_a_limit() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with peers_api(ring.conductor.loop, "spark2") as port:
            for path in ("/v1/ring", "/v1/ring/start", "/metrics", "/openapi.json", "/docs"):
                assert (await ask(port, "GET", path)).problem["code"] == "not-found"
            assert (await ask(port, "GET", "/peer/v1/intent")).problem["code"] == "method-not-allowed"
            large = await post(port, "/peer/v1/report", b"x" * (BODY_LIMIT + 1))
            assert large.problem["code"] == "body-too-large"


@in_loop
async def test_whoever_hands_a_request_over_for_another_node_is_named() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        await ring.quiet()
        body = wire.dumps(wire.PeerRequest("start", "operator at 127.0.0.1 on spark2"))
        async with peers_api(ring.conductor.loop, "spark3") as port:
            assert (await post(port, "/peer/v1/intent", body)).status == 202
        assert ring.conductor.loop.state.intent.by == "operator at 127.0.0.1 on spark2 by way of spark3"
