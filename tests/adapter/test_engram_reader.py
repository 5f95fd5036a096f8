"""The readers of packed rows, without torch: the C++ core with threads and with io_uring, and Python, against bytes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from adapter.declare import AdapterError
from adapter.engram_rows import engram_format, reader
from adapter.engram_rows.build import build, library
from adapter.engram_rows.engram_format import BLOCK, Header
from adapter.engram_rows.reader import NativeReader, PythonReader, Reader, checked, opened
from tests.adapter import rows
from tests.adapter.conftest import REPOSITORY

FIRST, ROWS = 1000, 307  # of 15 to a block: the last block is not full
KINDS = ("native", "uring", "python")


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("core"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Header]:
    header = rows.header(ROWS, FIRST, 5000, rank=1, world=3)
    path = rows.write(tmp_path_factory.mktemp("rows"), header, [rows.row_of(FIRST + each) for each in range(ROWS)])
    return path, header


def made(kind: str, path: Path, header: Header, core: Path, depth: int = 8) -> Reader:
    if kind == "python":
        return PythonReader(path, header, depth)
    return NativeReader(path, header, depth, core, uring=kind == "uring")


def expected(ids: list[int]) -> list[bytes]:
    return [rows.row_of(each) if FIRST <= each < FIRST + ROWS else bytes(264) for each in ids]


def test_the_format_is_the_runtimes_to_the_byte() -> None:
    theirs = REPOSITORY / "runtime/engram_format.py"
    assert Path(engram_format.__file__).read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "ids",
    [
        [],
        [FIRST],
        [FIRST + ROWS - 1],
        [FIRST - 1, FIRST + ROWS, 0, -1, 4999, 2**62, -(2**62)],
        [FIRST + 7] * 40,
        [FIRST + 14, FIRST + 15, FIRST + 14, FIRST - 1, FIRST + 15],
        list(range(FIRST, FIRST + ROWS)),
        random.Random(1).choices(range(FIRST - 300, FIRST + ROWS + 300), k=700),
    ],
    ids=["none", "first", "last", "unowned", "one, often", "two blocks", "all", "random"],
)
def test_every_reader_gives_the_packed_bytes(
    packed: tuple[Path, Header], core: Path, kind: str, ids: list[int]
) -> None:
    opened_ = made(kind, *packed, core)
    try:
        assert rows.Buffers(ids).read(opened_) == expected(ids)
        assert rows.Buffers(ids).read(opened_) == expected(ids)
        blocks = {(each - FIRST) // 15 for each in ids if FIRST <= each < FIRST + ROWS}
        assert opened_.stats().reads == 2 * len(blocks)
    finally:
        opened_.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_counted_and_timed(packed: tuple[Path, Header], core: Path, kind: str) -> None:
    opened_ = made(kind, *packed, core, depth=4)
    try:
        rows.Buffers(list(range(FIRST, FIRST + ROWS))).read(opened_)
        seen = opened_.stats()
        assert (seen.reads, seen.rows, seen.batches, seen.errors, seen.deepest) == (21, ROWS, 1, 0, 4)
        assert sum(seen.buckets) == seen.reads
        assert 1e-6 <= seen.quantile(0.5) <= seen.quantile(0.99) < 5
    finally:
        opened_.close()


def test_io_uring_is_used_where_the_kernel_has_it(packed: tuple[Path, Header], core: Path) -> None:
    opened_ = made("uring", *packed, core)
    opened_.close()
    built_with_it = b"io_uring_queue_init" in core.read_bytes()
    allowed = Path("/proc/sys/kernel/io_uring_disabled")
    usable = built_with_it and (not allowed.exists() or allowed.read_text().strip() == "0")
    assert opened_.kind == ("uring" if usable else "native")


def test_quantiles_are_edges_of_buckets() -> None:
    buckets = [0] * reader.BUCKETS
    buckets[4], buckets[40] = 99, 1
    stats = reader.Stats(100, 100, 1, 0, 1, tuple(buckets))
    assert stats.quantile(0.5) == pytest.approx(2e-6)
    assert stats.quantile(0.995) == pytest.approx(1024e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_is_a_short_read_with_its_row(tmp_path: Path, core: Path, kind: str) -> None:
    header = rows.header(ROWS, FIRST)
    path = rows.write(tmp_path, header, [rows.row_of(FIRST + each) for each in range(ROWS)])
    opened_ = made(kind, path, header, core)
    try:
        os.truncate(path, BLOCK * 10)
        assert rows.Buffers([FIRST + 134]).read(opened_) == [rows.row_of(FIRST + 134)]
        with pytest.raises(AdapterError, match=rf"^{path}: row {FIRST + 135}: a short read: the file has been cut"):
            rows.Buffers([FIRST, FIRST + 135]).read(opened_)
        assert opened_.stats().errors == 1
    finally:
        opened_.close()


BAD: dict[str, dict[str, int | str]] = {
    "rank is 1, expected 2": {"rank": 2},
    "world is 3, expected 2": {"world": 2},
    "row_start is 1000, expected 999": {"row_start": 999},
    "layer is 1, expected 14": {"layer": 14},
    "source is '5555": {"source": "6" * 64},
}


@pytest.mark.parametrize("says", BAD)
def test_a_shard_of_another_place_is_refused(packed: tuple[Path, Header], says: str) -> None:
    path, header = packed
    wanted: dict[str, int | str] = {"rank": 1, "world": 3, "row_start": FIRST, "layer": 1, "source": rows.SOURCE}
    assert checked(path, wanted).rows == header.rows
    with pytest.raises(AdapterError, match=f"{path}: these rows are not the ones wanted: .*{says}"):
        checked(path, wanted | BAD[says])


def test_a_spoilt_header_is_refused(packed: tuple[Path, Header], tmp_path: Path) -> None:
    data = bytearray(packed[0].read_bytes())
    data[40] ^= 1
    spoilt = tmp_path / "x.rows"
    spoilt.write_bytes(data)
    with pytest.raises(AdapterError, match="the header's checksum is wrong; pack it again"):
        checked(spoilt, {})
    with pytest.raises(AdapterError, match=r"gone\.rows: No such file or directory; pack the rows with"):
        checked(tmp_path / "gone.rows", {})


def test_the_best_reader_that_there_is_is_taken(packed: tuple[Path, Header], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not library().exists()
    fallback = opened(*packed, "auto", 2)
    assert fallback.kind == "python"
    fallback.close()
    with pytest.raises(AdapterError, match=r"is not there: run `python -m adapter\.engram_rows\.build`"):
        opened(*packed, "native", 2)


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no compiler no-such-compiler: install g"):
        build(tmp_path, "no-such-compiler")


def test_memory_has_no_direct_reads(core: Path) -> None:
    """Where a file system has none, nothing is read through the page cache in silence."""
    path = Path("/proc/self/stat")
    header = rows.header(1)
    for kind in ("native", "python"):
        with pytest.raises(AdapterError, match="/proc/self/stat: its file system has no direct reads"):
            made(kind, path, header, core)


# A disk that fails.


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made_ = tmp_path_factory.mktemp("fault") / "fault.so"
    source = REPOSITORY / "tests/adapter/fault.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", made_, source, "-ldl"], check=True)
    return made_


SCRIPT = """
import json, sys, time
from pathlib import Path
from adapter.declare import AdapterError
from tests.adapter import rows
from tests.adapter.test_engram_reader import made
path, kind, core = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
ids, seconds = json.loads(sys.argv[4]), float(sys.argv[5])
reader = made(kind, path, rows.header(%d, %d, 5000, rank=1, world=3), core)
begin = time.monotonic()
buffers = rows.Buffers(ids)
try:
    buffers.read(reader, seconds)
    said = ""
except AdapterError as error:
    said = str(error)
took = time.monotonic() - begin
before = bytes(buffers.out)
time.sleep(seconds)
print(json.dumps([said, took, before == bytes(buffers.out), reader.stats().errors]))
reader.close()
""" % (ROWS, FIRST)  # noqa: UP031 - braces


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("eio", "Input/output error; look at the disk"),
        ("short", "a short read: "),
        ("late", "no answer within 0.4 s; look at the disk"),
    ],
)
def test_a_failing_disk_names_file_and_row(
    packed: tuple[Path, Header], core: Path, faulty: Path, kind: str, fault: str, says: str
) -> None:
    row = FIRST + 32  # in the third block of rows
    settings = {
        "LD_PRELOAD": str(faulty), "FAULT": fault, "FAULT_OFFSET": str(3 * BLOCK), "FAULT_SECONDS": "0.7",
        "PYTHONPATH": str(REPOSITORY),
    }  # fmt: skip
    ids = [FIRST, row, FIRST + 100, FIRST - 5]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, packed[0], kind, core, json.dumps(ids), "0.4"],
        env=os.environ | settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, took, untouched, errors = json.loads(done.stdout)
    assert said.startswith(f"{packed[0]}: row {row}: {says}")
    assert took < 5
    assert untouched, "a late read has written into memory that is the caller's again"
    assert errors == 1
