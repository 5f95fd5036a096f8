"""What is not carried out, and in which words: always a problem, never a 500."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkd import wire
from sparkd.api.guard import BODY_LIMIT
from sparkd.core.model import Finding
from sparkd.core.snapshot import Policy
from tests.api.serving import BEARER, TOKEN, api, send
from tests.api.test_operators import EVERY_GET
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until

RING = ["/v1/ring/start", "/v1/ring/stop", "/v1/ring/clear"]
CHANGES = [*RING, "/v1/host/fabric/down", "/v1/host/fabric/up", "/v1/host/fabric/measure"]


async def down(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.quiet()


@in_loop
async def test_before_the_first_cycle_every_route_says_so(tmp_path: Path) -> None:
    async with cluster(boot=False) as ring, api(ring.conductor.build(), tmp_path) as served:
        for path in EVERY_GET:
            if path in ("/v1/plan", "/v1/events"):  # these do not depend on it
                assert (await served.get(path)).status == 200
                continue
            answer = await served.get(path)
            assert answer.status == 503
            assert answer.problem["code"] == "starting"


@pytest.mark.parametrize("node", ["spark1", "spark3"])
def test_a_start_against_a_finding(node: str, tmp_path: Path) -> None:
    @in_loop
    async def start() -> None:
        async with cluster() as ring:
            await down(ring)
            ring["spark2"].links.unplug("enp1s0f0np0")
            await until(lambda: len(ring.conductor.loop.ring().findings) == 2)
            async with api(ring[node].loop, tmp_path) as served:
                answer = await served.post("/v1/ring/start")
                problem = answer.problem
                assert (answer.status, problem["code"]) == (409, "start-refused")
                assert problem["title"] == "Start refused"
                assert problem["hint"] == "put right what the findings name, then start again"
                findings = [wire.decode(Finding, finding) for finding in problem["findings"]]
                assert {(finding.node, finding.subject) for finding in findings} == {
                    ("spark2", "port 0"),
                    ("spark3", "port 1"),
                }
                assert findings[0].sentence in problem["detail"]
                assert "location" not in answer.headers

    start()


@pytest.mark.parametrize("node", ["spark1", "spark2"])
def test_a_held_ring_does_not_start(node: str, tmp_path: Path) -> None:
    @in_loop
    async def start() -> None:
        async with cluster(Policy(backoff=0.0, restarts=0)) as ring:
            await ring.up()
            ring["spark3"].units.die(1, signal=11)
            await ring.reach("held")
            async with api(ring[node].loop, tmp_path) as served:
                answer = await served.post("/v1/ring/start")
                assert (answer.status, answer.problem["code"]) == (409, "held")
                assert answer.problem["hint"] == "sparkctl clear"
                assert [finding["id"] for finding in answer.problem["findings"]] == ["held"]

    start()


@in_loop
async def test_a_full_disk_refuses_every_change(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        ring.conductor.disk.full = True
        async with api(ring.conductor.loop, tmp_path) as served:
            answer = await served.post("/v1/ring/start")
            assert (answer.status, answer.problem["code"]) == (507, "not-saved")
            assert ring.conductor.loop.state.intent.epoch == 0


@in_loop
async def test_a_worker_without_its_conductor_cannot_change_anything(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        ring.mesh.silence("spark1")
        async with api(ring["spark2"].loop, tmp_path) as served:
            for path in RING:
                answer = await served.post(path)
                assert (answer.status, answer.problem["code"]) == (503, "conductor-unreachable")
                assert answer.problem["detail"] == "only spark1 issues epochs, and spark1 does not answer"
            assert (await served.get("/v1/ring")).status == 200


@pytest.mark.parametrize("status", [409, 418, 500])
def test_a_refusal_of_the_conductor_is_relayed_as_it_is(status: int, tmp_path: Path) -> None:
    body = {"type": "urn:sparkd:problem:x", "title": "T", "status": status, "code": "x", "detail": "d", "hint": "h"}

    @in_loop
    async def start() -> None:
        async with cluster() as ring:
            await down(ring)

            async def answer(_: object) -> tuple[int, dict[str, object]]:
                return status, dict(body)

            ring.mesh.handlers["spark1"] = answer
            async with api(ring["spark2"].loop, tmp_path) as served:
                # Not through served.post: what a newer conductor answers need not be documented here.
                raw = await send(served.unix, b"POST /v1/ring/start HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert raw.startswith(f"HTTP/1.1 {status} ".encode())
                assert b"content-type: application/problem+json" in raw
                assert raw.endswith(wire.dumps(body))

    start()


@in_loop
async def test_paths_and_methods_that_do_not_exist(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for path in (
                "/page",
                "/page/none",
                "/v1",
                "/v1/ring/restart",
                "/v2/ring",
                "/peer/v1/report",
                "/docs",
                "/redoc",
                "/v1/ring/",
                "/v1/logs/",
            ):
                answer = await served.get(path)
                assert (answer.status, answer.problem["code"]) == (404, "not-found")
            for method, path, allow in (
                ("GET", "/v1/ring/start", "OPTIONS, POST"),
                ("DELETE", "/v1/ring", "GET, HEAD, OPTIONS"),
                ("POST", "/v1/ring", "GET, HEAD, OPTIONS"),
                ("BREW", "/v1/ring", "GET, HEAD, OPTIONS"),
            ):
                answer = await served.call(method, path)
                assert (answer.status, answer.problem["code"]) == (405, "method-not-allowed")
                assert answer.headers["allow"] == allow
            late = await served.post("/v1/ring/stop/")
            assert (late.status, late.problem["code"]) == (404, "not-found"), "no redirect, which says nothing was done"
            options = await served.call("OPTIONS", "/v1/ring")
            assert (options.status, options.headers["allow"], options.body) == (204, "GET, HEAD, OPTIONS", b"")
            head, get = await served.call("HEAD", "/v1/ring"), await served.get("/v1/ring")
            assert (head.status, head.body) == (200, b"")
            assert {**head.headers, "content-length": ""} == {**get.headers, "content-length": ""}


IMPOSSIBLE = [
    ("/v1/events?limit=0", "query.limit"),
    ("/v1/events?limit=501", "query.limit"),
    ("/v1/events?limit=many", "query.limit"),
    ("/v1/events?limit=1.5", "query.limit"),
    ("/v1/events?limit=", "query.limit"),
    ("/v1/events?after=-1", "query.after"),
    (f"/v1/events?after={'9' * 5000}", "query.after"),
    ("/v1/operations/last", "path.epoch"),
    ("/v1/operations/1.5", "path.epoch"),
    ("/v1/operations/-1", "path.epoch"),
    (f"/v1/operations/{10**15}", "path.epoch"),
    (f"/v1/operations/{'9' * 5000}", "path.epoch"),
]


@in_loop
async def test_parameters_that_cannot_be(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for path, where in IMPOSSIBLE:
                answer = await served.get(path)
                assert (answer.status, answer.problem["code"]) == (422, "bad-request"), path
                assert answer.problem["detail"].startswith(f"{where}: "), path


@in_loop
async def test_a_change_with_a_parameter_that_it_does_not_have_is_not_made(tmp_path: Path) -> None:
    """What was meant is a trial, or the expectation of an epoch."""
    changes = [f"/v1/ring/{change}" for change in ("start", "stop", "hold", "resume", "clear")]
    changes += [f"/v1/host/fabric/{word}" for word in ("down", "up", "measure")]
    async with cluster() as ring:
        await ring.ask("start")
        await ring.reach("ready")
        async with api(ring.conductor.loop, tmp_path) as served:
            for path in changes:
                answer = await served.post(f"{path}?dryrun=true")
                assert (answer.status, answer.problem["code"]) == (422, "bad-request"), path
                assert answer.problem["detail"].startswith("query.dryrun: this change has no such parameter")
            for query in ("dry-run=1", "expect-epoch=1", "Dry_run=true", "force=true&dry-run=true"):
                assert (await served.post(f"/v1/ring/stop?{query}")).problem["code"] == "bad-request"
            assert "\n" not in (await served.post("/v1/ring/stop?a%0Ab=1")).problem["detail"]
            assert (await served.get("/v1/ring?probe=1")).json["phase"] == "ready", "looking harms nobody"


@in_loop
async def test_operations_that_never_were(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for epoch in (0, 1, 10**14):
                answer = await served.get(f"/v1/operations/{epoch}")
                assert (answer.status, answer.problem["code"]) == (404, "no-such-operation")
                assert answer.problem["detail"] == f"no operation has made epoch {epoch}"


@in_loop
async def test_over_tcp_reading_is_open_and_a_change_needs_the_token(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for path in ("/v1/ring", "/livez", "/metrics", "/openapi.json"):
                assert (await served.get(path, served.tcp)).status == 200
            for path in CHANGES:
                missing = await served.post(path, served.tcp)
                assert (missing.status, missing.problem["code"]) == (401, "token-missing")
                assert "sparkctl token create" in missing.problem["hint"]
                assert missing.headers["www-authenticate"] == 'Bearer realm="sparkd"'
            for given in ("Bearer", "Bearer ", "bearer\t", f"Basic {TOKEN}", TOKEN, f"Token {TOKEN}"):
                missing = await served.post("/v1/ring/stop", served.tcp, headers={"Authorization": given})
                assert (missing.status, missing.problem["code"]) == (401, "token-missing"), given
            for given in (f"{TOKEN}x", TOKEN[:-1], TOKEN.upper(), "é", f"{TOKEN} {TOKEN}"):
                wrong = await served.post("/v1/ring/stop", served.tcp, headers={"Authorization": f"Bearer {given}"})
                assert (wrong.status, wrong.problem["code"]) == (401, "token-wrong"), given
            assert ring.conductor.disk.intent is None
            assert (await served.post("/v1/ring/start", served.tcp, headers=BEARER)).status == 202
            assert ring.conductor.loop.state.intent.by == "laptop (token) at 127.0.0.1 on spark1"
            lower = {"authorization": f"bearer {TOKEN}"}
            assert (await served.post("/v1/ring/stop", served.tcp, headers=lower)).status == 202


@in_loop
async def test_other_methods_and_paths_need_the_token_too(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for method, path in (
                ("POST", "/nowhere"),
                ("DELETE", "/v1/ring"),
                ("PUT", "/v1/ring"),
                ("get", "/v1/ring"),
            ):
                assert (await served.call(method, path, served.tcp)).problem["code"] == "token-missing"
            assert (await served.call("OPTIONS", "/v1/ring", served.tcp)).status == 204


@in_loop
async def test_without_a_token_tcp_is_for_reading(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path, tokens=()) as served:
            for headers in (BEARER, {"Authorization": "Bearer None"}):
                answer = await served.post("/v1/ring/start", served.tcp, headers=headers)
                assert (answer.status, answer.problem["code"]) == (401, "token-wrong")
            assert (await served.get("/v1/ring", served.tcp)).status == 200
            assert (await served.post("/v1/ring/start")).status == 202


@in_loop
async def test_a_refused_change_is_one_line_of_the_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            caplog.clear()
            await served.post("/v1/ring%0Aepoch%209%20is%20ready", served.tcp)
    lines = [record.getMessage() for record in caplog.records if record.name == "sparkd.audit"]
    assert lines == ["POST '/v1/ring\\nepoch 9 is ready' by 127.0.0.1: refused, token-missing: a change needs a token"]


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_have_a_limit(chunked: bool, tmp_path: Path) -> None:
    def framed(body: bytes) -> tuple[dict[str, str], bytes]:
        if not chunked:
            return {}, body
        pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
        framing = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        return {"Transfer-Encoding": "chunked"}, framing + b"0\r\n\r\n"

    @in_loop
    async def post() -> None:
        async with cluster() as ring:
            await down(ring)
            async with api(ring.conductor.loop, tmp_path) as served:
                for where, more in ((served.unix, {}), (served.tcp, BEARER)):
                    headers, body = framed(b"x" * BODY_LIMIT)
                    fits = await served.post("/v1/ring/stop", where, headers=headers | more, body=body)
                    assert (fits.status, fits.problem["code"]) == (400, "body-not-allowed")
                    headers, body = framed(b"x" * (BODY_LIMIT + 1))
                    answer = await served.post("/v1/ring/stop", where, headers=headers | more, body=body)
                    assert (answer.status, answer.problem["code"]) == (413, "body-too-large")
                    assert answer.problem["detail"] == f"a body has at most {BODY_LIMIT} bytes"

    post()


@in_loop
async def test_a_body_that_only_says_that_it_is_large_is_refused_unread(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for length in (str(BODY_LIMIT + 1), "9" * 4000):
                head = f"POST /v1/ring/stop HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
                assert (await send(served.unix, head.encode(), 0.2)).startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")), (
                    length
                )
            assert ring.conductor.disk.intent is None


GARBAGE = [
    b"\0" * 100,
    b"\r\n\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /v1/ring\r\n\r\n",
    b"GET /v1/ring HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /v1/ring HTTP/1.1\r\n\r\n",
    b"GET /%00%ff%0d%0a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /v1/events?after=%ff&limit=\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /v1/operations/%2e%2e%2fring HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET http://elsewhere/v1/ring HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET //v1//ring/../ring HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\nConnection: close\r\n\r\n",
    b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"Connection: close\r\n\r\n",
    b"POST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxxx",
    b"POST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer "
    + TOKEN.encode()
    + b"\r\n\r\nzz\r\n",
    b"GET /v1/ring HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nQ",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 500,
]
EXPECTED = [f"HTTP/1.1 {status} ".encode() for status in (200, 400, 401, 403, 404, 408, 414, 422, 431)]


@in_loop
async def test_garbage_is_refused_and_the_next_caller_served(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for where in (served.unix, served.tcp):
                for garbage in GARBAGE:
                    back = await send(where, garbage, 0.1)
                    # Half of a request gets no answer.
                    assert back == b"" or back[:13] in EXPECTED, garbage
            assert ring.conductor.disk.intent is None
            assert (await served.get("/v1/ring")).status == 200
