"""What an engine on this host says at its /metrics, asked for with a deadline and a bound."""

from __future__ import annotations

import asyncio
from typing import Any

import h11

from sparkd.ports import DoorError

LIMIT = 2 * 1024 * 1024
"""Bytes of an answer that are read."""


async def scrape(address: str, deadline: float = 2.0, limit: int = LIMIT) -> str:
    """`address`: HOST:PORT. Raises DoorError."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(deadline):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                return (await _ask(reader, writer, address, limit)).decode("utf-8", "replace")
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise DoorError(f"the engine at {address} did not answer /metrics within {deadline:g} s") from None
    except (OSError, h11.RemoteProtocolError) as error:
        raise DoorError(f"the engine at {address} does not tell its metrics: {error}") from None


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, limit: int) -> bytes:
    wire = h11.Connection(h11.CLIENT)
    asked = h11.Request(method="GET", target="/metrics", headers=[("Host", address), ("Connection", "close")])
    for part in (asked, h11.EndOfMessage()):
        writer.write(wire.send(part) or b"")
    body = bytearray()
    while True:
        event: Any = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Response) and event.status_code != 200:
            raise DoorError(f"the engine at {address} answers /metrics with {event.status_code}")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > limit:
                raise DoorError(f"the engine at {address} has more than {limit} bytes of metrics")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise DoorError(f"the engine at {address} closed the connection")
