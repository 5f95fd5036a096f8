"""Weights and scales of many rows, read from their two places in a shard into blocks of rows.

The kernel does the interleaving: one `preadv` reads a run of weights from the shard and scatters them, row by row, to
where the rows are in the blocks, and a second one the scales. No byte is touched by Python, and both calls run without
the interpreter's lock.
"""

from __future__ import annotations

import os

from runtime.engram_format import BLOCK
from runtime.trouble import Trouble

IOV_MAX = 1024
"""Places that one `preadv` takes, in Linux."""
BLOCKS = 1088
"""Of a buffer, 4.3 MiB."""


class Buffer:
    """Room for up to BLOCKS blocks of rows, and the places of rows in it. For one thread at a time."""

    def __init__(self, weight_bytes: int, scale_bytes: int, blocks: int = BLOCKS) -> None:
        row = weight_bytes + scale_bytes
        self.per_block = BLOCK // row
        self.blocks = blocks
        self._weight_bytes, self._scale_bytes = weight_bytes, scale_bytes
        self._bytes = bytearray(blocks * BLOCK)
        self._view = memoryview(self._bytes)
        starts = [block * BLOCK + inside * row for block in range(blocks) for inside in range(self.per_block)]
        self._weights = [self._view[at : at + weight_bytes] for at in starts]
        self._scales = [self._view[at + weight_bytes : at + row] for at in starts]

    def fill(self, descriptor: int, weights_at: int, scales_at: int, rows: int) -> memoryview:
        """The blocks of `rows` rows, whose weights and scales begin at these offsets. Valid until the next call.

        Raises OSError; Trouble if the shard ends before.
        """
        blocks = -(-rows // self.per_block)
        if rows < blocks * self.per_block:
            # The last block of a table has fewer rows, and zeros after them.
            self._view[(blocks - 1) * BLOCK : blocks * BLOCK] = bytes(BLOCK)
        _scatter(descriptor, self._weights[:rows], weights_at, self._weight_bytes)
        _scatter(descriptor, self._scales[:rows], scales_at, self._scale_bytes)
        return self._view[: blocks * BLOCK]


def _scatter(descriptor: int, places: list[memoryview], offset: int, width: int) -> None:
    if width == 0:
        return
    for first in range(0, len(places), IOV_MAX):
        some = places[first : first + IOV_MAX]
        wanted, done = len(some) * width, 0
        at = offset + first * width
        while done < wanted:
            # A read may be short, which leaves a row that is half there.
            whole, inside = divmod(done, width)
            rest = [some[whole][inside:], *some[whole + 1 :]] if done else some
            got = os.preadv(descriptor, rest, at + done)
            if got == 0:
                raise Trouble(f"the shard ends at byte {at + done}, though its header goes further; verify it")
            done += got
