"""``GET /health`` on rank 0: is the group alive, and how fast are its rails."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping

from runtime.environment import Endpoint, RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.probe.messages import Measured
from runtime.probe.topology import End, Link
from runtime.probe.wire import reason

REQUEST_MAX = 8192
REQUEST_SECONDS = 5.0
CONNECTIONS_MAX = 32
FRESH_INTERVALS = 3

Reply = tuple[int, dict[str, object]]


class Health:
    """What ``/health`` reports. A group is healthy when a canary came home within the last three intervals."""

    def __init__(self, environment: RankEnvironment, clock: Callable[[], float]) -> None:
        self._environment = environment
        self._clock = clock
        self._links: tuple[Link, ...] = ()
        self._measured: Mapping[int, Measured] = {}
        self._last: float | None = None
        self.canaries = 0

    def formed(self, links: tuple[Link, ...], measured: Mapping[int, Measured]) -> None:
        """The group's links, and a mapping by link index that fills up as rails are measured."""
        self._links = links
        self._measured = measured

    def canary(self) -> None:
        """One more canary came home just now."""
        self.canaries += 1
        self._last = self._clock()

    def view(self) -> Reply:
        """HTTP status and body."""
        age = None if self._last is None else self._clock() - self._last
        fresh = age is not None and age <= FRESH_INTERVALS * self._environment.tuning.canary_interval
        state = "ok" if fresh else "starting" if age is None else "stale"
        body: dict[str, object] = {
            "status": state,
            "cluster": self._environment.cluster,
            "epoch": self._environment.epoch,
            "canaries": self.canaries,
            "canary_age_seconds": None if age is None else round(age, 3),
            "rails": [self._rail(link) for link in self._links],
        }
        return (200 if fresh else 503), body

    def _rail(self, link: Link) -> dict[str, object]:
        measured = self._measured.get(link.index)
        return {
            "pci_domain": f"{link.domain:04x}",
            "ends": [self._end(link.low), self._end(link.high)],
            "latency_us": None if measured is None else round(measured.latency * 1e6, 1),
            "forward_gbps": None if measured is None else round(measured.forward, 3),
            "backward_gbps": None if measured is None else round(measured.backward, 3),
        }

    def _end(self, end: End) -> dict[str, object]:
        return {
            "rank": end.rank,
            "node": self._environment.nodes[end.rank],
            "device": end.device,
            "address": end.address,
        }


class HealthServer:
    """A server for one address that speaks as much HTTP/1.1 as one GET needs; use as a context manager.

    :raises RankFailure: 64 if it cannot listen.
    """

    def __init__(self, endpoint: Endpoint, view: Callable[[], Reply]) -> None:
        self._endpoint = endpoint
        self._view = view
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "HealthServer":
        try:
            self._server = await asyncio.start_server(
                self._accept, self._endpoint.host, self._endpoint.port, limit=REQUEST_MAX
            )
        except OSError as error:
            raise RankFailure(
                ExitCode.BAD_ENVIRONMENT, f"SPARKD_API: cannot listen on {self._endpoint}: {reason(error)}"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(head, self._view))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def answer(head: bytes, view: Callable[[], Reply]) -> bytes:
    """The whole response to a request's head; the connection closes behind it."""
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    extra = ""
    body: dict[str, object]
    if method not in ("GET", "HEAD"):
        status, body, extra = 405, {"status": "only GET and HEAD"}, "Allow: GET, HEAD\r\n"
    elif path != "/health":
        status, body = 404, {"status": "only /health is served here"}
    else:
        status, body = view()
    words = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
    content = json.dumps(body).encode() + b"\n"
    header = (
        f"HTTP/1.1 {status} {words[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n{extra}Connection: close\r\n\r\n"
    )
    return header.encode() + (b"" if method == "HEAD" else content)
