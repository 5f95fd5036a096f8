"""Certificates of a small cluster on loopback, and listeners that show them."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

from starlette.types import ASGIApp

from sparkd.api.listener import Listener, tcp_socket
from sparkd.cli.certificates import issue, make_ca
from sparkd.peers.client import PeerClient
from sparkd.peers.tls import Credentials, client_context, server_context
from tests.api.serving import listening
from tests.core.builders import NODES

HERE = IPv4Address("127.0.0.1")
ELSEWHERE = IPv4Address("127.0.0.9")


@dataclass(frozen=True)
class Certificates:
    """Credentials by name: the nodes', "elsewhere" for a node at another address; and two of another cluster:
    "foreign", and "intruder", which has put this cluster's CA in place of its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        now = datetime.now(UTC)
        own, foreign = make_ca("lab", now), make_ca("lab", now)
        for name in (*NODES, "elsewhere", "foreign", "intruder"):
            ca = foreign if name in ("foreign", "intruder") else own
            pair = issue(ca, name, ELSEWHERE if name == "elsewhere" else HERE, now)
            (folder / name).mkdir()
            (folder / name / "ca.crt").write_bytes((foreign if name == "foreign" else own).certificate)
            (folder / name / "node.crt").write_bytes(pair.certificate)
            (folder / name / "node.key").write_bytes(pair.key)
        return cls(folder)

    def client(self, name: str, port: int) -> PeerClient:
        return PeerClient(str(HERE), port, client_context(Credentials.below(self.folder / name)))

    def server(self, name: str) -> ssl.SSLContext:
        return server_context(Credentials.below(self.folder / name))

    @contextlib.asynccontextmanager
    async def serving(self, app: ASGIApp, name: str, port: int = 0) -> AsyncIterator[int]:
        """The application as node `name` serves it; yields the port."""
        sock = tcp_socket(str(HERE), port)
        bound: int = sock.getsockname()[1]
        async with listening(Listener(app, sock, self.server(name))):
            yield bound
