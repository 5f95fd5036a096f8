"""No way in: whatever is sent without the right, nothing changes, and no change is answered as if it had been made.

What is tried, mixed at random, on the listener of 127.0.0.1 and as a user without the right on the Unix socket:

* methods: those of HTTP, those that others use to hide one in another, words in small letters, no word at all
* paths: every one that changes something, with escapes, doubled and missing slashes, dots, case, parameters, a query
  that names another path, an absolute form with another host
* tokens: none, empty, wrong, one of another role, an expired one, its digest, one cut off or with more behind it, of
  another scheme, twice, in the query, in a cookie, in a body, folded, in other case
* headers: those that proxies use to say who asks or what is meant, Host and Origin of others, two lengths of a body
* bodies: JSON of an order, forms, a second request behind the first one
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sparkd.api import limits
from sparkd.api.access import Access, over_the_socket
from sparkd.api.callers import PROCESS, Process
from sparkd.api.guard import Body, Limits
from sparkd.api.limits import Attempts, Changes
from sparkd.config.tokens import digest
from tests.api.serving import EXPIRED, READER, TOKEN, _application, api, send
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop

CHANGES = [
    *(f"/v1/ring/{what}" for what in ("start", "stop", "clear", "hold", "resume")),
    *(f"/v1/host/fabric/{what}" for what in ("down", "up", "measure")),
]
METHODS = ["POST", "PUT", "PATCH", "DELETE", "post", "Post", "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "X" * 30, ""]
TWISTS = [
    "{0}",
    "/{0}",
    "{0}/",
    "{0}//",
    "{0}?force=true",
    "{0}?dry_run=false",
    "{0}%2f",
    "{0}%00",
    "{0}%0d%0aAuthorization:%20Bearer%20" + TOKEN,
    "{0};v=1",
    "{0}#x",
    "{0}?token=" + TOKEN,
    "{0}?access_token=" + TOKEN,
    "{0}?_method=POST",
    "/v1/ring/..{0}",
    "/v1/ring?path={0}",
    "http://127.0.0.1{0}",
    "http://evil.example{0}",
]
AUTHORIZATIONS = [
    "",
    "Bearer",
    "Bearer " + "x" * 43,
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN} {TOKEN}",
    f"Bearer {digest(TOKEN)}",
    f"Bearer {TOKEN.upper()}",
    f"Basic {TOKEN}",
    TOKEN,
    f'Bearer "{TOKEN}"',
    f"Bearer, Bearer {TOKEN}",
    f"Negotiate Bearer {TOKEN}",
    READER["Authorization"],
    EXPIRED["Authorization"],
]
HEADERS = [
    "X-HTTP-Method-Override: POST",
    "X-Method-Override: POST",
    "X-Original-URL: /v1/ring/stop",
    "X-Rewrite-URL: /v1/ring/stop",
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: localhost",
    "X-Forwarded-User: root",
    "X-Remote-User: root",
    "Forwarded: for=127.0.0.1;host=localhost",
    "X-Real-IP: 127.0.0.1",
    f"Cookie: token={TOKEN}; Authorization=Bearer {TOKEN}",
    f"X-Api-Key: {TOKEN}",
    f"Proxy-Authorization: Bearer {TOKEN}",
    "Origin: https://evil.example",
    "Origin: null",
    "Sec-Fetch-Site: cross-site",
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: text/plain",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Content-Length: 0",
    "Content-Length: 999",
    "Accept: text/event-stream",
    "X: " + "y" * 20000,
]
BODIES = [
    "",
    '{"request": "stop", "by": "root on spark1", "force": true}',
    f"token={TOKEN}&force=true",
    f"0\r\n\r\nPOST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN[:-1]}\r\n\r\n",
    "POST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\n\r\n",
]
HOSTS = ["127.0.0.1", "localhost", "sparkd", "evil.example", "127.0.0.1.evil.example", "", "localhost, evil.example"]


@dataclass(frozen=True)
class Try:
    method: str
    target: str
    headers: tuple[str, ...]
    body: str

    @property
    def raw(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", *self.headers, "Connection: close"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body.encode()


def _made(method: str, path: str, twist: str, host: str, token: str, more: list[str], body: str, noise: bytes) -> Try:
    target = twist.format(path)
    junk = noise.decode("latin-1").encode("ascii", "ignore").decode()
    target += "".join(char for char in junk if char.isprintable() and char != " ")
    authorization = [f"Authorization: {token}"] if token else []
    return Try(method, target, (f"Host: {host}", *authorization, *more), body)


TRIES = st.builds(
    _made,
    st.sampled_from(METHODS),
    st.sampled_from(CHANGES),
    st.sampled_from(TWISTS),
    st.sampled_from(HOSTS),
    st.sampled_from(AUTHORIZATIONS),
    st.lists(st.sampled_from(HEADERS), max_size=3),
    st.sampled_from(BODIES),
    st.one_of(st.just(b""), st.binary(max_size=4)),
)


def untouched(ring: Cluster) -> bool:
    memories = [machine.disk.memory for machine in ring]
    return not any(m.disk.intent for m in ring) and not any(memory and memory.released for memory in memories)


def answers(back: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([1-5]\d\d) ", back)]


async def check_all(ring: Cluster, where: int, tries: list[Try]) -> None:
    for each, back in zip(tries, await asyncio.gather(*(send(where, t.raw, 0.5) for t in tries)), strict=True):
        got = answers(back)
        assert all(status < 500 for status in got), (each, back)
        if each.method.upper() not in ("GET", "HEAD", "OPTIONS"):
            assert not any(200 <= status < 300 for status in got), (each, back)
        assert untouched(ring), each


# A case is small as it is, and making 24 of them smaller would take minutes.
@settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(tries=st.lists(TRIES, min_size=24, max_size=24))
def test_nothing_passes_on_loopback_without_a_token(tmp_path_factory: Any, tries: list[Try]) -> None:
    folder: Path = tmp_path_factory.mktemp("api")
    delay, limits._LONGEST_DELAY = limits._LONGEST_DELAY, 0.01

    @in_loop
    async def go() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            async with api(ring.conductor.loop, folder) as served:
                await check_all(ring, served.tcp, tries)
                assert (await served.get("/v1/ring", served.tcp)).status == 200

    try:
        go()
    finally:
        limits._LONGEST_DELAY = delay


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(attempt=TRIES, uid=st.integers(1, 2**31), groups=st.frozensets(st.integers(0, 2**31), max_size=4))
def test_nothing_passes_on_the_socket_without_the_right(attempt: Try, uid: int, groups: frozenset[int]) -> None:
    """The application as the Unix socket has it, for a process that is neither root nor a member."""
    member = 4242
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": attempt.body.encode(), "more_body": False}

    async def answer(message: Any) -> None:
        sent.append(message)

    @in_loop
    async def go() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            served = Body(_application(), wanted=False)
            attempts = Attempts()
            app = Limits(Access(served, over_the_socket(member), attempts, Changes(lambda: 0.0)))
            path, _, query = attempt.target.partition("?")
            scope = {
                "type": "http",
                "method": attempt.method,
                "path": path,
                "raw_path": path.encode(),
                "query_string": query.encode(),
                "headers": [
                    (name.lower().encode(), value.strip().encode())
                    for name, _, value in (line.partition(":") for line in attempt.headers)
                ],
                PROCESS: Process(uid, groups - {member}),
            }
            await app(scope, receive, answer)
            attempts.close()
            assert untouched(ring), attempt
            if attempt.method not in ("GET", "HEAD", "OPTIONS"):
                assert sent[0]["status"] == 403 or sent[0]["status"] >= 413, (attempt, sent)

    go()
