"""One stream: a range of a file, fetched with as many requests as it takes."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.checkpoint.partial import Partial, Stale
from runtime.checkpoint.remote import LOST, PAUSE_LIMIT, Refused, Remote, Response, said, start_of, total_of
from runtime.trouble import Trouble

BUFFER = 1 << 20
ATTEMPTS = 8
"""Requests in a row of one stream that bring no byte, after which it is given up."""
WRONG_LENGTHS = 5
"""Answers in a row of one stream that tell another length than the manifest: then it is another file."""
BACKOFF_LIMIT = 60.0
PARTIAL_CONTENT = 206
RANGE_NOT_SATISFIABLE = 416


class Stopped(Exception):
    """Another stream has failed for good, or the operator wants no more."""


class _WrongLength(Exception):
    """The server's file has another length than the manifest says."""

    def __init__(self, observed: int) -> None:
        super().__init__(str(observed))
        self.observed = observed


class _Cut(OSError):
    """The connection ended before the answer did."""


@dataclass
class Patience:
    """How failures are waited out, by all streams together: a server that wants a pause gets it from all of them."""

    attempts: int = ATTEMPTS
    first_pause: float = 0.5
    stop: threading.Event = field(default_factory=threading.Event)
    _quiet_until: float = 0.0

    def before_request(self) -> None:
        """Raises Stopped."""
        while (left := self._quiet_until - time.monotonic()) > 0 and not self.stop.is_set():
            self.stop.wait(left)
        if self.stop.is_set():
            raise Stopped

    def all_pause(self, seconds: float) -> None:
        self._quiet_until = max(self._quiet_until, time.monotonic() + min(seconds, PAUSE_LIMIT))

    def after_failure(self, failures: int) -> None:
        """Wait as long as the number of failures in a row deserves. Raises Stopped."""
        if self.stop.wait(min(self.first_pause * 2.0 ** (failures - 1), BACKOFF_LIMIT)):
            raise Stopped


def fetch_range(
    remote: Remote, path: str, partial: Partial, first: int, end: int, patience: Patience, count: Callable[[int], None]
) -> None:
    """Fetch bytes `first` to `end`, which lie in one segment; `count` gets what has come, or, negative, is lost.

    Raises Trouble when it is hopeless, Stale after a restart of the file, Stopped.
    """
    failures = wrong_lengths = 0
    while first < end:
        patience.before_request()
        before, version = first, partial.version
        others, wrong_lengths = wrong_lengths, 0
        try:
            first = _one_request(remote, path, partial, first, end, version, count)
            continue
        except _WrongLength as wrong:
            observed = f"the server has {wrong.observed} bytes"
            wrong_lengths = others + 1
            if wrong_lengths >= min(WRONG_LENGTHS, patience.attempts):
                raise Trouble(
                    f"{partial.name}: {observed}, expected {partial.entry.size}",
                    "the source has another file than the manifest means: another revision, or a broken copy",
                ) from None
        except Refused as refused:
            if refused.final:
                raise refused.trouble() from refused
            observed = str(refused)
            if refused.pause is not None:
                patience.all_pause(refused.pause)
        except _Progressed as cut:
            first, observed = cut.reached, cut.observed
        except LOST as error:
            observed = said(error)
        failures = 1 if first > before else failures + 1
        if failures >= patience.attempts:
            raise Trouble(
                f"{partial.name}: {observed}, {failures} times in a row at byte {first} of {partial.entry.size}",
                "what has come is kept: run the same command again once the source answers",
            )
        patience.after_failure(failures)


class _Progressed(Exception):
    """The connection was lost after some bytes had come."""

    def __init__(self, reached: int, observed: str) -> None:
        super().__init__(observed)
        self.reached, self.observed = reached, observed


def _one_request(
    remote: Remote, path: str, partial: Partial, first: int, end: int, version: int, count: Callable[[int], None]
) -> int:
    """Bytes from `first` on, as far as one answer brings them. Returns where it ended."""
    whole = first == 0 and end == partial.entry.size
    headers = {} if whole else {"Range": f"bytes={first}-{end - 1}"}
    if partial.etag and not whole:
        headers["If-Range"] = partial.etag
    try:
        answer = remote.open(path, headers)
    except Refused as refused:
        if refused.status == RANGE_NOT_SATISFIABLE and refused.length not in (None, partial.entry.size):
            # The range is inside of the file that the manifest means, so that the server's is shorter.
            raise _WrongLength(refused.length or 0) from None
        raise
    try:
        skip = _check(answer, partial, first, version, count)
        return _receive(answer, partial, first, end, skip, version, count)
    finally:
        answer.close()


def _check(answer: Response, partial: Partial, first: int, version: int, count: Callable[[int], None]) -> int:
    """Whether the answer is a part of the file that is wanted. Returns how many of its bytes come too early."""
    if not partial.seen(answer.headers.get("ETag", ""), version):
        count(-partial.restart(version))
        raise Stale
    if answer.status == PARTIAL_CONTENT:
        total = total_of(answer.headers)
        if total is not None and total != partial.entry.size:
            raise _WrongLength(total)
        if start_of(answer.headers) != first:
            raise _Cut(f"the answer begins at byte {start_of(answer.headers)}, asked was {first}")
        return 0
    length = answer.headers.get("Content-Length", "")
    if length.isdigit() and int(length) != partial.entry.size:
        raise _WrongLength(int(length))
    return first


def _receive(
    answer: Response, partial: Partial, first: int, end: int, skip: int, version: int, count: Callable[[int], None]
) -> int:
    buffer = memoryview(bytearray(BUFFER))
    at, reached = first - skip, first
    try:
        while at < end:
            size = answer.readinto(buffer[: min(BUFFER, end - at)])
            if size == 0:
                raise _Cut(f"the answer ends at byte {at}, asked was up to {end}")
            useful = buffer[max(first - at, 0) : size] if at < first else buffer[:size]
            at += size
            if useful:
                partial.write(at - len(useful), useful, version)
                count(len(useful))
                reached = at
    except LOST as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None and _of_disk(error):
            raise Trouble(f"{partial.path}: {error.strerror}", "make room, then run the same command again") from error
        raise _Progressed(reached, said(error)) from error
    return reached


def _of_disk(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)
