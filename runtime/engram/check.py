"""Whether a file of rows is what its header says, and made from this checkpoint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime.engram_format import BLOCK, DIGEST, SEGMENT_BLOCKS, EngramFormatError, Header, read_header, source_digest

CHUNK = 4 << 20
Count = Callable[[int], None]


def packed_files(directory: Path) -> list[Path]:
    """Files of rows that are finished."""
    return sorted(directory.glob("engram-layer*-rank*-of-*.rows"))


def check_rows(path: Path, checkpoint: Path | None, count: Count, *, workers: int = 0) -> Header:
    """Read all rows of a file. Raises EngramFormatError, naming the first rows that are wrong, and OSError.

    With `checkpoint` also whether the rows come from what it holds now.
    """
    header = read_header(path)
    if checkpoint is not None and (source := source_digest(checkpoint, header.layer)) != header.source:
        raise EngramFormatError(
            f"{path}: was packed from another table ({header.source[:12]}) than the checkpoint has ({source[:12]}); "
            "pack it again"
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        digests = os.pread(descriptor, header.segment_count * DIGEST, header.digests_offset)
        if hashlib.sha256(digests).hexdigest() != header.segments:
            raise EngramFormatError(f"{path}: the digests at byte {header.digests_offset} are damaged; pack it again")
        with ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="rows") as pool:
            found = pool.map(lambda segment: _digest(descriptor, header, segment, count), range(header.segment_count))
            for segment, digest in enumerate(found):
                if digest != digests[segment * DIGEST : (segment + 1) * DIGEST]:
                    first = header.row_start + segment * SEGMENT_BLOCKS * header.rows_per_block
                    last = min(first + SEGMENT_BLOCKS * header.rows_per_block, header.row_start + header.rows) - 1
                    raise EngramFormatError(f"{path}: rows {first} to {last} are damaged; pack it again")
    finally:
        os.close(descriptor)
    return header


def _digest(descriptor: int, header: Header, segment: int, count: Count) -> bytes:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK))
    at = BLOCK * (1 + segment * SEGMENT_BLOCKS)
    end = min(at + BLOCK * SEGMENT_BLOCKS, header.digests_offset)
    while at < end:
        size = os.preadv(descriptor, [buffer[: min(CHUNK, end - at)]], at)
        if size == 0:
            break
        digest.update(buffer[:size])
        at += size
        count(size)
    os.posix_fadvise(descriptor, end - BLOCK * SEGMENT_BLOCKS, BLOCK * SEGMENT_BLOCKS, os.POSIX_FADV_DONTNEED)
    return digest.digest()
