"""Rails that are closed while nobody reads them."""

import asyncio
import socket
import struct

import pytest

from runtime.probe.hangup import Hangups
from runtime.probe.wire import Channel, Kind
from tests.runtime.pairs import PATIENCE, socket_pair

RESET = struct.pack("ii", 1, 0)


@pytest.mark.parametrize(("reset", "words"), [(False, "closed the connection"), (True, "reset the connection")])
def test_the_end_of_a_rail_is_told_once_behind_unread_data(reset: bool, words: str) -> None:
    told: list[str] = []

    async def run() -> bytes:
        with socket_pair() as (near, far), socket_pair() as (other, _):
            channel = Channel(near)
            with Hangups() as hangups:
                hangups.watch(channel, told.append)
                hangups.watch(Channel(other), told.append)
                far.sendall(b"\x10\0\0\0\x05chunk")
                await asyncio.sleep(0.05)
                assert told == []
                if reset:
                    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                far.close()
                await asyncio.sleep(0.05)
            return b"" if reset else bytes(await channel.expect(Kind.CHUNK, PATIENCE))

    # Watching took nothing away from whoever reads.
    assert asyncio.run(run()) == (b"" if reset else b"chunk")
    assert told == [words]
