"""Framing over real connections, messages and the handshake."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import Rail
from runtime.exits import ExitCode
from runtime.probe.handshake import Guest, Refused, WrongKey, introduce
from runtime.probe.messages import (
    Abort,
    Answer,
    Beat,
    Formed,
    Hello,
    Joined,
    Leaving,
    Measured,
    Message,
    decode,
    encode,
)
from runtime.probe.topology import End, Link
from runtime.probe.wire import (
    HEADER,
    PAYLOAD_MAX,
    Channel,
    ChannelClosed,
    ChannelError,
    ChannelSilent,
    Kind,
    ProtocolError,
)
from tests.runtime.pairs import PATIENCE, channel_pair, socket_pair

KEY = b"k" * 32
HELLO = Hello("lab", 7, 3, 1, "spark2", -1, (Rail("enp1s0f0np0", "10.0.0.1", 0, "10.0.0.2"),))
END = End(0, "enp1s0f0np0", "10.0.0.1")
MESSAGES: list[Message] = [
    HELLO,
    Answer(0, "no"),
    Joined((1, 2)),
    Formed((Link(0, 2, END, End(1, "enp1s0f1np1", "10.0.0.2")),)),
    Beat(12, -1),
    Measured(3, 1e-4, 92.5, 91.0),
    Leaving(2),
    Abort(ExitCode.RAIL_FAILED, "rail ä of spark1"),
]


def test_what_is_not_acknowledged_is_pending() -> None:
    with socket_pair() as (near, far):
        channel = Channel(near)
        assert channel.pending() == 0
        with pytest.raises(ChannelSilent):
            asyncio.run(channel.send(Kind.MESSAGE, bytes(PAYLOAD_MAX * 16), 0.1))
        assert channel.pending() > 65536
        far.setblocking(False)
        while channel.pending():
            with contextlib.suppress(BlockingIOError):
                far.recv(1 << 20)


def test_the_kernel_is_told_how_long_to_outlast_an_outage() -> None:
    with channel_pair() as (near, _):
        near.outlast(86400)
        assert near.option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 86_400_000


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"type":"shutdown"}',
        b'{"type":"beat"}',
        b'{"type":"beat","progress":"1","waiting":0}',
        b'{"type":"beat","progress":true,"waiting":0}',
        b'{"type":"beat","progress":1,"waiting":0,"more":0}',
        b'{"type":"abort","code":3,"sentence":""}',
        b'{"type":"joined","missing":3}',
        b'{"type":"formed","links":[{}]}',
        b'{"type":["beat"]}',
        b"[" * 100000,
    ],
)
def test_what_is_no_message_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


@given(st.sampled_from(MESSAGES), st.data())
def test_no_damaged_message_does_worse_than_a_protocol_error(message: Message, data: st.DataObject) -> None:
    fields = json.loads(encode(message))
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.just({"a": []})
    )
    try:
        decode(json.dumps(fields).encode())
    except ProtocolError as error:
        assert "cannot be read" in str(error)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, PAYLOAD_MAX])
def test_a_frame_arrives_whole(size: int) -> None:
    payload = bytes(index % 251 for index in range(size))

    async def exchange(near: Channel, far: Channel) -> tuple[Kind, bytes]:
        sending = asyncio.create_task(near.send(Kind.CHUNK, payload, PATIENCE))
        kind, arrived = await far.receive(PATIENCE)
        await sending
        return kind, bytes(arrived)

    with channel_pair() as (near, far):
        assert asyncio.run(exchange(near, far)) == (Kind.CHUNK, payload)


def test_a_silent_peer_is_told_from_one_that_closed() -> None:
    with socket_pair() as (near, far):
        channel = Channel(near)
        with pytest.raises(ChannelSilent, match=r"sent nothing for 0\.05 s"):
            asyncio.run(channel.receive(0.05))
        far.close()
        with pytest.raises(ChannelClosed, match="closed the connection"):
            asyncio.run(channel.receive(PATIENCE))


def test_a_reset_is_named() -> None:
    with socket_pair() as (near, far):
        near.sendall(b"unread")
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        far.close()
        with pytest.raises(ChannelClosed, match="reset the connection"):
            asyncio.run(Channel(near).receive(PATIENCE))


def test_a_peer_that_takes_nothing_is_noticed() -> None:
    async def fill(channel: Channel) -> None:
        while True:
            await channel.send(Kind.BULK, bytes(PAYLOAD_MAX), 0.1)

    with channel_pair() as (near, _far), pytest.raises(ChannelSilent, match="took no data"):
        asyncio.run(fill(near))


@pytest.mark.parametrize(
    ("data", "limit"),
    [(HEADER.pack(99, 0), 100), (HEADER.pack(Kind.HELLO, 101), 100), (b"GET / HTTP/1.1\r\n", 1 << 20)],
)
def test_foreign_frames_are_refused_before_anything_is_allocated(data: bytes, limit: int) -> None:
    with socket_pair() as (near, far):
        far.sendall(data)
        with pytest.raises(ProtocolError, match="sent a frame of kind"):
            asyncio.run(Channel(near).receive(PATIENCE, limit))


def test_the_wrong_kind_is_refused() -> None:
    with socket_pair() as (near, far):
        far.sendall(HEADER.pack(Kind.PONG, 0))
        with pytest.raises(ProtocolError, match="sent PONG where CHUNK belongs"):
            asyncio.run(Channel(near).expect(Kind.CHUNK, PATIENCE))


Host = Callable[[Guest], Awaitable[object]]


async def _meet(key: bytes, theirs: bytes, host: Host) -> tuple[object, object]:
    with channel_pair() as (near, far):
        member, guest = await asyncio.gather(
            introduce(near, key, HELLO, PATIENCE), host(Guest(far, theirs, PATIENCE)), return_exceptions=True
        )
        return member, guest


async def _welcome(guest: Guest) -> Hello:
    hello = await guest.hear()
    await guest.answer(Answer(0))
    return hello


async def _turn_away(guest: Guest) -> Hello:
    hello = await guest.hear()
    await guest.answer(Answer(0, "epoch is 7, here it is 8"))
    return hello


def test_members_meet() -> None:
    assert asyncio.run(_meet(KEY, KEY, _welcome)) == (Answer(0), HELLO)


def test_a_refusal_carries_its_reason() -> None:
    theirs, ours = asyncio.run(_meet(KEY, KEY, _turn_away))
    assert isinstance(theirs, Refused)
    assert str(theirs) == "epoch is 7, here it is 8"
    assert ours == HELLO


def test_another_key_is_found_out_by_both_sides() -> None:
    assert [type(end) for end in asyncio.run(_meet(KEY, b"x" * 32, _welcome))] == [WrongKey, WrongKey]


def test_a_recorded_hello_is_worth_nothing_to_another_challenge() -> None:
    async def replay() -> None:
        with channel_pair() as (near, far):
            member = asyncio.create_task(introduce(near, KEY, HELLO, PATIENCE))
            await far.send(Kind.CHALLENGE, bytes(32), PATIENCE)
            recorded = bytes(await far.expect(Kind.HELLO, PATIENCE))
            member.cancel()
            await asyncio.gather(member, return_exceptions=True)
        with channel_pair() as (near, far):
            hearing = asyncio.create_task(Guest(far, KEY, PATIENCE).hear())
            await near.expect(Kind.CHALLENGE, PATIENCE)
            await near.send(Kind.HELLO, recorded, PATIENCE)
            await hearing

    with pytest.raises(WrongKey):
        asyncio.run(replay())


def test_an_answer_cannot_be_made_by_sending_the_proof_back() -> None:
    async def reflect() -> None:
        with channel_pair() as (near, far):
            member = asyncio.create_task(introduce(near, KEY, HELLO, PATIENCE))
            await far.send(Kind.CHALLENGE, bytes(32), PATIENCE)
            proof = bytes(await far.expect(Kind.HELLO, PATIENCE))
            await far.send(Kind.ANSWER, proof, PATIENCE)
            await member

    with pytest.raises(WrongKey):
        asyncio.run(reflect())


@given(st.binary(max_size=200))
def test_no_garbage_gets_past_the_door(data: bytes) -> None:
    async def knock() -> None:
        with socket_pair() as (near, far):
            near.sendall(data)
            near.shutdown(socket.SHUT_WR)
            await Guest(Channel(far), KEY, PATIENCE).hear()

    with pytest.raises(ChannelError):
        asyncio.run(knock())
