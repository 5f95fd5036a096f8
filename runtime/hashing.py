"""SHA-256 of files with all cores, at the disk's speed, without filling the page cache."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

CHUNK = 2 << 20
"""Small enough for the processor's cache, large enough that Python costs nothing beside the hash."""
DROP = 64 << 20
Count = Callable[[int], None]


@dataclass(frozen=True)
class Hashed:
    """The digest of a file that did not change while it was read, and the status that it had."""

    sha256: str
    status: os.stat_result


class ChangedWhileRead(OSError):
    """Somebody writes to the file."""


def sha256_of(path: Path, count: Count, *, keep_cached: bool = False, stop: threading.Event | None = None) -> Hashed:
    """The file's digest; `count` gets the bytes of each step. Raises OSError.

    What was read leaves the page cache, unless `keep_cached`: on a Spark CUDA counts the cache as used memory.
    """
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        done = dropped = 0
        while size := file.readinto(buffer):
            digest.update(view[:size])
            done += size
            count(size)
            if not keep_cached and done - dropped >= DROP:
                os.posix_fadvise(file.fileno(), dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                dropped = done
            if stop is not None and stop.is_set():
                raise InterruptedError(f"{path}: stopped")
        if not keep_cached:
            os.posix_fadvise(file.fileno(), dropped, 0, os.POSIX_FADV_DONTNEED)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileRead(None, "changed while it was read", str(path))
    return Hashed(digest.hexdigest(), after)


def sha256_of_all(
    paths: Mapping[str, Path] | Iterable[tuple[str, Path]], count: Count, *, workers: int = 0, keep_cached: bool = False
) -> Iterator[tuple[str, Hashed | OSError]]:
    """Digests of many files, as they are done: the largest first, so that none of them is left over at the end.

    hashlib releases the interpreter's lock, so that threads use all cores. An error of one file ends no other.
    """
    found = dict(paths)
    sizes = {name: path.stat().st_size if path.exists() else 0 for name, path in found.items()}
    order = sorted(found, key=lambda name: -sizes[name])
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1, thread_name_prefix="sha256") as pool:
        try:
            running = {
                pool.submit(sha256_of, found[name], count, keep_cached=keep_cached, stop=stop): name for name in order
            }
            for done in as_completed(running):
                error = done.exception()
                if error is not None and not isinstance(error, OSError):
                    raise error
                yield running[done], error if isinstance(error, OSError) else done.result()
        finally:
            # Ctrl-C: what has not begun does not begin, and what has ends with its next step.
            stop.set()
            pool.shutdown(cancel_futures=True)
