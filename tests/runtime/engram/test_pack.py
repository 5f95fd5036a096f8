"""Rows that are packed and read back are those of the checkpoint, bit for bit, for any number of ranks."""

from __future__ import annotations

import itertools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint.verify import record
from runtime.engram import pack as packing
from runtime.engram.check import check_rows, packed_files
from runtime.engram.interleave import Buffer
from runtime.engram.ownership import column_bounds, is_prime, shard_range, tables_of
from runtime.engram.pack import Job, is_packed, job_of, pack, room_for
from runtime.engram.safetensors import find
from runtime.engram_format import BLOCK, EngramFormatError, read_header, tensor_names
from runtime.trouble import Trouble
from tests.runtime.checkpoint import made


def nothing(_: int) -> None:
    """Nobody counts."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = made.checkpoint(tmp_path_factory.mktemp("packed") / "model")
    manifests.save(directory, record(directory, "maker/model", "r1"))
    return directory


def jobs(checkpoint: Path, out: Path, world: int) -> list[Job]:
    tables = tables_of(checkpoint)
    return [
        job_of(checkpoint, out, tables, layer, rank, world, "r1") for layer in tables.layers for rank in range(world)
    ]


def rows_of(path: Path) -> dict[int, bytes]:
    """By number in the table, read as the engine does: one block per row."""
    header = read_header(path)
    found = {}
    with path.open("rb") as file:
        for row in range(header.row_start, header.row_start + header.rows):
            offset, inside = header.place(row)
            file.seek(offset)
            found[row] = file.read(BLOCK)[inside : inside + header.row_bytes]
    return found


def source_rows(checkpoint: Path, layer: int) -> dict[int, bytes]:
    weight, scale = (find(checkpoint, name) for name in tensor_names(layer))
    data = weight.path.read_bytes()
    weights, scales = (data[each.offset : each.offset + each.size] for each in (weight, scale))
    width, narrow = weight.shape[1], scale.shape[1]
    return {
        row: weights[row * width : (row + 1) * width] + scales[row * narrow : (row + 1) * narrow]
        for row in range(weight.shape[0])
    }


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 7])
def test_packed_rows_are_the_checkpoints(world: int, checkpoint: Path, tmp_path: Path) -> None:
    every = jobs(checkpoint, tmp_path, world)
    for job in every:
        assert not is_packed(job)
        pack(job, nothing, workers=2)
        assert is_packed(job)

    assert len(packed_files(tmp_path)) == 2 * world
    for layer in (1, 14):
        found: dict[int, bytes] = {}
        for path in packed_files(tmp_path):
            header = check_rows(path, checkpoint, nothing, workers=2)
            if header.layer == layer:
                rows = rows_of(path)
                assert not rows.keys() & found.keys()
                found |= rows
        assert found == source_rows(checkpoint, layer)
    assert {path.suffix for path in tmp_path.iterdir()} == {".rows"}


def test_the_tables_of_the_published_checkpoint_follow_from_its_numbers() -> None:
    bounds = column_bounds(16_000_000, orders=3, heads=8, tables=2)
    assert [each[-1] for each in bounds] == [384_006_168, 384_016_682]
    shares = [shard_range(bounds[0], rank, 3) for rank in range(3)]
    assert [shares[0].start, shares[2].stop] == [0, 384_006_168]
    assert all(before.stop == after.start for before, after in itertools.pairwise(shares))
    assert {share.start for share in shares} <= set(bounds[0])


def test_primes_are_primes() -> None:
    sieve = [number for number in range(2000) if number > 1 and all(number % each for each in range(2, number))]
    assert [number for number in range(2000) if is_prime(number)] == sieve
    assert not is_prime(3_215_031_751)
    assert is_prime(16_000_057)


def test_rows_that_cannot_be_divided_by_column_are_divided_evenly() -> None:
    bounds = column_bounds(40, orders=3, heads=4, tables=1)[0]
    shares = [shard_range(bounds, rank, 5) for rank in range(5)]
    assert sum(len(share) for share in shares) == bounds[-1]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("place", ["row", "digests", "header"])
def test_a_damaged_file_is_named(place: str, checkpoint: Path, tmp_path: Path) -> None:
    job = jobs(checkpoint, tmp_path, 3)[1]
    pack(job, nothing)
    header = read_header(job.target)
    at = {"row": header.place(header.row_start + 20)[0], "digests": header.digests_offset, "header": 100}[place]
    with job.target.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 4]))
    said = {"row": r"rows \d+ to \d+ are damaged", "digests": "the digests at byte", "header": "checksum is wrong"}
    with pytest.raises(EngramFormatError, match=f"{job.target.name}: .*{said[place]}"):
        check_rows(job.target, checkpoint, nothing)


def test_rows_of_another_checkpoint_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    other = made.checkpoint(tmp_path / "other", seed=9)
    manifests.save(other, record(other, "maker/model", "r1"))
    job = jobs(other, tmp_path / "rows", 2)[0]
    pack(job, nothing)

    check_rows(job.target, other, nothing)
    with pytest.raises(EngramFormatError, match="was packed from another table"):
        check_rows(job.target, checkpoint, nothing)
    assert not is_packed(jobs(checkpoint, tmp_path / "rows", 2)[0])


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_after(size: int) -> Callable[[int], None]:
    """A counter that ends the work once so many bytes are packed."""
    done = 0

    def count(step: int) -> None:
        nonlocal done
        done += step
        if done > size:
            raise Killed

    return count


def test_an_interrupted_packing_goes_on_where_it_was(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two blocks to a segment: as many segments as a table of the real size has.
    for place in ("runtime.engram.pack", "runtime.engram.check", "runtime.engram_format"):
        monkeypatch.setattr(f"{place}.SEGMENT_BLOCKS", 2)
    monkeypatch.setattr("runtime.engram.pack.NOTE_EVERY", 1)
    job = jobs(checkpoint, tmp_path, 2)[1]
    with pytest.raises(Killed):
        pack(job, kill_after(6 * BLOCK), workers=1)
    assert not job.target.exists()
    steps: list[int] = []
    pack(job, steps.append, workers=1)

    assert steps[0] >= 4 * BLOCK
    assert sum(steps[1:]) < job.header.row_blocks * BLOCK
    check_rows(job.target, checkpoint, nothing)
    rows = source_rows(checkpoint, job.header.layer)
    assert rows_of(job.target) == {row: rows[row] for row in rows_of(job.target)}


def test_segments_of_another_checkpoint_are_packed_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("runtime.engram.pack", "runtime.engram.check", "runtime.engram_format"):
        monkeypatch.setattr(f"{place}.SEGMENT_BLOCKS", 2)
    monkeypatch.setattr("runtime.engram.pack.NOTE_EVERY", 1)
    other = made.checkpoint(tmp_path / "other", seed=9)
    manifests.save(other, record(other, "maker/model", "r1"))
    with pytest.raises(Killed):
        pack(jobs(other, tmp_path, 2)[1], kill_after(6 * BLOCK), workers=1)
    job = jobs(checkpoint, tmp_path, 2)[1]
    pack(job, nothing, workers=1)

    rows = source_rows(checkpoint, job.header.layer)
    assert rows_of(job.target) == {row: rows[row] for row in rows_of(job.target)}


def test_what_does_not_fit_is_refused_with_the_numbers(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.engram.pack.require_room.__defaults__", (1 << 60,))
    with pytest.raises(Trouble, match=r"packing 6 files needs \d+\.\d MiB and 1073741824\.0 GiB to spare"):
        room_for(jobs(checkpoint, tmp_path, 3), tmp_path)


def test_a_table_of_another_shape_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    tables = tables_of(checkpoint)
    other = made.Table(dim=128)
    directory = made.checkpoint(tmp_path / "model", other)
    manifests.save(directory, record(directory, "maker/model", "r1"))
    with pytest.raises(Trouble, match=r"is F8_E4M3 of shape \[\d+, 128\], and config.json means F8_E4M3 of shape"):
        job_of(directory, tmp_path, tables, 1, 0, 3, "r1")


def test_a_short_read_leaves_no_row_half_there(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(bytes(range(256)) * 40 + bytes(8 * 10))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(Trouble, match="the shard ends at byte 10320"):
            Buffer(256, 8, 3).fill(descriptor, 0, 40 * 256, 40)
    finally:
        os.close(descriptor)


def test_memory_is_bounded_to_the_stated_figure() -> None:
    tracemalloc.start()
    buffer = Buffer(256, 8)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert buffer.blocks * BLOCK < used <= packing.MEMORY_PER_WORKER


def test_nothing_of_former_rows_is_left_behind_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(b"w" * 256 * 45 + b"s" * 8 * 45)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        buffer = Buffer(256, 8, 3)
        assert bytes(buffer.fill(descriptor, 0, 256 * 45, 45)).count(0) == 3 * (BLOCK - 15 * 264)
        found = bytes(buffer.fill(descriptor, 0, 256 * 45, 17))
    finally:
        os.close(descriptor)
    assert len(found) == 2 * BLOCK
    assert found[BLOCK:] == (b"w" * 256 + b"s" * 8) * 2 + bytes(BLOCK - 2 * 264)
