"""One kept connection to one peer: a blocking client, called from a thread of its own.

http.client rather than an asynchronous client: it sets TCP_NODELAY, costs a third of the time per request, and adds
no memory to a daemon whose host needs every byte for the model.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

from sparkd import wire
from sparkd.core.model import Report

CONNECT_DEADLINE = 2.0
ANSWER_DEADLINE = 5.0
START_DEADLINE = 9.0
"""For a start: before it the conductor has all hosts look at themselves, for up to five seconds; sparkctl itself waits
ten. One that is told to have failed and comes about all the same is worse than a slow answer."""
URGENT_DEADLINE = 1.5
"""For a question that something on the network has given rise to: a group waits for whether the peer is still there."""
_LIMIT = 1 << 20


class PeerError(Exception):
    """The peer did not answer, or not in a way that can be used; one sentence."""


class PeerClient:
    """`context` comes from sparkd.peers.tls. Not thread-safe: one thread at a time.

    `name`: the node that is to answer, by its certificate; any of the cluster at that address if empty.
    """

    def __init__(self, address: str, port: int, context: ssl.SSLContext, name: str = "") -> None:
        self._name = name
        self._where = f"{address}:{port}"
        self._connection = http.client.HTTPSConnection(address, port, timeout=CONNECT_DEADLINE, context=context)

    def pull(self, within: float = ANSWER_DEADLINE) -> Report:
        return self._report("GET", None, within)

    def exchange(self, report: Report, within: float = ANSWER_DEADLINE) -> Report:
        """Give the peer this host's report, and get the peer's."""
        return self._report("POST", wire.dumps(report), within)

    def request(self, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """Hand an operator's request over; returns HTTP status and JSON body as the peer gave them."""
        within = START_DEADLINE if body.get("request") == "start" else ANSWER_DEADLINE
        status, answer = self._ask("POST", "/peer/v1/intent", json.dumps(body).encode(), within)
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise PeerError(f"{self._where} answered {status} without a JSON object")
        return status, data

    def fetch(self, path: str) -> bytes:
        """The JSON that the peer has at this path, below /peer/v1/."""
        status, answer = self._ask("GET", f"/peer/v1/{path}", None, ANSWER_DEADLINE)
        if status != 200:
            raise PeerError(f"{self._where} answered {status}")
        return answer

    def close(self) -> None:
        self._connection.close()

    def _report(self, method: str, body: bytes | None, within: float) -> Report:
        status, answer = self._ask(method, "/peer/v1/report", body, within)
        if status != 200:
            raise PeerError(f"{self._where} answered {status}")
        try:
            return wire.loads(Report, answer)
        # The last two are for JSON that is nested too deeply, and for a number too large for a float.
        except (wire.WireError, RecursionError, OverflowError) as error:
            raise PeerError(f"{self._where} sent a report that does not fit: {error}") from None

    def _ask(self, method: str, path: str, body: bytes | None, within: float) -> tuple[int, bytes]:
        if self._connection.sock is not None:
            # The peer may have closed a kept connection since: its daemon restarted, or it was idle for long.
            with contextlib.suppress(_Closed):
                return self._once(method, path, body, within)
        return self._once(method, path, body, within)

    def _check_name(self) -> None:
        sock: Any = self._connection.sock
        certificate = sock.getpeercert() or {}
        names = [str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
        if self._name and self._name not in names:
            self._connection.close()
            raise PeerError(f"{self._where}: its certificate is of {', '.join(names) or 'nobody'}, not {self._name}")

    def _once(self, method: str, path: str, body: bytes | None, within: float) -> tuple[int, bytes]:
        try:
            if self._connection.sock is None:
                self._connection.timeout = min(CONNECT_DEADLINE, within)
                self._connection.connect()
                self._check_name()
            sock: Any = self._connection.sock
            sock.settimeout(within)
            headers = {"Content-Type": "application/json"} if body is not None else {}
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            answer = response.read(_LIMIT + 1)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            kind = PeerError if isinstance(error, TimeoutError) else _Closed
            raise kind(f"{self._where}: {_plain(error)}") from None
        if len(answer) > _LIMIT:
            self._connection.close()
            raise PeerError(f"{self._where}: an answer above {_LIMIT} bytes")
        return response.status, answer


class _Closed(PeerError):
    """The connection is of no use any more; another one may be."""


def _plain(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError):
        # In TLS 1.3 a server judges the client's certificate after the client's handshake has ended.
        return "it closed the connection; if it goes on doing so, it refuses this node's certificate"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return "it refuses this node's certificate"
        return f"TLS failed: {reason}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
