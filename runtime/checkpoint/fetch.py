"""Bringing a copy of a checkpoint to this host: several streams, resumed where they were, each file verified."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint import receipts
from runtime.checkpoint.manifest import Manifest, save
from runtime.checkpoint.partial import SEGMENT, Partial, Stale, allocated, place
from runtime.checkpoint.remote import Remote
from runtime.checkpoint.stream import Patience, Stopped, fetch_range
from runtime.checkpoint.verify import verify
from runtime.durable import require_room, sync_directory
from runtime.progress import Progress
from runtime.trouble import Trouble

STREAMS = 8
STREAMS_MAX = 64
RESTARTS_MAX = 4


@dataclass(frozen=True)
class Fetched:
    files: int
    """Files that were not there."""
    received: int
    """Bytes that came over the network and were kept."""


@dataclass
class _File:
    """A file on its way."""

    partial: Partial
    streams: int = 0
    wrong: str = ""
    """The digest that the whole file had, the last time."""


def fetch(
    checkpoint: Path,
    manifest: Manifest,
    remote: Remote,
    path_of: Callable[[str], str],
    *,
    streams: int = STREAMS,
    segment: int = SEGMENT,
    patience: Patience | None = None,
    quiet: bool = True,
) -> Fetched:
    """Bring what is missing. `path_of` says where below the remote's address a file is.

    What is there already, however it came, is read and kept if it is right. Raises Trouble; whatever has come is kept
    for the next time.
    """
    if any((checkpoint / name).exists() for name in manifest.files):
        verify(checkpoint, manifest, quiet=quiet)
    held = receipts.load(checkpoint)
    present = receipts.valid(checkpoint, manifest, held)
    missing = [name for name in sorted(manifest.files) if name not in present]
    needed = sum(max(manifest.files[name].size - allocated(checkpoint, name), 0) for name in missing)
    require_room(checkpoint, needed, f"fetching {len(missing)} files")
    work = _Work(checkpoint, manifest, remote, path_of, patience or Patience(), segment, {n: held[n] for n in present})
    return work.run(missing, min(max(streams, 1), STREAMS_MAX), quiet=quiet)


class _Work:
    def __init__(
        self,
        checkpoint: Path,
        manifest: Manifest,
        remote: Remote,
        path_of: Callable[[str], str],
        patience: Patience,
        segment: int,
        held: dict[str, receipts.Receipt],
    ) -> None:
        self._checkpoint, self._manifest = checkpoint, manifest
        self._remote, self._path_of, self._patience = remote, path_of, patience
        self._held, self._segment = held, segment
        self._received = 0
        self._lock = threading.Lock()
        self._progress = Progress("fetch", 0)
        self._running: dict[Future[None], _File] = {}

    def run(self, missing: list[str], streams: int, *, quiet: bool) -> Fetched:
        files: list[_File] = []
        self._progress = Progress("fetch", sum(self._manifest.files[name].size for name in missing), quiet=quiet)
        with (
            ThreadPoolExecutor(streams, thread_name_prefix="fetch") as pool,
            ThreadPoolExecutor(2, thread_name_prefix="verify") as verifying,
        ):
            try:
                for name in missing:
                    file = _File(self._open(name))
                    files.append(file)
                    self._progress.add(file.partial.done, moved=False)
                    self._submit(pool, verifying, file)
                while self._running:
                    done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._ended(future, pool, verifying)
            finally:
                # After an error, and after Ctrl-C: streams end with their next bytes.
                self._patience.stop.set()
                pool.shutdown(cancel_futures=True)
                verifying.shutdown(cancel_futures=True)
                for file in files:
                    file.partial.close()
                receipts.save(self._checkpoint, self._held)
                self._progress.end()
        if left := [name for name in missing if name not in self._held]:
            raise Trouble(
                f"{self._checkpoint}: stopped; {len(left)} files are missing, the first is {left[0]}",
                "what has come is kept: run the same command again",
            )
        save(self._checkpoint, self._manifest)
        return Fetched(len(missing), self._received)

    def _open(self, name: str) -> Partial:
        entry = self._manifest.files[name]
        try:
            return Partial(self._checkpoint, name, entry, self._segment)
        except OSError as error:
            raise Trouble(
                f"{place(self._checkpoint, name)}: {error.strerror}; {name} takes {entry.size} bytes",
                "make room, then run the same command again",
            ) from error

    def _submit(self, pool: ThreadPoolExecutor, verifying: ThreadPoolExecutor, file: _File) -> None:
        if file.partial.version > RESTARTS_MAX:
            raise Trouble(
                f"{file.partial.name}: is another file with each answer, by its ETag, {RESTARTS_MAX} times",
                "the source is being changed, or there are several behind one address: try again, or another source",
            )
        ranges = file.partial.missing()
        file.streams = max(len(ranges), 1)
        if not ranges:
            self._running[verifying.submit(self._finish, file)] = file
        for first, end in ranges:
            self._running[pool.submit(self._stream, file, first, end)] = file

    def _stream(self, file: _File, first: int, end: int) -> None:
        try:
            name = file.partial.name
            fetch_range(self._remote, self._path_of(name), file.partial, first, end, self._patience, self._count)
        except Stale:
            # All streams of the file end, and it is begun anew.
            return

    def _count(self, size: int) -> None:
        with self._lock:
            self._received += size
        self._progress.add(size)

    def _finish(self, file: _File) -> None:
        """The digest decides; only then does the file get its name."""
        partial = file.partial
        found = partial.sha256()
        if found != partial.entry.sha256:
            if file.wrong:
                raise Trouble(
                    f"{partial.name}: has SHA-256 {found} after a second transfer, expected {partial.entry.sha256}",
                    "the source has another file than the manifest means: another revision, or a broken copy",
                )
            file.wrong = found
            self._count(-partial.restart(partial.version))
            return
        status = partial.finish(self._checkpoint / partial.name)
        sync_directory((self._checkpoint / partial.name).parent)
        with self._lock:
            self._held[partial.name] = receipts.from_stat(status, partial.entry.sha256)
            receipts.save(self._checkpoint, self._held)

    def _ended(self, future: Future[None], pool: ThreadPoolExecutor, verifying: ThreadPoolExecutor) -> None:
        file = self._running.pop(future)
        file.streams -= 1
        try:
            future.result()
        except Stopped:
            return
        except OSError as error:
            raise Trouble(f"{file.partial.path}: {error.strerror or error}") from error
        if file.partial.name in self._held:
            return
        if file.streams == 0:
            self._submit(pool, verifying, file)
        else:
            # What it finds is the digest's, and an error of the disk comes again when the file is finished.
            verifying.submit(file.partial.hash_ahead)
