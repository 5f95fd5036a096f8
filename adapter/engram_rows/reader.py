"""Readers of one file of rows: the C++ core, and the same in Python. Both give the same bytes and the same errors."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapter.declare import AdapterError
from adapter.engram_rows.build import library
from adapter.engram_rows.engram_format import BLOCK, EngramFormatError, Header, check, read_header

BUCKETS = 128
_PER_DOUBLING = 4
_OK, _SHORT, _ERRNO, _LATE = range(4)


@dataclass(frozen=True)
class Stats:
    """reads: of blocks. deepest: the most reads that were under way at a time. buckets: reads by time taken."""

    reads: int
    rows: int
    batches: int
    errors: int
    deepest: int
    buckets: tuple[int, ...]

    def quantile(self, share: float) -> float:
        """Seconds within which that share of reads has ended: the upper edge of its bucket. 0 without reads."""
        wanted, seen = share * sum(self.buckets), 0
        for number, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return float(2 ** (number / _PER_DOUBLING)) * 1e-6
        return 0.0


class Reader(Protocol):
    """first: the first row of the file as the table counts it; other rows than the file's become zeros."""

    kind: str

    def read(self, rows: int, number: int, out: int, seconds: float) -> None:
        """rows: address of `number` row ids, int64; out: address of number * row_bytes bytes.

        Raises AdapterError that names file and row: nothing in `out` may be used then.
        """

    def stats(self) -> Stats: ...

    def close(self) -> None: ...


def checked(path: Path, expected: dict[str, int | str]) -> Header:
    """The header of a file that is what is expected. Raises AdapterError."""
    try:
        header = read_header(path)
        check(header, expected, str(path))
    except EngramFormatError as error:
        raise AdapterError(str(error)) from error
    except OSError as error:
        raise AdapterError(
            f"{path}: {error.strerror or error}; pack the rows with `sparkd-engine model pack`, or correct "
            "adapters.engram_rows.directory"
        ) from error
    return header


def opened(path: Path, header: Header, kind: str, depth: int) -> Reader:
    """kind: native, uring, python, or auto, which is the best that there is. Raises AdapterError."""
    if kind == "python":
        return PythonReader(path, header, depth)
    core = library()
    if not core.exists():
        if kind == "auto":
            return PythonReader(path, header, depth)
        raise AdapterError(f"{core} is not there: run `python -m adapter.engram_rows.build` with the engine's Python")
    return NativeReader(path, header, depth, core, uring=kind in ("auto", "uring"))


def _cannot_open(path: Path, number: int) -> AdapterError:
    if number == errno.EINVAL:
        return AdapterError(f"{path}: its file system has no direct reads; put the rows onto ext4 or xfs on local NVMe")
    return AdapterError(f"{path}: {os.strerror(number)}")


def _short(path: Path, row: int) -> AdapterError:
    return AdapterError(f"{path}: row {row}: a short read: the file has been cut since it was opened; pack it again")


def _failed(path: Path, row: int, number: int) -> AdapterError:
    return AdapterError(f"{path}: row {row}: {os.strerror(number)}; look at the disk (dmesg, smartctl)")


def _late(path: Path, row: int, seconds: float) -> AdapterError:
    return AdapterError(f"{path}: row {row}: no answer within {seconds:g} s; look at the disk (dmesg, smartctl)")


class _Result(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("error", ctypes.c_int32), ("row", ctypes.c_int64), ("bytes", ctypes.c_int64)]


class _Stats(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("reads", "rows", "batches", "errors", "deepest")),
        ("buckets", ctypes.c_uint64 * BUCKETS),
    ]


class HostCall(ctypes.Structure):
    """What a CUDA stream is given to call; see core.cpp."""

    _fields_ = [
        ("table", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("number", ctypes.c_uint64),
        ("first", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("seconds", ctypes.c_double),
        ("file", ctypes.c_char_p),
    ]


class NativeReader:
    def __init__(self, path: Path, header: Header, depth: int, core: Path, *, uring: bool) -> None:
        self._path, self._first = path, header.row_start
        self._core = ctypes.CDLL(str(core), use_errno=True)
        self._core.sparkd_rows_open.restype = ctypes.c_void_p
        self._core.sparkd_rows_read.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_double,
            ctypes.POINTER(_Result),
        ]  # fmt: skip
        for name in ("stats", "close", "uses_uring"):
            getattr(self._core, f"sparkd_rows_{name}").argtypes = [
                ctypes.c_void_p,
                *([ctypes.c_void_p] * (name == "stats")),
            ]
        ctypes.set_errno(0)
        self.handle = self._core.sparkd_rows_open(
            str(path).encode(), ctypes.c_int64(header.rows), ctypes.c_int64(header.row_bytes),
            ctypes.c_int64(header.rows_per_block), depth, int(uring),
        )  # fmt: skip
        if not self.handle:
            raise _cannot_open(path, ctypes.get_errno())
        self.kind = "uring" if self._core.sparkd_rows_uses_uring(self.handle) else "native"

    def read(self, rows: int, number: int, out: int, seconds: float) -> None:
        result = _Result()
        code = self._core.sparkd_rows_read(self.handle, rows, number, self._first, out, seconds, ctypes.byref(result))
        if code == _SHORT:
            raise _short(self._path, result.row)
        if code == _LATE:
            raise _late(self._path, result.row, seconds)
        if code != _OK:
            raise _failed(self._path, result.row, result.error)

    def host_call(self, rows: int, number: int, out: int, seconds: float) -> tuple[int, HostCall]:
        """A C function for cudaLaunchHostFunc, and its argument, which has to live as long as it may be called."""
        call = HostCall(self.handle, rows, number, self._first, out, seconds, str(self._path).encode())
        function = ctypes.cast(self._core.sparkd_rows_host_call, ctypes.c_void_p).value
        assert function is not None
        return function, call

    def stats(self) -> Stats:
        found = _Stats()
        self._core.sparkd_rows_stats(self.handle, ctypes.byref(found))
        return Stats(found.reads, found.rows, found.batches, found.errors, found.deepest, tuple(found.buckets))

    def close(self) -> None:
        if self.handle:
            self._core.sparkd_rows_close(self.handle)
            self.handle = None


class PythonReader:
    """Threads that read into buffers of their own: a read that is late writes into nobody's memory."""

    kind = "python"

    def __init__(self, path: Path, header: Header, depth: int) -> None:
        self._path, self._header, self._depth = path, header, depth
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot_open(path, error.errno or 0) from error
        self._pool = ThreadPoolExecutor(depth, thread_name_prefix="engram-rows")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("reads", "rows", "batches", "errors", "deepest"), 0)
        self._buckets = [0] * BUCKETS

    def read(self, rows: int, number: int, out: int, seconds: float) -> None:
        header = self._header
        size = header.row_bytes
        into = (ctypes.c_ubyte * (number * size)).from_address(out)
        view = memoryview(into).cast("B")
        ids = (ctypes.c_int64 * number).from_address(rows)
        by_block: dict[int, list[tuple[int, int]]] = {}
        for place, row in enumerate(ids):
            local = row - header.row_start
            if 0 <= local < header.rows:
                block, inside = divmod(local, header.rows_per_block)
                by_block.setdefault(block, []).append((place, inside))
            else:
                view[place * size : (place + 1) * size] = bytes(size)
        futures = {self._pool.submit(self._block, block, wanted): block for block, wanted in sorted(by_block.items())}
        try:
            self._collect(futures, by_block, view, seconds)
        except AdapterError:
            for future in futures:
                future.cancel()
            with self._lock:
                self._counts["errors"] += 1
            raise
        finally:
            with self._lock:
                self._counts["batches"] += 1
                self._counts["deepest"] = max(self._counts["deepest"], min(len(futures), self._depth))

    def _collect(
        self,
        futures: dict[Future[bytes], int],
        by_block: dict[int, list[tuple[int, int]]],
        view: memoryview,
        seconds: float,
    ) -> None:
        size, first = self._header.row_bytes, self._header.row_start
        done, late = wait(futures, timeout=seconds, return_when=FIRST_EXCEPTION)
        for future in sorted(done, key=lambda each: futures[each]):
            block = futures[future]
            row = first + block * self._header.rows_per_block + min(inside for _, inside in by_block[block])
            try:
                data = future.result()
            except OSError as error:
                raise _failed(self._path, row, error.errno or 0) from error
            if len(data) < (max(inside for _, inside in by_block[block]) + 1) * size:
                raise _short(self._path, row)
            for place, inside in by_block[block]:
                view[place * size : (place + 1) * size] = data[inside * size : (inside + 1) * size]
        if late:
            block = min(futures[future] for future in late)
            raise _late(self._path, first + block * self._header.rows_per_block + by_block[block][0][1], seconds)

    def _block(self, block: int, wanted: list[tuple[int, int]]) -> bytes:
        if not hasattr(self._own, "buffer"):
            # Direct reads need memory at a multiple of the block's size, which a page is.
            self._own.buffer = mmap.mmap(-1, BLOCK)
        begin = time.perf_counter()
        got = os.preadv(self._descriptor, [self._own.buffer], BLOCK * (1 + block))
        took = time.perf_counter() - begin
        with self._lock:
            self._counts["reads"] += 1
            self._counts["rows"] += len(wanted)
            self._buckets[_bucket(took)] += 1
        return bytes(self._own.buffer[:got])

    def stats(self) -> Stats:
        with self._lock:
            return Stats(**self._counts, buckets=tuple(self._buckets))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _bucket(seconds: float) -> int:
    number, edge = 0, 1e-6
    while number < BUCKETS - 1 and seconds >= edge:
        number, edge = number + 1, edge * 2 ** (1 / _PER_DOUBLING)
    return number
