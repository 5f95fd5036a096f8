"""Latency and rate of one rail, measured by both of its ends together."""

import asyncio
import struct

from runtime.probe.messages import Measured
from runtime.probe.topology import Link
from runtime.probe.wire import Channel, Kind, ProtocolError

PINGS_MAX = 200
PINGS_UNCOUNTED = 3  # the first ones find cold caches and routes
PING_BYTES = 64
BULK_BYTES = 262144
BULK_FRAMES_MIN = 4
RESULT = struct.Struct("!ddd")


async def measure(link: Link, channel: Channel, rank: int, seconds: float, patience: float) -> Measured:
    """Measure ``link`` from ``rank``'s end; the other end does the same. Takes about ``seconds``.

    A quarter of the time goes to round trips, three eighths to each direction in turn. One connection and one
    core per end: a rail that is much faster than one core can feed shows the core.

    :raises ChannelError: the connection failed.
    """
    if rank == link.high.rank:
        return await _follow(link, channel, seconds, patience)
    latency = await _ping(channel, seconds / 4, patience)
    await _send_bulk(channel, seconds * 3 / 8, patience)
    forward = _rate(await channel.expect(Kind.RESULT, patience))
    backward = await _receive_bulk(channel, patience)
    await channel.send(Kind.RESULT, RESULT.pack(latency, forward, backward), patience)
    return Measured(link.index, latency, forward, backward)


async def _follow(link: Link, channel: Channel, seconds: float, patience: float) -> Measured:
    forward = await _receive_bulk(channel, patience, ponging=True)
    await channel.send(Kind.RESULT, RESULT.pack(0.0, forward, 0.0), patience)
    await _send_bulk(channel, seconds * 3 / 8, patience)
    payload = await channel.expect(Kind.RESULT, patience)
    _rate(payload)
    latency, forward, backward = RESULT.unpack(payload)
    return Measured(link.index, latency, forward, backward)


def _rate(payload: memoryview) -> float:
    if len(payload) != RESULT.size:
        raise ProtocolError(f"sent a result of {len(payload)} bytes")
    rate: float = RESULT.unpack(payload)[1]
    return rate


async def _ping(channel: Channel, seconds: float, patience: float) -> float:
    """Median round trip in seconds."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    end = loop.time() + seconds
    while len(times) <= PINGS_UNCOUNTED or (loop.time() < end and len(times) < PINGS_MAX):
        start = loop.time()
        await channel.send(Kind.PING, bytes(PING_BYTES), patience)
        await channel.expect(Kind.PONG, patience)
        times.append(loop.time() - start)
    counted = sorted(times[PINGS_UNCOUNTED:])
    return counted[len(counted) // 2]


async def _send_bulk(channel: Channel, seconds: float, patience: float) -> None:
    loop = asyncio.get_running_loop()
    block = memoryview(bytes(BULK_BYTES))
    end = loop.time() + seconds
    frames = 0
    while frames < BULK_FRAMES_MIN or loop.time() < end:
        await channel.send(Kind.BULK, block, patience)
        frames += 1
    await channel.send(Kind.BULK_END, b"", patience)


async def _receive_bulk(channel: Channel, patience: float, ponging: bool = False) -> float:
    """Gb/s (10**9 bits) from the end of the first frame to the end of the last; answers pings before it."""
    loop = asyncio.get_running_loop()
    start = last = 0.0
    count = 0
    while True:
        kind, payload = await channel.receive(patience)
        if kind is Kind.PING and ponging:
            await channel.send(Kind.PONG, payload, patience)
        elif kind is Kind.BULK:
            last = loop.time()
            if start:
                count += len(payload)
            else:
                start = last
        elif kind is Kind.BULK_END and count:
            return 8 * count / max(last - start, 1e-6) / 1e9
        else:
            raise ProtocolError(f"sent {kind.name} in the middle of a measurement")
