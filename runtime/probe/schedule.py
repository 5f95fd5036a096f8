"""Pure: the ring all-reduce, step by step, and vectors whose sums are known beforehand.

The algorithm is the bandwidth-optimal ring all-reduce of Patarasuk and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009): the vector is cut into as many
chunks as there are ranks; N-1 steps of reduce-scatter leave each rank with one complete chunk, N-1 steps of
all-gather pass the complete chunks round.
"""

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

# Rank r counts 16**r, so a sum says how often each of up to eight ranks is in it: every hexadecimal digit of
# the weight must be 0 or 1. Eight ranks of 65521 * 16**7 stay far below 2**63.
RANK_BASE = 16
VALUE_MODULUS = 65521  # the largest prime below 2**16


@dataclass(frozen=True)
class Step:
    """One step at one position: chunk numbers, and the positions summed up in the chunk that arrives."""

    send: int
    receive: int
    summed: tuple[int, ...]
    reduce: bool


def ring_steps(size: int, position: int) -> tuple[Step, ...]:
    """The 2 * (size - 1) steps of the rank at ``position``; every rank sends to the next position."""
    everyone = tuple(range(size))
    scatter = [
        Step(
            send=(position - step) % size,
            receive=(position - step - 1) % size,
            summed=tuple((position - 1 - back) % size for back in range(step + 1)),
            reduce=True,
        )
        for step in range(size - 1)
    ]
    gather = [
        Step(send=(position + 1 - step) % size, receive=(position - step) % size, summed=everyone, reduce=False)
        for step in range(size - 1)
    ]
    return (*scatter, *gather)


def chunk_span(length: int, size: int, chunk: int) -> tuple[int, int]:
    """First index and one past the last of a chunk; the chunks cover 0..length and differ by at most one."""
    return chunk * length // size, (chunk + 1) * length // size


def closed_form(ranks: Iterable[int], operation: int, start: int, stop: int) -> "array[int]":
    """Elements ``start``..``stop`` of the sum of the vectors of ``ranks`` in the ``operation``-th all-reduce.

    Element j of rank r's vector is 16**r * (1 + (operation + j) mod 65521), int64.
    """
    weight = sum(RANK_BASE**rank for rank in ranks)
    return array("q", (weight * (1 + (operation + index) % VALUE_MODULUS) for index in range(start, stop)))


def to_wire(values: "array[int]") -> bytes:
    """Little-endian bytes, 8 per element."""
    if sys.byteorder == "big":
        values = array("q", values)
        values.byteswap()
    return values.tobytes()


def from_wire(data: bytes | bytearray | memoryview) -> "array[int]":
    """The inverse of :func:`to_wire`.

    :raises ValueError: if ``data`` is not a whole number of elements.
    """
    values = array("q")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
