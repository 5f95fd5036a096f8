"""The files that hold one rank's rows of an Engram table, laid out so that one direct read gets a row.

An Engram table is two tensors of the checkpoint: `layers.N.engram.embed.weight`, e4m3, [rows, dim], and
`layers.N.engram.embed.scale`, e8m0, [rows, dim / 32]. O_DIRECT reads whole blocks of the disk, and a row that lies
across two blocks would cost two reads; so weight and scales of a row lie side by side, and no row crosses a block:

    block 0          the header: magic, layout version, length of the JSON, the JSON, zeros, SHA-256 of all before it
    block 1 ..       rows_per_block rows each, zeros after the last; row = weight bytes, then scale bytes
    after the rows   the SHA-256 of each segment of SEGMENT_BLOCKS blocks, zeros to the end of the block

All numbers are little-endian, blocks are of 4096 bytes. For dim 256 a row is 264 bytes, 15 to a block: 3.3 % of a block
is padding. Rows are counted from the first one that the file holds, `row_start` of the table. The header is written
last, so that a file without a valid one was never finished.

Standard library only, and no other module: whoever reads the rows in the engine imports this file alone.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

MAGIC = b"SPKROWS\n"
LAYOUT = 1
"""Goes up when a reader of the former layout would read something else than was meant."""
BLOCK = 4096
SEGMENT_BLOCKS = 16384
"""Blocks of rows that have a digest in common, 64 MiB."""
DIGEST = 32
START = struct.Struct("<8sII")
INDEX = "model.safetensors.index.json"
MANIFEST = ".sparkd/manifest.json"
HEADER_LIMIT = 100 << 20
"""Bytes of a safetensors header; the format's own limit."""


class EngramFormatError(ValueError):
    """A file of rows, or what it is made from, is not what it has to be; the text names file and field."""


@dataclass(frozen=True)
class Header:
    """What a file of rows says of itself."""

    layer: int
    rank: int
    world: int
    row_start: int
    """The first row of the table that is here."""
    rows: int
    total_rows: int
    """Rows of the whole table, over all ranks."""
    weight_bytes: int
    scale_bytes: int
    source: str
    """What `source_digest` says of the tensors that the rows come from, hexadecimal."""
    revision: str
    """Of the checkpoint; for people, `source` is what counts."""
    segments: str
    """SHA-256 of the digests of all segments, one after the other, hexadecimal."""

    @property
    def row_bytes(self) -> int:
        return self.weight_bytes + self.scale_bytes

    @property
    def rows_per_block(self) -> int:
        return BLOCK // self.row_bytes

    @property
    def row_blocks(self) -> int:
        """Blocks with rows."""
        return -(-self.rows // self.rows_per_block)

    @property
    def segment_count(self) -> int:
        return -(-self.row_blocks // SEGMENT_BLOCKS)

    @property
    def digests_offset(self) -> int:
        """Where the digests of the segments begin, in bytes."""
        return BLOCK * (1 + self.row_blocks)

    @property
    def file_bytes(self) -> int:
        return self.digests_offset + -(-self.segment_count * DIGEST // BLOCK) * BLOCK

    def place(self, row: int) -> tuple[int, int]:
        """Offset of the block that holds a row of the table, and where in the block the row begins, in bytes.

        Raises IndexError for a row that another rank holds.
        """
        local = row - self.row_start
        if not 0 <= local < self.rows:
            raise IndexError(f"row {row} is not among {self.row_start} to {self.row_start + self.rows - 1}")
        block, inside = divmod(local, self.rows_per_block)
        return BLOCK * (1 + block), inside * self.row_bytes


def file_name(layer: int, rank: int, world: int) -> str:
    """Of the rows that one rank of `world` has of one layer's table."""
    return f"engram-layer{layer}-rank{rank}-of-{world}.rows"


def encode(header: Header) -> bytes:
    """The first block of a file.

    Raises EngramFormatError if such a file cannot be.
    """
    _consistent(header, "header")
    text = json.dumps(asdict(header), sort_keys=True).encode()
    start = START.pack(MAGIC, LAYOUT, len(text)) + text
    if len(start) > BLOCK - DIGEST:
        raise EngramFormatError(f"header: {len(start)} bytes do not fit into {BLOCK - DIGEST}")
    body = start.ljust(BLOCK - DIGEST, b"\0")
    return body + hashlib.sha256(body).digest()


def decode(block: bytes, name: str = "header") -> Header:
    """The header that the first block of file `name` holds.

    Raises EngramFormatError if it holds none, one of another layout, or one that contradicts itself.
    """
    if len(block) < BLOCK:
        raise EngramFormatError(f"{name}: has {len(block)} bytes, and the header alone takes {BLOCK}; pack it again")
    block = block[:BLOCK]
    magic, layout, length = START.unpack_from(block)
    if magic != MAGIC:
        unfinished = "it was never finished" if not any(block) else f"it begins with {magic!r} instead of {MAGIC!r}"
        raise EngramFormatError(f"{name}: is no file of Engram rows: {unfinished}; pack it again")
    if layout != LAYOUT:
        raise EngramFormatError(f"{name}: has layout {layout}, and this version reads layout {LAYOUT}; pack it again")
    if hashlib.sha256(block[: BLOCK - DIGEST]).digest() != block[BLOCK - DIGEST :]:
        raise EngramFormatError(f"{name}: the header's checksum is wrong; pack it again")
    try:
        found = json.loads(block[START.size : START.size + length])
        types = {field.name: int if field.type == "int" else str for field in fields(Header)}
        header = Header(**{key: _typed(found, key, kind) for key, kind in types.items()})
    except (ValueError, KeyError, TypeError) as error:
        raise EngramFormatError(f"{name}: the header cannot be read ({error}); pack it again") from error
    _consistent(header, name)
    return header


def read_header(path: Path) -> Header:
    """The header of a file, which has the length that follows from it. Reads one block; the rows are not looked at.

    Raises EngramFormatError, and OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        header = decode(file.read(BLOCK), str(path))
        size = file.seek(0, 2)
    if size != header.file_bytes:
        raise EngramFormatError(
            f"{path}: has {size} bytes, and its header means {header.file_bytes}; it was cut or appended to, "
            "pack it again"
        )
    return header


def check(header: Header, expected: Mapping[str, int | str], name: str) -> None:
    """Refuse file `name` unless its header has the expected values, by the names of Header's fields.

    A reader that loads the rows of one rank gives layer, rank, world, row_start, rows, total_rows, weight_bytes,
    scale_bytes and source. Raises EngramFormatError with every difference.
    """
    wrong = [
        f"{key} is {getattr(header, key)!r}, expected {value!r}"
        for key, value in expected.items()
        if getattr(header, key) != value
    ]
    if wrong:
        raise EngramFormatError(
            f"{name}: these rows are not the ones wanted: {'; '.join(wrong)}; "
            "pack them with `sparkd-engine model pack` for this checkpoint, rank and number of ranks"
        )


def tensor_names(layer: int) -> tuple[str, str]:
    """Weight and scale of a layer's table, as the checkpoint names them."""
    return f"layers.{layer}.engram.embed.weight", f"layers.{layer}.engram.embed.scale"


def source_digest(checkpoint: Path, layer: int) -> str:
    """What a layer's table in a checkpoint is, as 64 hexadecimal digits, without reading it.

    Follows from names, types, shapes and places of both tensors, and the SHA-256 that the checkpoint's manifest has for
    the files that they are in. Raises EngramFormatError if index, shard or manifest lack something, OSError if they
    cannot be read.
    """
    where = _mapping(checkpoint / INDEX, "weight_map")
    digests = _manifest_digests(checkpoint / MANIFEST)
    parts: list[object] = []
    for name in tensor_names(layer):
        shard = where.get(name)
        if not isinstance(shard, str) or "/" in shard:
            raise EngramFormatError(f"{checkpoint / INDEX}: has no file for {name}; is layer {layer} one with Engram?")
        if shard not in digests:
            raise EngramFormatError(f"{checkpoint / MANIFEST}: does not have {shard}; run `sparkd-engine model verify`")
        entry = _shard_header(checkpoint / shard).get(name)
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise EngramFormatError(f"{checkpoint / shard}: does not hold {name}, though {INDEX} says so")
        parts.append([name, entry["dtype"], entry["shape"], entry["data_offsets"], digests[shard]])
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def _typed(found: Any, key: str, kind: type) -> Any:
    value = found[key]
    if type(value) is not kind:
        raise ValueError(f"{key} is {value!r}")
    return value


def _consistent(header: Header, name: str) -> None:
    sound = (
        0 <= header.rank < header.world
        and header.layer >= 0
        and 0 <= header.row_start <= header.row_start + header.rows <= header.total_rows
        and min(header.weight_bytes, header.scale_bytes, header.rows) >= 0
        and 0 < header.row_bytes <= BLOCK
        and all(len(text) == 2 * DIGEST for text in (header.source, header.segments))
    )
    if not sound:
        raise EngramFormatError(f"{name}: such rows cannot be: {asdict(header)}")


def _mapping(path: Path, key: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngramFormatError(f"{path}: is not JSON: {error}") from error
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, dict):
        raise EngramFormatError(f"{path}: has no table {key!r}")
    return value


def _manifest_digests(path: Path) -> dict[str, str]:
    files = _mapping(path, "files")
    try:
        return {name: str(entry["sha256"]) for name, entry in files.items()}
    except (KeyError, TypeError) as error:
        raise EngramFormatError(f"{path}: an entry of 'files' has no sha256") from error


def _shard_header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > HEADER_LIMIT:
            raise EngramFormatError(f"{path}: is no safetensors file, its header would have {length} bytes")
        try:
            found = json.loads(file.read(length))
        except ValueError as error:
            raise EngramFormatError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise EngramFormatError(f"{path}: the header is no JSON object")
    return found
