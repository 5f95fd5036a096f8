"""The daemon's listeners on real sockets, and a client that sends whatever a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from starlette.types import ASGIApp

from sparkd.api.access import Access, Identify, Site, over_tcp, over_the_socket
from sparkd.api.app import operator_app
from sparkd.api.callers import NAMES
from sparkd.api.guard import Body, Limits
from sparkd.api.limits import Attempts, Changes
from sparkd.api.listener import Listener, tcp_socket, unix_socket
from sparkd.api.peer import peer_app
from sparkd.api.problems import STATUS, TYPE
from sparkd.api.protocol import With
from sparkd.config.tokens import Token, TokenFile, digest, render
from sparkd.reconcile.loop import Loop

TOKEN = "a-token-of-the-test-cluster"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
READER = {"Authorization": "Bearer a-token-that-only-reads"}
EXPIRED = {"Authorization": "Bearer a-token-of-last-year"}
TOKENS = (
    Token("laptop", "operate", digest(TOKEN), 0.0, TOKEN[-4:]),
    Token("grafana", "read", digest("a-token-that-only-reads"), 0.0, "eads", 4e9),
    Token("old", "operate", digest("a-token-of-last-year"), 0.0, "year", 1e9),
)
PROBLEM = "application/problem+json"
Where = Path | int
"""A Unix socket, or a port of 127.0.0.1."""


class _Current:
    """The Loop of the daemon that is served now."""

    loop: Loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


_current = _Current()


@functools.cache
def _application() -> FastAPI:
    """Made once, since that takes longer than most tests."""
    return operator_app(cast(Loop, _current))


@dataclass(frozen=True)
class Answer:
    """`headers` with names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] in ("application/json", PROBLEM), self.headers
        return json.loads(self.body)

    @property
    def problem(self) -> Any:
        """The body, which must be a problem that fits its own status."""
        assert self.headers["content-type"] == PROBLEM, self
        body = self.json
        assert body["status"] == self.status
        assert body["type"] == TYPE + body["code"]
        assert STATUS[body["code"]] == self.status
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", body["code"])
        assert body["title"]
        assert body["detail"]
        assert set(body) <= {"type", "title", "status", "code", "detail", "hint", "findings", "epoch"}
        return body


async def connect(where: Where) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(where, Path):
        return await asyncio.open_unix_connection(where)
    return await asyncio.open_connection("127.0.0.1", where)


async def send(where: Where, data: bytes, patience: float = 5.0) -> bytes:
    """All that comes back for these bytes until the other side closes, or for so long."""
    reader, writer = await connect(where)
    back = b""
    try:
        # A server that refuses a long request closes while it is still being sent.
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(patience):
                writer.write(data)
                await writer.drain()
                while more := await reader.read(65536):
                    back += more
        return back
    finally:
        await _leave(writer)


async def ask(
    where: Where,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One request on a connection of its own."""
    given = {"Host": "sparkd" if isinstance(where, Path) else f"127.0.0.1:{where}"} | dict(headers or {})
    if body and "Transfer-Encoding" not in given:
        given.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    reader, writer = await connect(where)
    try:
        async with asyncio.timeout(5):
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            return await receive(reader, method)
    finally:
        await _leave(writer)


async def receive(reader: asyncio.StreamReader, method: str = "GET") -> Answer:
    """The next answer on a connection."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
    return Answer(int(first.split()[1]), headers, await reader.readexactly(length))


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


class _Errors(logging.Handler):
    """What the server had to say of itself: an exception that it caught is a fault of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@contextlib.asynccontextmanager
async def listening(*listeners: Listener) -> AsyncIterator[None]:
    """They serve, and have ended afterwards. Fails if one of them reported an error."""
    errors = _Errors()
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(errors)
    tasks = [asyncio.create_task(listener.serve()) for listener in listeners]
    try:
        async with asyncio.timeout(5):
            await asyncio.gather(*(listener.bound() for listener in listeners))
        yield
    finally:
        for listener in listeners:
            listener.stop()
        try:
            async with asyncio.timeout(5):
                await asyncio.gather(*tasks)
        finally:
            for logger in loggers:
                logger.removeHandler(errors)
    assert errors.records == []


@dataclass(frozen=True)
class Api:
    """One daemon's API as operators reach it. Every answer of a known path must be one that OpenAPI knows of."""

    unix: Path
    tcp: int

    async def get(self, path: str, where: Where | None = None, **more: Any) -> Answer:
        return await self.call("GET", path, where, **more)

    async def post(self, path: str, where: Where | None = None, **more: Any) -> Answer:
        return await self.call("POST", path, where, **more)

    async def call(self, method: str, path: str, where: Where | None = None, **more: Any) -> Answer:
        answer = await ask(self.unix if where is None else where, method, path, **more)
        for template, operations in _application().openapi()["paths"].items():
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path.partition("?")[0]) and method.isupper() and method.lower() in operations:
                self._check(answer, operations[method.lower()]["responses"], _application().openapi()["components"])
        return answer

    @staticmethod
    def _check(answer: Answer, documented: Mapping[str, Any], components: Mapping[str, Any]) -> None:
        assert str(answer.status) in documented, f"{answer.status} is not documented, {sorted(documented)} are"
        told = documented[str(answer.status)]
        if "$ref" in told:
            told = components["responses"][told["$ref"].rpartition("/")[2]]
        if "content-type" not in answer.headers:
            assert answer.status in (204, 304)
            return
        media_type = answer.headers["content-type"].partition(";")[0]
        assert media_type in told["content"], (media_type, told)


@contextlib.asynccontextmanager
async def api(
    loop: Loop, folder: Path, tokens: tuple[Token, ...] = TOKENS, group: int = 0, slow: bool = False
) -> AsyncIterator[Api]:
    """The operators' two listeners on this host, put together as the daemon does. `group`: whose members operate.
    `slow`: failures wait as long as they do there."""
    _current.loop = loop
    application = Body(_application(), wanted=False)
    file = folder / "tokens.json"
    file.write_bytes(render(tokens))
    attempts, changes = Attempts() if slow else Attempts(0.001, 0.002), Changes(time.monotonic)

    def operators(identify: Identify) -> ASGIApp:
        return Limits(Access(application, identify, attempts, changes))

    here = over_tcp(Site(frozenset({"127.0.0.1", "localhost"})), TokenFile(file), reading_open=True)
    path = folder / f"{loop.site.node}.sock"
    tcp = tcp_socket("127.0.0.1", 0)
    port = tcp.getsockname()[1]
    local = Listener(operators(over_the_socket(group)), unix_socket(path, 0o666))
    async with listening(local, Listener(operators(here), tcp)):
        yield Api(path, port)
    attempts.close()


@contextlib.asynccontextmanager
async def peers_api(loop: Loop, *names: str) -> AsyncIterator[int]:
    """The peers' application without TLS, as a caller finds it whose certificate has these names; yields its port."""
    async with served(Limits(Body(With(peer_app(loop), NAMES, frozenset(names)), wanted=True))) as port:
        yield port


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[int]:
    sock = tcp_socket("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    async with listening(Listener(app, sock)):
        yield port
