"""The header of a file of rows: read back as written, and refused when it is not the one wanted."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from runtime.engram_format import (
    BLOCK,
    EngramFormatError,
    Header,
    check,
    decode,
    encode,
    file_name,
    read_header,
    source_digest,
)

HEADER = Header(
    layer=14, rank=1, world=3, row_start=40, rows=31, total_rows=120, weight_bytes=256, scale_bytes=8,
    source="5" * 64, revision="fb2764a5", segments="a" * 64,
)  # fmt: skip


def test_what_is_encoded_is_decoded() -> None:
    block = encode(HEADER)
    assert len(block) == BLOCK
    assert decode(block) == HEADER


def test_a_row_lies_in_one_block() -> None:
    places = [HEADER.place(row) for row in range(40, 71)]
    assert places[0] == (BLOCK, 0)
    assert places[14] == (BLOCK, 14 * 264)
    assert places[15] == (2 * BLOCK, 0)
    assert all(offset % BLOCK == 0 and inside + 264 <= BLOCK for offset, inside in places)
    assert HEADER.file_bytes == (1 + 3 + 1) * BLOCK


@pytest.mark.parametrize("row", [39, 71])
def test_a_row_of_another_rank_is_refused(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} is not among 40 to 70"):
        HEADER.place(row)


@pytest.mark.parametrize("at", [9, 20, 200, BLOCK - 1])
def test_a_flipped_byte_in_the_header_is_noticed(at: int) -> None:
    block = bytearray(encode(HEADER))
    block[at] ^= 1
    with pytest.raises(EngramFormatError, match=r"engram\.rows"):
        decode(bytes(block), "engram.rows")


def test_an_unfinished_file_says_so() -> None:
    with pytest.raises(EngramFormatError, match="it was never finished"):
        decode(bytes(BLOCK))


def test_a_swapped_shard_is_refused_with_every_difference() -> None:
    expected = {**asdict(HEADER), "rank": 2, "row_start": 80}
    with pytest.raises(EngramFormatError, match=r"rank is 1, expected 2; row_start|row_start is 40, expected 80"):
        check(HEADER, expected, file_name(14, 2, 3))
    check(HEADER, asdict(HEADER), "itself")


@pytest.mark.parametrize("change", [{"rank": 3}, {"rows": 81}, {"weight_bytes": 4096}, {"source": "5"}])
def test_what_cannot_be_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(EngramFormatError, match="such rows cannot be"):
        encode(replace(HEADER, **change))


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / file_name(14, 1, 3)
    path.write_bytes(encode(HEADER).ljust(HEADER.file_bytes, b"\0"))
    assert read_header(path) == HEADER
    with path.open("r+b") as file:
        file.truncate(HEADER.file_bytes - BLOCK)
    with pytest.raises(EngramFormatError, match="it was cut or appended to"):
        read_header(path)


def write_checkpoint(directory: Path, sha256: str, rows: int = 4) -> Path:
    """A table's place in a checkpoint: index, manifest and the header of one shard."""
    shard = "model-00001-of-00001.safetensors"
    tensors = {
        "layers.1.engram.embed.weight": {"dtype": "F8_E4M3", "shape": [rows, 32], "data_offsets": [0, 32 * rows]},
        "layers.1.engram.embed.scale": {"dtype": "F8_E8M0", "shape": [rows, 1], "data_offsets": [32 * rows, 33 * rows]},
    }
    text = json.dumps(tensors).encode()
    (directory / ".sparkd").mkdir(parents=True)
    (directory / shard).write_bytes(len(text).to_bytes(8, "little") + text + bytes(33 * rows))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(tensors, shard)}))
    (directory / ".sparkd/manifest.json").write_text(json.dumps({"files": {shard: {"sha256": sha256}}}))
    return directory


def test_the_source_follows_from_content_and_shape(tmp_path: Path) -> None:
    one = source_digest(write_checkpoint(tmp_path / "one", "a" * 64), 1)
    assert one == source_digest(write_checkpoint(tmp_path / "same", "a" * 64), 1)
    assert one != source_digest(write_checkpoint(tmp_path / "content", "b" * 64), 1)
    assert one != source_digest(write_checkpoint(tmp_path / "shape", "a" * 64, rows=5), 1)


def test_a_layer_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngramFormatError, match=r"layers\.2\.engram\.embed\.weight; is layer 2 one with Engram"):
        source_digest(write_checkpoint(tmp_path / "one", "a" * 64), 2)
