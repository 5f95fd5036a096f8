"""Who may do what: users of this host, bearers of tokens, and pages of other sites."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkd.api import limits
from sparkd.api.limits import CHANGES, Attempts, Changes
from sparkd.config.tokens import render
from tests.api.serving import BEARER, EXPIRED, READER, TOKEN, TOKENS, api
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop

CHANGING = ["/v1/ring/start", "/v1/ring/stop", "/v1/ring/clear", "/v1/ring/hold", "/v1/ring/resume"]
MEMBERS = 4242
NOBODY = 65534
# As another user, which has to be a process of its own: the socket's other end is asked for its credentials.
_ASK = """
import os, socket, sys
path, method, target, uid, *groups = sys.argv[1:]
os.setgroups([int(group) for group in groups])
os.setgid(int(uid))
os.setuid(int(uid))
with socket.socket(socket.AF_UNIX) as s:
    s.connect(path)
    head = f"{method} {target} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"
    s.sendall(head.encode())
    back = b""
    while more := s.recv(65536):
        back += more
sys.stdout.buffer.write(back)
"""


async def down(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.quiet()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "sparkd.audit"]


async def ask_as(path: Path, method: str, target: str, uid: int, *groups: int) -> tuple[int, dict[str, Any]]:
    for folder in (path, *path.parents[:3]):
        folder.chmod(0o777)
    words = [sys.executable, "-c", _ASK, str(path), method, target, str(uid), *map(str, groups)]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@in_loop
async def test_members_of_the_group_operate_and_others_look(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path, group=MEMBERS) as served:
            caplog.clear()
            caplog.set_level(logging.INFO, "sparkd.audit")
            status, body = await ask_as(served.unix, "GET", "/v1/ring", NOBODY)
            assert (status, body["phase"]) == (200, "down")
            for groups in ((), (MEMBERS + 1,)):
                status, body = await ask_as(served.unix, "POST", "/v1/ring/start", NOBODY, *groups)
                assert (status, body["code"]) == (403, "read-only")
            assert ring.conductor.disk.intent is None
            status, _ = await ask_as(served.unix, "POST", "/v1/ring/start", NOBODY, 7, MEMBERS)
            assert status == 202
            assert ring.conductor.loop.state.intent.by == f"nobody (uid {NOBODY}) on spark1"
    told = lines(caplog)
    assert told[0].startswith(
        "POST '/v1/ring/start' by nobody (uid 65534) at the Unix socket: refused, read-only: nobody (uid 65534) may"
    )
    assert told[-1] == "POST '/v1/ring/start' by nobody (uid 65534) at the Unix socket: accepted, /v1/operations/1"
    assert len(told) == 2, "the second refusal of the minute is counted, not told"


@in_loop
async def test_roles_of_tokens(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for path in CHANGING:
                answer = await served.post(path, served.tcp, headers=READER)
                assert (answer.status, answer.problem["code"]) == (403, "read-only")
                answer = await served.post(path, served.tcp, headers=EXPIRED)
                assert (answer.status, answer.problem["code"]) == (401, "token-expired")
            assert ring.conductor.disk.intent is None
            assert (await served.post("/v1/ring/start", served.tcp, headers=BEARER)).status == 202


@in_loop
async def test_a_token_counts_from_its_creation_to_its_revocation_without_a_restart(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path, tokens=()) as served:
            file = tmp_path / "tokens.json"
            assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 401
            file.write_bytes(render(TOKENS))
            assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 202
            file.write_bytes(render(TOKENS[1:]))
            assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 401
            file.write_text('{"version": 1, "tokens": [{"name": "Mr. Miller"}]}')
            answer = await served.post("/v1/ring/clear", served.tcp, headers=BEARER)
            assert (answer.status, answer.problem["code"]) == (503, "tokens-unreadable")
            assert answer.problem["detail"] == f"the tokens in {file} cannot be used", "and not what is in it"
            file.unlink()
            assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 401


@in_loop
async def test_a_strange_name_for_this_host_is_refused(tmp_path: Path) -> None:
    """A page of evil.example whose name has come to lead to 127.0.0.1 is, to a browser, of the same origin."""
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            for host in (
                "evil.example",
                f"evil.example:{served.tcp}",
                "127.0.0.1.evil.example",
                "[::1]",
                "127.0.0.2",
                "x",
            ):
                for method, path in (("GET", "/v1/ring"), ("POST", "/v1/ring/stop"), ("GET", "/metrics")):
                    answer = await served.call(method, path, served.tcp, headers={"Host": host, **BEARER})
                    assert (answer.status, answer.problem["code"]) == (403, "host-not-allowed"), host
            # Also behind a tunnel, which has another port.
            for host in ("localhost", "127.0.0.1", f"localhost:{served.tcp}", "LOCALHOST:8080", "127.0.0.1:1"):
                assert (await served.get("/v1/ring", served.tcp, headers={"Host": host})).status == 200, host
            assert (await served.get("/v1/ring", headers={"Host": "evil.example"})).status == 200, "no browser is there"
            assert ring.conductor.disk.intent is None


@in_loop
async def test_a_page_of_another_site_can_neither_change_nor_look(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            own = f"127.0.0.1:{served.tcp}"
            for origin in (
                "https://evil.example",
                "null",
                f"https://{own}",
                "http://127.0.0.1:3000",
                "http://localhost",
            ):
                for method, path in (("GET", "/v1/ring"), ("POST", "/v1/ring/stop"), ("OPTIONS", "/v1/ring/stop")):
                    answer = await served.call(method, path, served.tcp, headers={"Origin": origin, **BEARER})
                    assert (answer.status, answer.problem["code"]) == (403, "origin-not-allowed"), origin
                    assert not [name for name in answer.headers if name.startswith("access-control-")]
            # Without an Origin, as browsers ask for a picture, a script, or with fetch in mode no-cors.
            for site, mode, status in (
                ("cross-site", "no-cors", 403),
                ("same-site", "no-cors", 403),
                ("cross-site", "navigate", 200),
                ("same-origin", "cors", 200),
                ("none", "navigate", 200),
            ):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
                assert (await served.get("/v1/incidents", served.tcp, headers=headers)).status == status, headers
            assert ring.conductor.disk.intent is None
            answer = await served.post("/v1/ring/clear", served.tcp, headers={"Origin": f"http://{own}", **BEARER})
            assert answer.status == 202


@in_loop
async def test_each_change_and_each_refusal_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as ring:
        await down(ring)
        ring["spark2"].links.unplug("enp1s0f0np0")
        async with api(ring["spark3"].loop, tmp_path) as served:
            caplog.clear()
            caplog.set_level(logging.INFO, "sparkd.audit")
            await served.post("/v1/ring/hold?reason=new+fan", served.tcp, headers=BEARER)
            await served.post("/v1/ring/start")
            await served.get("/v1/ring")
    told = lines(caplog)
    assert told[0] == "POST '/v1/ring/hold?reason=new+fan' by laptop (token) at 127.0.0.1: accepted, /v1/operations/0"
    assert told[1].startswith(
        "POST '/v1/ring/start' by root (uid 0) at the Unix socket: refused, maintenance: nothing is"
    )
    assert len(told) == 2, "looking is not told"


@in_loop
async def test_a_token_in_an_address_does_not_get_into_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "sparkd_k3yOfTheOperator-0123456789"
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            caplog.clear()
            caplog.set_level(logging.INFO, "sparkd.audit")
            await served.post(f"/v1/ring/hold?{'x' * 190}={secret}")
            await served.post(f"/v1/ring/hold?access_token={TOKEN}&reason=fan", served.tcp)
            # Of each source there is one line a minute, so that each of these has its own.
            await served.post(f"/v1/{secret}", served.tcp, headers=BEARER)
    told = lines(caplog)
    assert len(told) == 3
    assert not [line for line in told if secret[:12] in line or TOKEN[:8] in line]
    assert "?access_token=[secret]&reason=fan' by" in told[1]


@in_loop
async def test_failed_tokens_are_slowed_and_told_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, limits.LINE_SECONDS = limits.LINE_SECONDS, 0.8
    try:
        async with cluster() as ring:
            await down(ring)
            async with api(ring.conductor.loop, tmp_path, slow=True) as served:
                caplog.clear()
                caplog.set_level(logging.INFO, "sparkd.audit")
                began = asyncio.get_running_loop().time()
                wrong = {"Authorization": "Bearer guess"}
                asked = [served.post("/v1/ring/stop", served.tcp, headers=wrong) for _ in range(16)]
                answers = asyncio.gather(*asked)
                # Whoever has the right is not held up by others at the same address.
                await asyncio.sleep(0.05)
                assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 202
                assert asyncio.get_running_loop().time() - began < 1.0
                codes = [answer.problem["code"] for answer in await answers]
                assert codes.count("token-wrong") == 3 + 8
                assert codes.count("too-many-failures") == 5
                assert asyncio.get_running_loop().time() - began > 1.0
                await asyncio.sleep(0.3)
        told = [line for line in lines(caplog) if "clear" not in line]
        assert told[0].startswith("POST '/v1/ring/stop' by 127.0.0.1: refused, token-wrong")
        assert told[1] == "15 more refused from 127.0.0.1 within 0.8 s"
        assert len(told) == 2
    finally:
        limits.LINE_SECONDS = before


@in_loop
async def test_sources_are_counted_in_bounded_memory() -> None:
    attempts = Attempts()
    for number in range(2000):
        attempts.tell(f"10.0.{number // 256}.{number % 256}", "line")
    assert len(attempts._sources) <= 257
    attempts.close()
    now = 0.0
    changes = Changes(lambda: now)
    for number in range(2000):
        assert changes.wait(f"uid {number}") == 0
    assert len(changes._full_again) <= 256


def test_changes_have_a_rate_for_each_caller() -> None:
    now = 100.0
    changes = Changes(lambda: now)
    assert [changes.wait("a") for _ in range(CHANGES)] == [0.0] * CHANGES
    assert changes.wait("a") == pytest.approx(1.0)
    assert changes.wait("b") == 0.0
    now = 101.5
    assert changes.wait("a") == 0.0
    assert changes.wait("a") == pytest.approx(0.5)
    now = 1000.0
    assert [changes.wait("a") for _ in range(CHANGES)] == [0.0] * CHANGES


@in_loop
async def test_too_many_changes_wait_but_a_stop_never_does(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            answers = [await served.post("/v1/ring/clear") for _ in range(CHANGES)]
            assert {answer.status for answer in answers} == {202}
            refused = [await served.post("/v1/ring/clear") for _ in range(3)][-1]
            assert (refused.status, refused.problem["code"]) == (429, "too-many-changes")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await served.post("/v1/ring/stop")).status == 202
            assert (await served.post("/v1/ring/clear", served.tcp, headers=BEARER)).status == 202, "another caller"
