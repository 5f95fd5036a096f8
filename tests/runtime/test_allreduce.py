"""The all-reduce and the measurement over real connections, every rank in one process."""

import asyncio
import contextlib
from array import array
from collections.abc import Iterator

import pytest

from runtime.probe.allreduce import AllReduce, RailError, WrongSum, own_vector
from runtime.probe.measure import RESULT, measure
from runtime.probe.topology import find_links, find_rings
from runtime.probe.verdict import Standing, stalled_link
from runtime.probe.wire import Channel, ChannelClosed, ChannelSilent, Kind, ProtocolError
from tests.runtime.pairs import PATIENCE, channel_pair
from tests.runtime.triangle import triangle_rails


class Members:
    """The all-reduces of every rank, and where each of them stands."""

    def __init__(self, stack: contextlib.ExitStack, size: int, cables: int | None, patience: float) -> None:
        self.links = find_links(triangle_rails("10.77.0", size, cables), size)
        self.rails: dict[int, dict[int, Channel]] = {rank: {} for rank in range(size)}
        for link in self.links:
            low, high = stack.enter_context(channel_pair())
            self.rails[link.low.rank][link.index] = low
            self.rails[link.high.rank][link.index] = high
        self.standings: dict[int, Standing] = {}
        self.results: dict[tuple[int, int], array[int]] = {}
        self.wrong: set[int] = set()
        self.patience = patience
        self.size = size

    def vector(self, rank: int, operation: int, length: int) -> "array[int]":
        values = own_vector(rank, operation, length)
        if rank in self.wrong:
            values[-1] += 1
        return values

    def member(self, rank: int) -> AllReduce:
        def progress(chunks: int, link: int) -> None:
            self.standings[rank] = Standing(chunks, link)

        rings = find_rings(self.links, self.size)
        return AllReduce(rank, rings, self.rails[rank], progress, self.patience, self.vector)

    async def run(self, operations: int, length: int) -> list[object]:
        async def one(rank: int) -> None:
            work = self.member(rank)
            for operation in range(operations):
                await work.run(operation, length)

        return await asyncio.gather(*(one(rank) for rank in range(self.size)), return_exceptions=True)


@contextlib.contextmanager
def members(size: int, cables: int | None = None, patience: float = PATIENCE) -> Iterator[Members]:
    with contextlib.ExitStack() as stack:
        yield Members(stack, size, cables, patience)


@pytest.mark.parametrize(
    ("size", "cables", "rings", "length"),
    [(2, 1, 2, 96), (2, 2, 4, 96), (3, 3, 4, 1), (3, 3, 4, 96), (3, 3, 4, 20000), (5, 5, 4, 96)],
)
def test_every_chunk_of_every_member_is_right(size: int, cables: int, rings: int, length: int) -> None:
    with members(size, cables) as group:
        assert asyncio.run(group.run(2, length)) == [None] * size
        # Every chunk of every step of both operations was received and found right.
        received = 2 * rings * 2 * (size - 1)
        assert group.standings == {rank: Standing(received, -1) for rank in range(size)}


def test_a_wrong_element_is_found_by_the_next_rank_on_the_rail_it_came_over() -> None:
    with members(3, patience=0.5) as group:
        group.wrong = {1}
        outcome = asyncio.run(group.run(1, 96))
        found = outcome[2]
        assert isinstance(found, WrongSum)
        link = group.links[found.link]
        assert (link.low.rank, link.high.rank, link.domain) == (1, 2, 0)
        # The last element is in chunk 2, which starts at position 2 and comes round to rank 1 before it is wrong.
        assert "element 95 is" in str(found)


def test_a_chunk_of_another_operation_is_not_taken_for_this_one() -> None:
    async def mixed(group: Members) -> list[object]:
        return await asyncio.gather(
            *(group.member(rank).run(8 if rank else 7, 96) for rank in range(2)), return_exceptions=True
        )

    with members(2, 1) as group:
        outcome = asyncio.run(mixed(group))
        assert all(isinstance(error, WrongSum) for error in outcome)
        assert "where" in str(outcome[0])


def test_a_rail_that_carries_nothing_is_pinned_down_by_where_everybody_waits() -> None:
    with members(3, patience=0.5) as group, channel_pair() as (hole, _):
        dead = next(link for link in group.links if (link.low.rank, link.high.rank, link.domain) == (1, 2, 2))
        group.rails[2][dead.index] = hole
        outcome = asyncio.run(group.run(1, 96))
        assert all(isinstance(error, RailError) and isinstance(error.error, ChannelSilent) for error in outcome)
        assert stalled_link(group.standings) == (2, dead.index)


def test_a_rail_that_closes_is_named() -> None:
    with members(3, patience=0.5) as group:
        closed = next(link for link in group.links if (link.low.rank, link.high.rank, link.domain) == (0, 2, 0))
        group.rails[2][closed.index].close()
        outcome = asyncio.run(group.run(1, 96))
        found = outcome[0]
        assert isinstance(found, RailError)
        assert found.link == closed.index
        assert isinstance(found.error, ChannelClosed)


def test_both_ends_of_a_rail_get_the_same_figures() -> None:
    async def both(near: Channel, far: Channel) -> None:
        link = find_links(triangle_rails("10.77.0", 2, 1), 2)[1]
        low, high = await asyncio.gather(measure(link, near, 0, 0.08, PATIENCE), measure(link, far, 1, 0.08, PATIENCE))
        assert low == high
        assert low.link == 1
        assert 0 < low.latency < 1
        assert low.forward > 0.01
        assert low.backward > 0.01

    with channel_pair() as (near, far):
        asyncio.run(both(near, far))


def test_forward_is_from_the_low_end_to_the_high_one() -> None:
    async def high_end(far: Channel) -> None:
        while True:
            kind, payload = await far.receive(PATIENCE)
            if kind is Kind.PING:
                await far.send(Kind.PONG, payload, PATIENCE)
            elif kind is Kind.BULK_END:
                break
        await far.send(Kind.RESULT, RESULT.pack(0.0, 12.5, 0.0), PATIENCE)
        for _ in range(2):
            await far.send(Kind.BULK, bytes(1000), PATIENCE)
            await asyncio.sleep(0.05)
        await far.send(Kind.BULK_END, b"", PATIENCE)
        assert RESULT.unpack(await far.expect(Kind.RESULT, PATIENCE))[1] == 12.5

    async def both(near: Channel, far: Channel) -> None:
        link = find_links(triangle_rails("10.77.0", 2, 1), 2)[0]
        low, _ = await asyncio.gather(measure(link, near, 0, 0.08, PATIENCE), high_end(far))
        assert low.forward == 12.5
        # One frame of 1000 bytes behind the first, 0.05 s later.
        assert 0 < low.backward < 8 * 1000 / 0.04 / 1e9

    with channel_pair() as (near, far):
        asyncio.run(both(near, far))


def test_a_measurement_takes_nothing_but_its_own_frames() -> None:
    async def disturb(near: Channel, far: Channel) -> None:
        link = find_links(triangle_rails("10.77.0", 2, 1), 2)[0]
        await near.send(Kind.BULK, b"1", PATIENCE)
        await near.send(Kind.CHUNK, b"", PATIENCE)
        await measure(link, far, 1, 0.08, PATIENCE)

    with channel_pair() as (near, far), pytest.raises(ProtocolError, match="sent CHUNK in the middle"):
        asyncio.run(disturb(near, far))
