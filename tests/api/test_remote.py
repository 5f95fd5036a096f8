"""`[api] listen`: operators elsewhere, over TLS and with a token for everything."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from ring_mesh import Cluster
from sparkd.cli.certificates import issue, make_ca
from sparkd.config import Engine, Listen, Paths, Settings
from sparkd.config.settings import Api
from sparkd.config.tokens import render
from sparkd.core.snapshot import Policy
from sparkd.listeners import listening
from sparkd.peers.tls import Credentials, certificate_names
from tests.api.serving import BEARER, READER, TOKENS, Answer, receive
from tests.api.serving import listening as served
from tests.core.builders import CLUSTER
from tests.peers.tls import Certificates
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [int(sock.getsockname()[1]) for sock in socks]


def settings_of(folder: Path, api: Api, ports: list[int]) -> Settings:
    nodes = tuple(replace(node, address=IPv4Address(f"127.0.0.{node.rank + 1}")) for node in CLUSTER.nodes)
    own: Cluster = replace(CLUSTER, nodes=nodes)
    paths = replace(Paths.beside(folder / "sparkd.toml", {}), run=folder, tls=folder / "spark1")
    listen = Listen(f"127.0.0.1:{ports[0]}", ports[1])
    return Settings("spark1", own, Policy(), 5.0, Engine(), listen, paths, b"", api=api)


@contextlib.asynccontextmanager
async def daemon(folder: Path, api: Api, ports: list[int]) -> AsyncIterator[None]:
    (folder / "tokens.json").write_bytes(render(TOKENS))
    async with cluster() as ring:
        await ring.reach("down")
        loop = ring.conductor.loop
        async with listening(settings_of(folder, api, ports), loop) as made, served(*made):
            yield


async def ask(port: int, context: ssl.SSLContext, method: str, path: str, **headers: str) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    given = {"Host": f"127.0.0.1:{port}", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    try:
        async with asyncio.timeout(5):
            return await receive(reader, method)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_everything_takes_tls_and_a_token(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    *ports, port = free_ports(3)
    trusting = ssl.create_default_context(cafile=certificates.folder / "spark1/ca.crt")

    @in_loop
    async def go() -> None:
        async with daemon(tmp_path, Api(f"127.0.0.1:{port}"), ports):
            for path in ("/v1/ring", "/livez", "/metrics", "/openapi.json", "/nowhere"):
                answer = await ask(port, trusting, "GET", path)
                assert (answer.status, answer.problem["code"]) == (401, "token-missing"), path
                assert answer.problem["detail"] == "this listener needs a token"
            assert (await ask(port, trusting, "GET", "/v1/ring", **READER)).json["phase"] == "down"
            assert (await ask(port, trusting, "POST", "/v1/ring/clear", **READER)).problem["code"] == "read-only"
            assert (await ask(port, trusting, "POST", "/v1/ring/clear", **BEARER)).status == 202
            for name in ("localhost", "spark2", "evil.example"):
                answer = await ask(port, trusting, "GET", "/v1/ring", Host=name, **BEARER)
                assert answer.problem["code"] == "host-not-allowed", name
            assert (await ask(port, trusting, "GET", "/v1/ring", Host="SPARK1", **READER)).status == 200
            origin = {"Origin": f"http://127.0.0.1:{port}"}
            assert (await ask(port, trusting, "GET", "/v1/ring", **origin, **READER)).status == 403
            origin = {"Origin": f"https://127.0.0.1:{port}"}
            assert (await ask(port, trusting, "GET", "/v1/ring", **origin, **READER)).status == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/ring HTTP/1.1\r\nHost: spark1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await reader.read(100), "nothing is said in the clear"
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    go()


def test_a_certificate_of_its_own(tmp_path: Path) -> None:
    Certificates.make(tmp_path)
    other = make_ca("office", datetime.now(UTC))
    pair = issue(other, "ring.example", IPv4Address("127.0.0.1"), datetime.now(UTC))
    files: dict[str, Any] = {"ring.crt": pair.certificate, "ring.key": pair.key, "office.crt": other.certificate}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    *ports, port = free_ports(3)
    shown = Api(f"127.0.0.1:{port}", str(tmp_path / "ring.crt"), str(tmp_path / "ring.key"))
    own = Credentials.below(tmp_path / "spark1").showing(shown.certificate, shown.key)
    assert certificate_names(own) == {"ring.example", "127.0.0.1"}

    @in_loop
    async def go() -> None:
        async with daemon(tmp_path, shown, ports):
            trusting = ssl.create_default_context(cafile=tmp_path / "office.crt")
            assert (await ask(port, trusting, "GET", "/v1/ring", Host="ring.example", **READER)).status == 200

    go()


def test_without_it_there_is_no_such_listener(tmp_path: Path) -> None:
    Certificates.make(tmp_path)
    *ports, port = free_ports(3)

    @in_loop
    async def go() -> None:
        async with daemon(tmp_path, Api(), ports):
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)

    go()
