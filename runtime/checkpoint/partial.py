"""A file that is being downloaded: its bytes so far, and which of them they are.

It lies in `.sparkd/partial` until it is whole and verified. The journal beside it says how far each segment has come,
and of which version of the file, by its ETag, the bytes are: others would make a file of two halves.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from runtime.checkpoint.manifest import OWN, Entry
from runtime.durable import read_json, write_json
from runtime.trouble import Trouble

SEGMENT = 128 << 20
"""Bytes that one stream fetches with one request."""
JOURNAL_EVERY = 64 << 20
"""Bytes of one segment after which the journal is written: at most that much is fetched again after a kill."""


class Stale(Exception):
    """The bytes are of a version of the file that is given up."""


class Partial:
    """One file. Segments are fetched by several threads at once; each is written by one at a time."""

    def __init__(self, checkpoint: Path, name: str, entry: Entry, segment: int = SEGMENT) -> None:
        """Take up what is there. Raises OSError, of which ENOSPC says that there is no room for the whole file."""
        self.name, self.entry = name, entry
        self.path = place(checkpoint, name)
        self._journal = self.path.with_suffix(".json")
        self._segment = segment
        self._lock = threading.Lock()
        self._journaling = threading.Lock()
        self.version = 0
        """Goes up with each `restart`."""
        self._unjournaled = 0
        self.etag = ""
        self._done: dict[int, int] = {}
        self._hashing = threading.Lock()
        self._digest, self._hashed, self._hashed_version = hashlib.sha256(), 0, 0
        self._read_journal()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._descriptor).st_size != entry.size:
                self._done.clear()
                os.ftruncate(self._descriptor, 0)
            if entry.size:
                # Room for all of it now, rather than none for the last part after hours.
                os.posix_fallocate(self._descriptor, 0, entry.size)
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Leave it for the next time; nothing after `finish`."""
        if self._descriptor >= 0:
            self.journal()
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def done(self) -> int:
        """Bytes that are there."""
        with self._lock:
            return sum(self._done.values())

    def missing(self) -> list[tuple[int, int]]:
        """First byte and end of what each unfinished segment lacks."""
        with self._lock:
            starts = range(0, self.entry.size, self._segment)
            ranges = [(at + self._done.get(at, 0), min(at + self._segment, self.entry.size)) for at in starts]
        return [(first, end) for first, end in ranges if first < end]

    def write(self, offset: int, data: memoryview, version: int) -> None:
        """The next bytes of a segment. Raises Stale after a `restart`, and OSError."""
        if version != self.version:
            raise Stale
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)
        with self._lock:
            if version != self.version:
                raise Stale
            start = offset // self._segment * self._segment
            self._done[start] = offset + len(data) - start
            self._unjournaled += len(data)
            due = self._unjournaled >= JOURNAL_EVERY
        if due:
            self.journal()

    def journal(self) -> None:
        """Note how far it is, once that is on disk. Raises OSError."""
        with self._journaling:
            with self._lock:
                self._unjournaled = 0
                noted = {str(start): count for start, count in self._done.items()}
                etag = self.etag
            # First the bytes, then the word that they are there: the power may go in between.
            os.fdatasync(self._descriptor)
            write_json(
                self._journal,
                {"etag": etag, "size": self.entry.size, "segment": self._segment, "sha256": self.entry.sha256,
                 "name": self.name, "done": noted},
            )  # fmt: skip

    def restart(self, version: int) -> int:
        """Forget everything, because it is of another version or wrong. Returns how many bytes that were.

        Nothing happens if another thread has done so since `version` was read.
        """
        with self._lock:
            if version != self.version:
                return 0
            lost = sum(self._done.values())
            self._done.clear()
            self.etag = ""
            self.version += 1
        return lost

    def seen(self, etag: str, version: int) -> bool:
        """Whether bytes with this ETag go with those that are there; the first ones say what goes.

        Weak tags say nothing about bytes, and a server without tags is trusted until the digest is known.
        """
        if not etag or etag.startswith("W/"):
            return True
        with self._lock:
            if version == self.version and not self.etag:
                self.etag = etag
            return self.etag == etag

    def hash_ahead(self) -> None:
        """Take the segments that are there, from the first one on, into the digest, while others are on their way.

        Raises OSError.
        """
        with self._hashing:
            if self._hashed_version != self.version:
                self._digest, self._hashed, self._hashed_version = hashlib.sha256(), 0, self.version
            while self._hashed < self.entry.size:
                start, end = self._hashed, min(self._hashed + self._segment, self.entry.size)
                with self._lock:
                    if self._done.get(start, 0) < end - start or self._hashed_version != self.version:
                        return
                self._take(start, end)
                self._hashed = end

    def sha256(self) -> str:
        """Of the whole file, which has to be there. Raises OSError."""
        self.hash_ahead()
        return self._digest.hexdigest() if self._hashed == self.entry.size else "of a file that is not whole"

    def _take(self, at: int, end: int) -> None:
        buffer = memoryview(bytearray(1 << 20))
        while at < end and (size := os.preadv(self._descriptor, [buffer[: min(len(buffer), end - at)]], at)):
            self._digest.update(buffer[:size])
            at += size

    def finish(self, target: Path) -> os.stat_result:
        """Give it its name, for good. Returns the status of the file. Raises OSError."""
        os.fsync(self._descriptor)
        # On a Spark, CUDA counts the page cache as used memory.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        status = os.fstat(self._descriptor)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.path.replace(target)
        self._journal.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1
        return status

    def _read_journal(self) -> None:
        try:
            found = read_json(self._journal)
            same = (found["size"], found["segment"], found["sha256"]) == (
                self.entry.size, self._segment, self.entry.sha256,
            )  # fmt: skip
            if same and self.path.exists():
                self.etag = str(found["etag"])
                self._done = {int(start): int(count) for start, count in found["done"].items()}
        except (FileNotFoundError, Trouble, KeyError, ValueError, AttributeError):
            # Without a journal nobody knows which bytes are there.
            self._done.clear()


def place(checkpoint: Path, name: str) -> Path:
    """Where the bytes of a file are before it is whole; names have slashes, and may be long."""
    return checkpoint / OWN / "partial" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.part"


def allocated(checkpoint: Path, name: str) -> int:
    """Bytes on disk that a partial file has already."""
    try:
        return place(checkpoint, name).stat().st_blocks * 512
    except OSError:
        return 0


def progress_of(checkpoint: Path, name: str) -> int:
    """Bytes of a file that are there, without touching it."""
    try:
        return sum(int(count) for count in read_json(place(checkpoint, name).with_suffix(".json"))["done"].values())
    except (FileNotFoundError, Trouble, KeyError, ValueError, AttributeError):
        return 0
