"""Files of packed rows for tests, and reading from them with plain buffers."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapter.engram_rows.engram_format import BLOCK, Header, encode, file_name
from adapter.engram_rows.reader import Reader

SOURCE = "5" * 64


def header(rows: int, row_start: int = 0, total: int | None = None, *, rank: int = 0, world: int = 1) -> Header:
    return Header(
        layer=1, rank=rank, world=world, row_start=row_start, rows=rows, total_rows=total or row_start + rows,
        weight_bytes=256, scale_bytes=8, source=SOURCE, revision="r", segments="0" * 64,
    )  # fmt: skip


def write(directory: Path, wanted: Header, rows: Sequence[bytes]) -> Path:
    """A file as `sparkd-engine model pack` makes it."""
    made = bytearray()
    for first in range(0, len(rows), wanted.rows_per_block):
        made += b"".join(rows[first : first + wanted.rows_per_block]).ljust(BLOCK, b"\0")
    digests = hashlib.sha256(made).digest() if made else b""
    complete = replace(wanted, segments=hashlib.sha256(digests).hexdigest())
    path = directory / file_name(wanted.layer, wanted.rank, wanted.world)
    path.write_bytes(encode(complete) + made + digests.ljust(-(-len(digests) // BLOCK) * BLOCK, b"\0"))
    return path


def row_of(number: int) -> bytes:
    """A row that tells which it is."""
    return hashlib.shake_256(number.to_bytes(8, "little")).digest(264)


@dataclass
class Buffers:
    """As a caller has them: ids, and room for the rows."""

    ids: Sequence[int]
    out: ctypes.Array[ctypes.c_ubyte] = field(init=False)

    def __post_init__(self) -> None:
        self._ids = (ctypes.c_int64 * max(1, len(self.ids)))(*self.ids)
        self.out = (ctypes.c_ubyte * (264 * max(1, len(self.ids))))(*([0xEE] * 264 * max(1, len(self.ids))))

    def read(self, reader: Reader, seconds: float = 10.0) -> list[bytes]:
        reader.read(ctypes.addressof(self._ids), len(self.ids), ctypes.addressof(self.out), seconds)
        data = bytes(self.out)
        return [data[264 * place : 264 * (place + 1)] for place in range(len(self.ids))]
