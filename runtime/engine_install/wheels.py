"""The wheels of a lock, downloaded into a cache by pip; each is there whole and verified, or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from runtime.durable import require_room, sync_directory
from runtime.engine_install.lock import Lock, Wheel
from runtime.engine_install.pip import Pip
from runtime.hashing import sha256_of, sha256_of_all
from runtime.progress import Progress
from runtime.trouble import Trouble

BATCH = 12
BATCH_BYTES = 64 << 20
"""One start of pip brings so many wheels, or so much: what is killed is lost of one batch."""
DOWNLOADS = 3
UNPACKED = 2.5
"""Bytes on disk for a byte of wheels, roughly, before their directories can be read."""


def bring(lock: Lock, cache: Path, pip: Pip, *, offline: Path | None = None, quiet: bool = True) -> None:
    """All wheels into the cache, by name of their files. `offline` is a directory that has them.

    Raises Trouble; what has come stays.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob(".batch-*"):
        shutil.rmtree(left)
    missing = _missing(lock, cache, quiet=quiet)
    needed = sum(wheel.size for wheel in missing)
    require_room(cache, round(needed + (UNPACKED * lock.size)), f"installing {lock.version}")
    progress = Progress("wheels", lock.size, quiet=quiet)
    progress.add(lock.size - needed, moved=False)
    if offline is not None:
        for wheel in missing:
            _copy(wheel, offline, cache)
            progress.add(wheel.size)
    elif missing:
        _download(missing, cache, pip, progress)
    progress.end()


def unpacked_size(lock: Lock, cache: Path) -> int:
    """Bytes of all files in the wheels. Raises Trouble for one that cannot be read."""
    total = 0
    for wheel in lock.wheels:
        try:
            with zipfile.ZipFile(cache / wheel.file) as archive:
                total += sum(each.file_size for each in archive.infolist())
        except (OSError, zipfile.BadZipFile) as error:
            raise Trouble(f"{cache / wheel.file}: {error}", "remove it, and install again") from error
    return total


def _missing(lock: Lock, cache: Path, *, quiet: bool) -> list[Wheel]:
    """Wheels that are not in the cache; what is there under their names and is something else is removed."""
    there = {wheel.file: cache / wheel.file for wheel in lock.wheels if (cache / wheel.file).is_file()}
    wheels = {wheel.file: wheel for wheel in lock.wheels}
    progress = Progress("cache", sum(path.stat().st_size for path in there.values()), quiet=quiet)
    sound = set()
    for file, found in sha256_of_all(there, progress.add, keep_cached=True):
        if isinstance(found, OSError):
            raise Trouble(f"{cache / file}: {found.strerror or found}")
        if found.sha256 == wheels[file].sha256:
            sound.add(file)
        else:
            (cache / file).unlink()
    progress.end()
    return [wheel for wheel in lock.wheels if wheel.file not in sound]


def _copy(wheel: Wheel, offline: Path, cache: Path) -> None:
    source = offline / wheel.file
    if not source.is_file():
        raise Trouble(f"{source}: is not there", "--wheels: a directory with every file of the lock")
    found = sha256_of(source, lambda _: None, keep_cached=True)
    if found.sha256 != wheel.sha256:
        raise Trouble(
            f"{source}: has {found.status.st_size} bytes with SHA-256 {found.sha256}, expected {wheel.size} with "
            f"{wheel.sha256}",
            "it is damaged, or another file; nothing of it was installed",
        )
    temporary = cache / f".{wheel.file}.new"
    shutil.copyfile(source, temporary)
    temporary.replace(cache / wheel.file)


def _download(missing: list[Wheel], cache: Path, pip: Pip, progress: Progress) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(DOWNLOADS, thread_name_prefix="pip") as pool:
        running = [pool.submit(_batch, some, cache, pip, progress, stop) for some in _batches(missing)]
        try:
            ended, unfinished = wait(running, return_when=FIRST_EXCEPTION)
            failed = [error for done in ended if (error := done.exception()) is not None]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            pip.end()
    if failed:
        raise failed[0]
    if unfinished:
        raise Trouble("downloading was stopped")


def _batch(wheels: list[Wheel], cache: Path, pip: Pip, progress: Progress, stop: threading.Event) -> None:
    if stop.is_set():
        return
    with tempfile.TemporaryDirectory(prefix=".batch-", dir=cache) as name:
        place = Path(name)
        (place / "requirements.txt").write_text("".join(f"{wheel.requirement}\n" for wheel in wheels), encoding="ascii")
        pip.run(
            ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--retries", "3",
             "--timeout", "30", "--no-cache-dir", "--dest", name, "--requirement", str(place / "requirements.txt")],
            _named(wheels),
        )  # fmt: skip
        for wheel in wheels:
            path = place / wheel.file
            if not path.is_file():
                there = ", ".join(sorted(each.name for each in place.glob("*.whl")))
                raise Trouble(f"{wheel.file}: pip brought {there or 'nothing'} instead")
            found = sha256_of(path, lambda _: None, keep_cached=True)
            if found.sha256 != wheel.sha256:
                raise Trouble(f"{wheel.file}: SHA-256 {found.sha256}, expected {wheel.sha256}")
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.replace(cache / wheel.file)
            progress.add(wheel.size)
    sync_directory(cache)


def _batches(wheels: Iterable[Wheel]) -> Iterator[list[Wheel]]:
    """Small ones together, first; a large one alone."""
    some: list[Wheel] = []
    for wheel in sorted(wheels, key=lambda each: each.size):
        if some and (len(some) == BATCH or sum(each.size for each in some) + wheel.size > BATCH_BYTES):
            yield some
            some = []
        some.append(wheel)
    if some:
        yield some


def _named(wheels: list[Wheel]) -> str:
    names = [wheel.file for wheel in wheels]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
