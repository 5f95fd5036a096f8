"""One connection to one peer, over real mutual TLS: what it carries, what it refuses, and how it says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from sparkd import wire
from sparkd.api.guard import Body
from sparkd.api.peer import peer_app
from sparkd.cli.client import Client as ApiClient
from sparkd.core.model import Intent, Report
from sparkd.peers.client import START_DEADLINE, PeerClient, PeerError
from sparkd.reconcile.loop import EXAMINATION, Loop
from tests.api.serving import served
from tests.core.builders import NOW, report
from tests.peers.tls import Certificates
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

T = TypeVar("T")
MINE = report("spark2", Intent(3, "down", "operator", "stop asked for", NOW))
OK = wire.dumps(MINE)


async def call(function: Callable[..., T], *arguments: object) -> T:
    """As the Poller does: from a thread."""
    return await asyncio.to_thread(function, *arguments)


async def refusal(function: Callable[..., object], *arguments: object) -> str:
    """The sentence of the PeerError, without the address it begins with."""
    with pytest.raises(PeerError) as caught:
        await call(function, *arguments)
    where, _, sentence = str(caught.value).partition(" ")
    assert where.startswith("127.0.0.1:")
    return sentence


class Stub:
    """A peer that answers with these bytes, and counts its callers' connections."""

    def __init__(self, status: int = 200, body: bytes = OK) -> None:
        self.status = status
        self.body = body
        self.asked: list[tuple[str, str, bytes]] = []
        self.connections: set[Any] = set()
        self.pause = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await asyncio.sleep(self.pause)
        self.asked.append((scope["method"], scope["path"], body))
        self.connections.add(scope["client"])
        length = str(len(self.body)).encode()
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self.body})


@contextlib.asynccontextmanager
async def closing(client: PeerClient) -> AsyncIterator[PeerClient]:
    try:
        yield client
    finally:
        client.close()


@contextlib.asynccontextmanager
async def daemon(certificates: Certificates) -> AsyncIterator[tuple[Loop, PeerClient]]:
    """The conductor's real API for peers, and spark2's client of it."""
    async with cluster() as ring:
        await ring.reach("down")
        await ring.quiet()
        loop = ring.conductor.loop
        async with (
            certificates.serving(Body(peer_app(loop), wanted=True), "spark1") as port,
            closing(certificates.client("spark2", port)) as client,
        ):
            yield loop, client


def test_reports_and_requests_travel(certificates: Certificates) -> None:
    @in_loop
    async def travel() -> None:
        async with daemon(certificates) as (loop, client):
            own = loop.report()
            assert await call(client.pull) == own
            assert await call(client.exchange, MINE) == own
            body = {"request": "stop", "by": "operator on spark2"}
            status, answer = await call(client.request, body)
            assert status == 202
            assert wire.decode(wire.Operation, answer).want == "down"
            status, answer = await call(client.request, body | {"request": "dance"})
            assert (status, answer["code"]) == (422, "bad-request")

    travel()


def test_one_connection_is_kept(certificates: Certificates) -> None:
    @in_loop
    async def keep() -> None:
        stub = Stub()
        async with certificates.serving(stub, "spark1") as port, closing(certificates.client("spark2", port)) as client:
            assert await call(client.pull) == MINE
            assert await call(client.exchange, MINE) == MINE
            assert await call(client.request, {"request": "stop"}) == (200, wire.encode(MINE))
        assert stub.asked == [
            ("GET", "/peer/v1/report", b""),
            ("POST", "/peer/v1/report", OK),
            ("POST", "/peer/v1/intent", b'{"request": "stop"}'),
        ]
        assert len(stub.connections) == 1

    keep()


def test_a_peer_that_restarted_is_asked_again_at_once(certificates: Certificates) -> None:
    @in_loop
    async def restart() -> None:
        async with certificates.serving(Stub(), "spark1") as port:
            client = certificates.client("spark2", port)
            assert await call(client.pull) == MINE
        async with closing(client):
            stub = Stub()
            async with certificates.serving(stub, "spark1", port):
                assert await call(client.exchange, MINE) == MINE
                assert len(stub.asked) == 1
            # And one that did not come back is told as it is now, not as it left.
            assert await refusal(client.pull) == "connection refused"
            assert await refusal(client.pull) == "connection refused"

    restart()


CLOSED = "it closed the connection; if it goes on doing so, it refuses this node's certificate"
REFUSED = (CLOSED, "it refuses this node's certificate")  # whether the alert or the end of the connection is first
SELF_SIGNED = "its certificate is refused: self-signed certificate in certificate chain"
OTHER_ADDRESS = "its certificate is refused: IP address mismatch, certificate is not valid for '127.0.0.1'."


@pytest.mark.parametrize(
    ("client", "server", "sentence"),
    [("spark2", "foreign", SELF_SIGNED), ("foreign", "spark1", SELF_SIGNED), ("spark2", "elsewhere", OTHER_ADDRESS)],
)
def test_a_peer_that_cannot_prove_itself(certificates: Certificates, client: str, server: str, sentence: str) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub()
        async with certificates.serving(stub, server) as port, closing(certificates.client(client, port)) as caller:
            for _ in range(2):
                assert await refusal(caller.exchange, MINE) == sentence
        assert stub.asked == []

    ask()


def test_a_caller_of_another_cluster_is_not_heard(certificates: Certificates) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub()
        async with certificates.serving(stub, "spark1") as port:
            async with closing(certificates.client("intruder", port)) as intruder:
                for _ in range(2):
                    assert await refusal(intruder.exchange, MINE) in REFUSED
            async with closing(certificates.client("spark3", port)) as friend:
                assert await call(friend.pull) == MINE
        assert [method for method, _, _ in stub.asked] == ["GET"]

    ask()


def test_an_alert_is_put_into_words(certificates: Certificates) -> None:
    def judge(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with plain:
            with pytest.raises(ssl.SSLError):
                certificates.server("spark1").wrap_socket(plain.dup(), server_side=True)
            # Until the caller leaves: an end with data unread would overtake the alert.
            while plain.recv(4096):
                pass

    @in_loop
    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            judging = asyncio.create_task(asyncio.to_thread(judge, listener))
            async with closing(certificates.client("intruder", listener.getsockname()[1])) as intruder:
                assert await refusal(intruder.pull) == "it refuses this node's certificate"
            await judging

    ask()


def test_a_caller_without_a_certificate_is_not_heard(certificates: Certificates) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub()
        context = ssl.create_default_context(cafile=certificates.folder / "spark2" / "ca.crt")
        async with (
            certificates.serving(stub, "spark1") as port,
            closing(PeerClient("127.0.0.1", port, context)) as client,
        ):
            assert await refusal(client.pull) in REFUSED
        assert stub.asked == []

    ask()


def test_old_tls_is_refused(certificates: Certificates) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub()
        context = ssl.create_default_context(cafile=certificates.folder / "spark2" / "ca.crt")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with (
            certificates.serving(stub, "spark1") as port,
            closing(PeerClient("127.0.0.1", port, context)) as client,
        ):
            assert (await refusal(client.pull)).startswith(("TLS failed: ", CLOSED))
        assert stub.asked == []

    ask()


def test_plain_http_is_refused_both_ways(certificates: Certificates) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub()
        async with served(stub) as port, closing(certificates.client("spark2", port)) as client:
            assert (await refusal(client.pull)).startswith("TLS failed: ")
        async with certificates.serving(stub, "spark1") as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /peer/v1/report HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await asyncio.wait_for(reader.read(), 2)
            writer.close()
        assert stub.asked == []

    ask()


def test_a_peer_that_takes_connections_and_says_nothing(certificates: Certificates) -> None:
    @in_loop
    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with closing(certificates.client("spark2", silent.getsockname()[1])) as client:
                assert await refusal(client.pull) == "no answer in time"

    ask()


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (503, OK, "answered 503"),
        (404, b"", "answered 404"),
        (200, b"", "sent a report that does not fit: Report: not JSON: "),
        (200, b"{}", "sent a report that does not fit: node: missing"),
        (200, OK.replace(b'"down"', b'"sideways"'), "sent a report that does not fit: intent.want: expected one of "),
        (200, b"[" * 100_000, "sent a report that does not fit: "),
        (200, OK.replace(b"1700000000.0", b"1" * 400), "sent a report that does not fit: "),
        (200, b" " * (1 << 20), "sent a report that does not fit: Report: not JSON: "),
        (200, OK + b" " * (1 << 20), "an answer above 1048576 bytes"),
    ],
)
def test_answers_that_cannot_be_used(certificates: Certificates, status: int, body: bytes, sentence: str) -> None:
    @in_loop
    async def ask() -> None:
        stub = Stub(status, body)
        async with certificates.serving(stub, "spark1") as port, closing(certificates.client("spark2", port)) as client:
            assert (await refusal(client.pull)).startswith(sentence)
            stub.status, stub.body = 200, OK
            assert await call(client.pull) == MINE

    ask()


@pytest.mark.parametrize("body", [b"", b"Internal Server Error", b"[]", b'"started"', b"17", b"null", b"[" * 100_000])
def test_an_answer_to_a_request_that_is_no_object(certificates: Certificates, body: bytes) -> None:
    @in_loop
    async def ask() -> None:
        async with (
            certificates.serving(Stub(500, body), "spark1") as port,
            closing(certificates.client("spark2", port)) as client,
        ):
            assert await refusal(client.request, {"request": "start"}) == "answered 500 without a JSON object"

    ask()


def test_a_report_survives_the_way(certificates: Certificates) -> None:
    """Whatever is in it: the longest sentence, other scripts, nothing at all."""

    @in_loop
    async def travel() -> None:
        told = report("spark2", Intent(2**53, "up", "Ünïcödé ☃", "x" * 100_000, 0.1), units=None, ends=None)
        async with (
            certificates.serving(Stub(200, wire.dumps(told)), "spark1") as port,
            closing(certificates.client("spark2", port)) as client,
        ):
            received: Report = await call(client.pull)
            assert received == told

    travel()


def test_a_start_that_is_handed_over_may_take_as_long_as_the_hosts_may_look_at_themselves(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A peer hangs, and a start is handed to the conductor. 2. That waits for the peer, and accepts the start. It
    must not be told as failed by then, nor may sparkctl have given up."""
    assert EXAMINATION + 1 < START_DEADLINE < ApiClient.timeout
    monkeypatch.setattr("sparkd.peers.client.ANSWER_DEADLINE", 0.1)

    @in_loop
    async def wait() -> None:
        stub = Stub()
        stub.pause = 0.3
        async with certificates.serving(stub, "spark1") as port, closing(certificates.client("spark2", port)) as client:
            assert await call(client.request, {"request": "start"}) == (200, wire.encode(MINE))
            assert await refusal(client.request, {"request": "stop"}) == "no answer in time"

    wait()
