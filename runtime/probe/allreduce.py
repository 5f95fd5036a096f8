"""The checked ring all-reduce over the group's rails; the algorithm and its source are in ``schedule``."""

import asyncio
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from operator import add

from runtime.probe.schedule import Step, chunk_span, closed_form, from_wire, ring_steps, to_wire
from runtime.probe.topology import Ring
from runtime.probe.wire import Channel, ChannelError, Kind

CHUNK = struct.Struct("!IBB")  # operation, ring, step
CHUNK_MAX = 1 << 20

Vector = Callable[[int, int, int], "array[int]"]


class RailError(Exception):
    """The connection of rail ``link`` failed with ``error``."""

    def __init__(self, link: int, error: ChannelError) -> None:
        super().__init__(str(error))
        self.link = link
        self.error = error


class WrongSum(Exception):
    """A chunk from rail ``link`` is not what its ranks sum up to; the message says where."""

    def __init__(self, link: int, sentence: str) -> None:
        super().__init__(sentence)
        self.link = link


class AllReduce:
    """Runs all-reduces of int64 vectors over every ring, one ring after the other.

    ``rails`` are this rank's channels by link index. ``vector(rank, operation, length)`` is this rank's
    contribution. ``progress(chunks, link)`` is told the number of chunks received so far and the link waited on
    (-1 when an all-reduce is complete). Each chunk is checked where it arrives, so a wrong one is known by the
    rail it came over, not only by the sum at the end.
    """

    def __init__(
        self,
        rank: int,
        rings: Sequence[Ring],
        rails: Mapping[int, Channel],
        progress: Callable[[int, int], None],
        patience: float,
        vector: Vector | None = None,
    ) -> None:
        self._rank = rank
        self._rings = rings
        self._rails = rails
        self._progress = progress
        self._patience = patience
        self._vector = vector or own_vector
        self._received = 0

    async def run(self, operation: int, length: int) -> None:
        """One all-reduce of ``length`` elements per ring.

        :raises RailError: a rail's connection failed.
        :raises WrongSum: a chunk was wrong.
        """
        for number, ring in enumerate(self._rings):
            values = self._vector(self._rank, operation, length)
            for index, step in enumerate(ring_steps(len(ring.order), ring.position(self._rank))):
                await self._step(ring, step, CHUNK.pack(operation & 0xFFFFFFFF, number, index), operation, values)
        self._progress(self._received, -1)

    async def _step(self, ring: Ring, step: Step, header: bytes, operation: int, values: "array[int]") -> None:
        position = ring.position(self._rank)
        ahead, behind = ring.hops[position], ring.hops[position - 1]
        self._progress(self._received, behind)
        start, stop = chunk_span(len(values), len(ring.order), step.send)
        # Every rank sends while it receives: with chunks beyond the socket buffers all would wait for all.
        sending = asyncio.ensure_future(
            self._rails[ahead].send(Kind.CHUNK, header + to_wire(values[start:stop]), self._patience)
        )
        try:
            try:
                payload = await self._rails[behind].expect(Kind.CHUNK, self._patience, CHUNK_MAX)
            except ChannelError as error:
                raise RailError(behind, error) from error
            try:
                await sending
            except ChannelError as error:
                raise RailError(ahead, error) from error
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        start, stop = chunk_span(len(values), len(ring.order), step.receive)
        ranks = [ring.order[position] for position in step.summed]
        arrived = _checked(payload, header, behind, closed_form(ranks, operation, start, stop), ranks, start)
        values[start:stop] = array("q", map(add, arrived, values[start:stop])) if step.reduce else arrived
        self._received += 1


def _checked(
    payload: memoryview, header: bytes, link: int, expected: "array[int]", ranks: Sequence[int], start: int
) -> "array[int]":
    if payload[: CHUNK.size] != header or len(payload) - CHUNK.size != 8 * len(expected):
        raise WrongSum(link, f"chunk {payload[: CHUNK.size].hex()} where {header.hex()} belongs")
    arrived = from_wire(payload[CHUNK.size :])
    if arrived != expected:
        index = next(i for i, (found, wanted) in enumerate(zip(arrived, expected, strict=True)) if found != wanted)
        who = "+".join(str(rank) for rank in sorted(ranks))
        raise WrongSum(
            link, f"wrong sum of ranks {who}: element {start + index} is {arrived[index]}, should be {expected[index]}"
        )
    return arrived


def own_vector(rank: int, operation: int, length: int) -> "array[int]":
    """The contribution of ``rank``."""
    return closed_form([rank], operation, 0, length)
