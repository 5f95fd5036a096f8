"""``/health``: what it says, and how it treats clients that are no clients."""

import asyncio
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import Endpoint, read_environment
from runtime.exits import ExitCode, RankFailure
from runtime.probe.health import REQUEST_MAX, Health, HealthServer, answer
from runtime.probe.messages import Measured
from runtime.probe.topology import find_links
from tests.runtime.test_environment import GOOD
from tests.runtime.triangle import triangle_rails


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_health_follows_the_canary() -> None:
    clock = Clock()
    health = Health(read_environment({**GOOD, "SPARKD_CANARY_INTERVAL": "2"}), clock)
    assert health.view()[0] == 503
    assert health.view()[1]["status"] == "starting"
    health.canary()
    clock.now += 6.0
    status, body = health.view()
    assert (status, body["status"], body["canaries"], body["canary_age_seconds"]) == (200, "ok", 1, 6.0)
    clock.now += 0.1
    assert health.view()[0] == 503
    assert health.view()[1]["status"] == "stale"
    health.canary()
    assert health.view()[1]["canaries"] == 2
    assert health.view()[0] == 200


def test_health_lists_the_rails_as_they_are_measured() -> None:
    health = Health(read_environment(GOOD), Clock())
    measured: dict[int, Measured] = {}
    health.formed(find_links(triangle_rails("10.77.0", 3), 3), measured)
    measured[1] = Measured(1, 0.0000421, 91.23456, 90.0)
    rails = health.view()[1]["rails"]
    assert isinstance(rails, list)
    assert rails[1] == {
        "pci_domain": "0002",
        "ends": [
            {"rank": 0, "node": "spark1", "device": "enP2p1s0f0np0", "address": "10.77.0.3"},
            {"rank": 1, "node": "spark2", "device": "enP2p1s0f1np1", "address": "10.77.0.4"},
        ],
        "latency_us": 42.1,
        "forward_gbps": 91.235,
        "backward_gbps": 90.0,
    }
    assert [rail["latency_us"] for rail in rails].count(None) == 5


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /health HTTP/1.1", 200),
        (b"GET /health?x=1 HTTP/1.0", 200),
        (b"HEAD /health HTTP/1.1", 200),
        (b"GET / HTTP/1.1", 404),
        (b"GET /health/x HTTP/1.1", 404),
        (b"POST /health HTTP/1.1", 405),
        (b"\xff\xfe", 405),
    ],
)
def test_only_health_is_served(request_line: bytes, status: int) -> None:
    reply = answer(request_line + b"\r\n\r\n", lambda: (200, {"status": "ok"}))
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (body == b"") == request_line.startswith(b"HEAD")
    if body:
        assert b"Content-Length: %d" % len(body) in head
        assert (json.loads(body)["status"] == "ok") == (status == 200)
    assert (b"Allow: GET, HEAD" in head) == (status == 405)


@given(st.binary(max_size=300))
def test_no_request_breaks_the_answer(head: bytes) -> None:
    assert answer(head, lambda: (503, {"status": "starting"})).startswith(b"HTTP/1.1 ")


def test_clients_that_misbehave_leave_nothing_behind() -> None:
    async def serve(endpoint: Endpoint) -> bytes:
        async with HealthServer(endpoint, lambda: (200, {"status": "ok"})):
            silent = await asyncio.open_connection(endpoint.host, endpoint.port)
            flood = await asyncio.open_connection(endpoint.host, endpoint.port)
            flood[1].write(b"x" * (2 * REQUEST_MAX))
            assert await flood[0].read() == b""
            good = await asyncio.open_connection(endpoint.host, endpoint.port)
            good[1].write(b"GET /health HTTP/1.1\r\n\r\n")
            reply = await good[0].read()
        # The server is gone although one client never said a word.
        for _, writer in (silent, flood, good):
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1
        return reply

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert asyncio.run(serve(Endpoint("127.0.0.1", port))).endswith(b'{"status": "ok"}\n')


def test_an_address_in_use_is_a_bad_environment() -> None:
    async def serve(endpoint: Endpoint) -> None:
        async with HealthServer(endpoint, lambda: (200, {})):
            raise AssertionError("two servers on one address")

    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(RankFailure) as caught:
        asyncio.run(serve(Endpoint("127.0.0.1", other.getsockname()[1])))
    assert caught.value.code is ExitCode.BAD_ENVIRONMENT
    assert "Address already in use" in caught.value.sentence
