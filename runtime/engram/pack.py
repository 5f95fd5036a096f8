"""A rank's rows of one Engram table, written as runtime.engram_format describes.

Read straight from the shards, a segment at a time by up to eight threads, with 12 MiB of memory for each. A segment is
on disk before it is noted as done, so that an interrupted packing goes on with the next one. The file gets its name
when all of it is there and its header is written.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.durable import read_json, require_room, sync_directory, write_json
from runtime.engram.interleave import BLOCKS, Buffer
from runtime.engram.ownership import Tables
from runtime.engram.safetensors import Tensor, find
from runtime.engram_format import (
    BLOCK,
    DIGEST,
    SEGMENT_BLOCKS,
    EngramFormatError,
    Header,
    encode,
    file_name,
    read_header,
    source_digest,
    tensor_names,
)
from runtime.trouble import Trouble

WORKERS = 8
MEMORY_PER_WORKER = 12 << 20
"""Bytes: blocks, and the places of rows in them."""
NOTE_EVERY = 8
"""Segments between two notes: at most 512 MiB are packed again after a kill."""
Count = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """One file of rows."""

    target: Path
    weight: Tensor
    scale: Tensor
    header: Header
    """Without the digest of the segments, which is not known yet."""

    @property
    def size(self) -> int:
        return self.header.file_bytes


def job_of(checkpoint: Path, out: Path, tables: Tables, layer: int, rank: int, world: int, revision: str) -> Job:
    """What has to be written. Raises Trouble if the checkpoint's tensors are not a table of the known format."""
    weight_name, scale_name = tensor_names(layer)
    weight, scale = find(checkpoint, weight_name), find(checkpoint, scale_name)
    total = tables.rows[tables.layers.index(layer)]
    scales = tables.dim // 32
    for tensor, dtype, shape in ((weight, "F8_E4M3", (total, tables.dim)), (scale, "F8_E8M0", (total, scales))):
        if (tensor.dtype, tensor.shape) != (dtype, shape):
            raise Trouble(
                f"{tensor.path}: {tensor.name} is {tensor.dtype} of shape {list(tensor.shape)}, and config.json means "
                f"{dtype} of shape {list(shape)}"
            )
    owned = tables.owned(layer, rank, world)
    try:
        source = source_digest(checkpoint, layer)
    except EngramFormatError as error:
        raise Trouble(str(error)) from error
    header = Header(
        layer, rank, world, owned.start, len(owned), total, tables.dim, scales, source, revision, "0" * 2 * DIGEST
    )
    return Job(out / file_name(layer, rank, world), weight, scale, header)


def is_packed(job: Job) -> bool:
    """Whether the file is there already, from the same source. Its rows are not read."""
    try:
        found = read_header(job.target)
    except (EngramFormatError, OSError):
        return False
    return replace(found, segments=job.header.segments, revision=job.header.revision) == job.header


def pack(job: Job, count: Count, *, workers: int = 0) -> None:
    """Write the file; `count` gets the bytes of each step.

    Raises Trouble and OSError; what is written stays for the next time.
    """
    work = _Work(job, count)
    try:
        work.run(workers or min(WORKERS, os.cpu_count() or 1))
    finally:
        work.close()


def room_for(jobs: list[Job], out: Path) -> None:
    """Refuse to begin what does not fit. Raises Trouble with the numbers."""
    begun = sum(_allocated(_partial(job.target)) for job in jobs)
    require_room(out, max(sum(job.size for job in jobs) - begun, 0), f"packing {len(jobs)} files")


class _Work:
    def __init__(self, job: Job, count: Count) -> None:
        self._job, self._count = job, count
        self._partial = _partial(job.target)
        self._notes = self._partial.with_suffix(".json")
        self._digests = self._noted()
        self._lock = threading.Lock()
        self._local = threading.local()
        job.target.parent.mkdir(parents=True, exist_ok=True)
        self._out = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._sources = [os.open(each.path, os.O_RDONLY | os.O_CLOEXEC) for each in (job.weight,)]
        if job.scale.path != job.weight.path:
            self.close()
            raise Trouble(f"{job.weight.name} and {job.scale.name} are in different files, expected the same")
        self._before = os.fstat(self._sources[0])

    def close(self) -> None:
        for descriptor in (self._out, *self._sources):
            os.close(descriptor)

    def run(self, workers: int) -> None:
        header = self._job.header
        if os.fstat(self._out).st_size != header.file_bytes:
            self._digests.clear()
            os.ftruncate(self._out, 0)
        try:
            os.posix_fallocate(self._out, 0, header.file_bytes)
        except OSError as error:
            raise Trouble(
                f"{self._partial}: {error.strerror}, {header.file_bytes} bytes are needed", "make room"
            ) from error
        todo = [segment for segment in range(header.segment_count) if segment not in self._digests]
        self._count(BLOCK * SEGMENT_BLOCKS * len(self._digests))
        stop = threading.Event()
        with ThreadPoolExecutor(workers, thread_name_prefix="pack") as pool:
            try:
                running = {pool.submit(self._segment, segment, stop): segment for segment in todo}
                for number, done in enumerate(as_completed(running), 1):
                    self._digests[running[done]] = done.result()
                    if number % NOTE_EVERY == 0:
                        self._note()
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
                self._note()
        self._finish()

    def _segment(self, segment: int, stop: threading.Event) -> bytes:
        """Pack one segment; returns its digest."""
        job, header = self._job, self._job.header
        if not hasattr(self._local, "buffer"):
            self._local.buffer = Buffer(header.weight_bytes, header.scale_bytes, min(BLOCKS, max(header.row_blocks, 1)))
        buffer: Buffer = self._local.buffer
        digest = hashlib.sha256()
        first, last = segment * SEGMENT_BLOCKS, min((segment + 1) * SEGMENT_BLOCKS, header.row_blocks)
        for block in range(first, last, buffer.blocks):
            if stop.is_set():
                raise InterruptedError(f"{self._partial}: stopped")
            row = block * header.rows_per_block
            rows = min(min(buffer.blocks, last - block) * header.rows_per_block, header.rows - row)
            at = header.row_start + row
            try:
                data = buffer.fill(
                    self._sources[0],
                    job.weight.offset + at * header.weight_bytes,
                    job.scale.offset + at * header.scale_bytes,
                    rows,
                )
            except Trouble as trouble:
                raise Trouble(f"{job.weight.path}: {trouble.text}") from trouble
            digest.update(data)
            _write(self._out, data, BLOCK * (1 + block))
            self._count(len(data))
        return digest.digest()

    def _finish(self) -> None:
        job, header = self._job, self._job.header
        after = os.fstat(self._sources[0])
        if (after.st_size, after.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):
            self._digests.clear()
            self._note()
            raise Trouble(f"{job.weight.path}: changed while it was packed", "verify it, and pack again")
        digests = b"".join(self._digests[segment] for segment in range(header.segment_count))
        _write(self._out, memoryview(digests), header.digests_offset)
        os.fdatasync(self._out)
        # Last: before this block is there, the file is none.
        done = replace(header, segments=hashlib.sha256(digests).hexdigest())
        _write(self._out, memoryview(encode(done)), 0)
        os.fsync(self._out)
        os.posix_fadvise(self._out, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(self._sources[0], 0, 0, os.POSIX_FADV_DONTNEED)
        self._partial.replace(job.target)
        self._notes.unlink(missing_ok=True)
        sync_directory(job.target.parent)

    def _note(self) -> None:
        done = {str(segment): digest.hex() for segment, digest in self._digests.items()}
        if os.fstat(self._out).st_nlink and done:
            os.fdatasync(self._out)
            write_json(self._notes, {"header": vars(self._job.header), "segments": done})

    def _noted(self) -> dict[int, bytes]:
        """Segments that an interrupted packing of the same rows has done."""
        try:
            found = read_json(self._notes)
            if found["header"] != vars(self._job.header) or not self._partial.exists():
                return {}
            return {int(segment): bytes.fromhex(digest) for segment, digest in found["segments"].items()}
        except (FileNotFoundError, Trouble, KeyError, ValueError, AttributeError):
            return {}


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0
