"""What FakeStore and the state directory both do."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sparkd.core.model import Attempt, Death, Intent
from sparkd.host.store import FileStore
from sparkd.ports import DoorError, Store
from tests.contract.namespace import MOUNTS, inside
from tests.fakes import FakeDisk, FakeStore

DEATH = Death(6, 1, "spark2", 1_700_000_000.25, True, False, "SIGKILL", "rank 1 was killed: naïve “quotes”\n")
INTENT = Intent(7, "up", "operator", "asked", 1_700_000_001.5, held=True, blind=True, deaths=(DEATH,))
ATTEMPT = Attempt(7, "boot", 1_700_000_002.5, True, True, "superseded", 1_700_000_003.5, "exit 70", "a member was lost")


@dataclass
class Disk:
    """`open` makes a new daemon's store on the same disk."""

    open: Callable[[], Store]
    lose: Callable[[], None]
    fill: Callable[[], None]


Body = Callable[[Disk], None]
Run = Callable[[Body], None]


def _fake(body: Body) -> None:
    disk = FakeDisk()

    def fill() -> None:
        disk.full = True

    body(Disk(lambda: FakeStore(disk), disk.lose, fill))


def _real(body: Body, mount: Path) -> None:
    """On a file system of 64 KiB, mounted for the thread that this runs in."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], check=True)
    directory = mount / "state"
    directory.mkdir()
    opened: list[FileStore] = []

    def open_() -> FileStore:
        opened.append(FileStore(directory))
        return opened[-1]

    def lose() -> None:
        shutil.rmtree(directory)
        directory.mkdir()

    def fill() -> None:
        done = subprocess.run(["dd", "if=/dev/zero", f"of={mount}/checkpoint"], capture_output=True, check=False)
        assert b"No space left on device" in done.stderr

    body(Disk(open_, lose, fill))
    for store in opened:
        store.close()


@pytest.fixture(params=["fake", "real"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return _fake if request.param == "fake" else lambda body: inside(lambda: _real(body, tmp_path), MOUNTS)


def save(*saves: Coroutine[Any, Any, None]) -> None:
    async def all_of_them() -> None:
        for one in saves:
            await one

    asyncio.run(all_of_them())


def test_a_new_disk_knows_nothing(run: Run) -> None:
    def body(disk: Disk) -> None:
        assert disk.open().load_intent() == Intent()
        assert disk.open().load_attempt() is None

    run(body)


def test_what_was_saved_is_there_for_the_next_daemon(run: Run) -> None:
    def body(disk: Disk) -> None:
        store = disk.open()
        save(store.save_intent(INTENT), store.save_attempt(ATTEMPT))
        assert disk.open().load_intent() == INTENT
        assert disk.open().load_attempt() == ATTEMPT

    run(body)


def test_the_last_save_counts(run: Run) -> None:
    def body(disk: Disk) -> None:
        store = disk.open()
        later = replace(INTENT, epoch=8, want="down")
        save(store.save_intent(INTENT), store.save_attempt(ATTEMPT), store.save_intent(later))
        assert disk.open().load_intent() == later
        assert disk.open().load_attempt() == ATTEMPT

    run(body)


def test_a_lost_disk_is_a_new_disk(run: Run) -> None:
    def body(disk: Disk) -> None:
        store = disk.open()
        save(store.save_intent(INTENT), store.save_attempt(ATTEMPT))
        disk.lose()
        assert disk.open().load_intent() == Intent()
        assert disk.open().load_attempt() is None
        save(store.save_intent(INTENT))
        assert disk.open().load_intent() == INTENT

    run(body)


def test_a_full_disk_refuses_and_keeps_what_it_has(run: Run) -> None:
    def body(disk: Disk) -> None:
        store = disk.open()
        save(store.save_intent(INTENT))
        disk.fill()
        with pytest.raises(DoorError, match=r"intent\.json cannot be saved: No space left on device"):
            save(store.save_intent(replace(INTENT, epoch=8)))
        with pytest.raises(DoorError, match=r"attempt\.json cannot be saved: No space left on device"):
            save(store.save_attempt(ATTEMPT))
        assert disk.open().load_intent() == INTENT
        assert disk.open().load_attempt() is None

    run(body)
