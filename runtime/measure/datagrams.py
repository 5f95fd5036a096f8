"""Whether packets as large as the rail's MTU pass, both ways."""

import asyncio
import contextlib
import hmac
import socket

from runtime.measure.environment import Rail
from runtime.measure.messages import Arrived, hear, tell
from runtime.probe.wire import Channel

LARGE = 8972
"""Bytes of a datagram that fills an MTU of 9000: without the 20 of IPv4 and the 8 of UDP."""
SMALL = 64
TOKEN_BYTES = 16
WAIT_SECONDS = 0.6
REPEAT_SECONDS = 0.02
# linux/in.h. PROBE sets don't-fragment and ignores what the kernel has learned of the path: a packet that is too long
# for the local port is refused, one that is too long further on is lost.
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3


def open_socket(address: str, port: int, device: str) -> socket.socket:
    """A datagram socket of the rail. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sock.setblocking(False)
        if not address.startswith("127."):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        sock.bind((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def pass_both_ways(
    rail: Rail, rank: int, key: bytes, sock: socket.socket, port: int, channel: Channel, patience: float
) -> bool | None:
    """Exchange datagrams with the other end, which does the same at the same time; its socket is open already.

    Returns whether large ones pass both ways; None if not even small ones do.

    :raises ChannelError: the management connection failed.
    """
    token = hmac.digest(key, f"datagram of link {rail.link.index}".encode(), "sha256")[:TOKEN_BYTES]
    far = rail.link.far(rank)
    arrived: set[int] = set()
    sender = asyncio.create_task(_send(sock, (far.address, port), token))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await _receive(sock, token, far.address, arrived)
    except TimeoutError:
        pass  # what has not arrived by now is lost
    await sender  # the other side may still wait for ours
    mine = Arrived(SMALL in arrived, LARGE in arrived)
    await tell(channel, mine, patience)
    theirs = await hear(channel, Arrived, patience)
    return mine.large and theirs.large if mine.small and theirs.small else None


async def _send(sock: socket.socket, to: tuple[str, int], token: bytes) -> None:
    """Several times, since one may be lost for other reasons than its size."""
    for _ in range(3):
        for size in (SMALL, LARGE):
            # The kernel refuses what is longer than the port's own MTU: it does not pass.
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendto(sock, token.ljust(size, b"\0"), to)
        await asyncio.sleep(REPEAT_SECONDS)


async def _receive(sock: socket.socket, token: bytes, host: str, arrived: set[int]) -> None:
    loop = asyncio.get_running_loop()
    while len(arrived) < 2:
        try:
            data, (source, _port) = await loop.sock_recvfrom(sock, 65536)
        except OSError:
            continue  # an ICMP error of an earlier packet
        if source == host and len(data) in (SMALL, LARGE) and hmac.compare_digest(data[:TOKEN_BYTES], token):
            arrived.add(len(data))
