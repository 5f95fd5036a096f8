"""What only a real directory can do; the rest is in tests/contract."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkd.core.model import Attempt, Intent
from sparkd.host import files
from sparkd.host.store import FileStore
from sparkd.ports import DoorError

INTENT = Intent(7, "up", "operator", "asked", 1.5)


def save(directory: Path, intent: Intent) -> None:
    store = FileStore(directory)
    try:
        asyncio.run(store.save_intent(intent))
    finally:
        store.close()


def test_the_file_is_readable_json_with_a_version(tmp_path: Path) -> None:
    save(tmp_path, INTENT)
    document = json.loads((tmp_path / "intent.json").read_text())
    assert document["version"] == 1
    assert document["intent"]["epoch"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["intent.json"]
    assert (tmp_path / "intent.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"version": 1}',
        b'{"version": "1", "intent": {}}',
        b'{"intent": {"epoch": 7}}',
        b'{"version": 1, "intent": {"epoch": "7"}}',
        b'{"version": 1, "intent": null}',
        b"\0" * 4096,
        b"[" * 60000,
    ],
)
def test_a_damaged_file_is_put_aside_and_counts_as_lost(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "intent.json").write_bytes(content)
    store = FileStore(tmp_path)
    assert store.load_intent() == Intent()
    (note,) = store.notes
    assert "intent.json was damaged" in note
    assert "intent.json.corrupt-1" in note
    assert "\n" not in note
    assert (tmp_path / "intent.json.corrupt-1").read_bytes() == content
    assert not (tmp_path / "intent.json").exists()
    assert store.load_intent() == Intent()
    assert len(store.notes) == 1


def test_every_damaged_file_is_kept(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for number in (1, 2, 3):
        (tmp_path / "attempt.json").write_text(f"damage {number}")
        assert store.load_attempt() is None
    assert [(tmp_path / f"attempt.json.corrupt-{n}").read_text() for n in (1, 2, 3)] == [
        "damage 1",
        "damage 2",
        "damage 3",
    ]
    assert len(store.notes) == 3


def test_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    text = '{"version": 2, "intent": {"epoch": 7}}'
    (tmp_path / "intent.json").write_text(text)
    with pytest.raises(DoorError, match=r"intent\.json is of version 2, written by a newer sparkd"):
        FileStore(tmp_path).load_intent()
    assert (tmp_path / "intent.json").read_text() == text


def test_a_file_that_cannot_be_read_is_not_taken_for_damage(tmp_path: Path) -> None:
    (tmp_path / "intent.json").mkdir()
    with pytest.raises(DoorError, match=r"intent\.json cannot be read: Is a directory"):
        FileStore(tmp_path).load_intent()


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(DoorError, match=r"gone/intent\.json cannot be saved: No such file or directory"):
        save(tmp_path / "gone", INTENT)


def test_a_draft_left_by_a_crash_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".intent.json.new").write_text("half a fi")
    assert FileStore(tmp_path).load_intent() == Intent()
    save(tmp_path, INTENT)
    assert FileStore(tmp_path).load_intent() == INTENT


def test_a_draft_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / ".intent.json.new").symlink_to(victim)
    with pytest.raises(DoorError, match="cannot be saved"):
        save(tmp_path, INTENT)
    assert victim.read_text() == "untouched"


def test_a_daemon_killed_while_it_saves_leaves_a_whole_file(tmp_path: Path) -> None:
    program = f"""
import asyncio
from pathlib import Path
from sparkd.core.model import Attempt, Intent
from sparkd.host.store import FileStore
async def main():
    store = FileStore(Path({str(tmp_path)!r}))
    epoch = 0
    while True:
        epoch += 1
        await store.save_intent(Intent(epoch, reason="r" * 20000))
        print(epoch, flush=True)
asyncio.run(main())
"""
    for delay in (0.0, 0.003, 0.007):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            time.sleep(delay)
            os.kill(daemon.pid, signal.SIGKILL)
            last = int((["1", *daemon.stdout.read().split()])[-1])
        store = FileStore(tmp_path)
        found = store.load_intent()
        assert found.epoch in {last, last + 1}
        assert found.reason == "r" * 20000
        assert store.notes == ()


def test_saves_come_to_the_disk_in_order(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def body() -> None:
        await asyncio.gather(*(store.save_attempt(Attempt(epoch, "b", 0.0)) for epoch in range(20)))

    asyncio.run(body())
    store.close()
    found = FileStore(tmp_path).load_attempt()
    assert found is not None
    assert found.epoch == 19


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("before", [INTENT, None])
def test_what_was_told_as_not_saved_is_not_there_for_the_next_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Intent | None, loaded: bool
) -> None:
    """1. A disk is slow, and a start is refused because it could not be saved in time. 2. The disk is done with it all
    the same. 3. sparkd is restarted, and must not bring up a ring that nobody has been promised."""
    if before is not None:
        save(tmp_path, before)
    store = FileStore(tmp_path, deadline=0.05)
    if loaded:
        assert store.load_intent() == (before or Intent())
    writes: list[Path] = []
    may_go_on = threading.Event()

    def slowly(path: Path, content: bytes, mode: int) -> None:
        files.replace(path, content, mode)
        writes.append(path)
        may_go_on.wait()

    monkeypatch.setattr("sparkd.host.store.replace", slowly)

    async def body() -> None:
        with pytest.raises(DoorError, match="did not answer within"):
            await store.save_intent(Intent(8, "up", "operator", "start asked for", 2.5))
        with pytest.raises(DoorError, match="has not answered for"):
            await store.save_intent(Intent(8, "down", "operator", "stop asked for", 3.5))
        while not writes:
            await asyncio.sleep(0.005)
        assert "start asked for" in writes[0].read_text()
        may_go_on.set()

    asyncio.run(body())
    store.close()
    assert FileStore(tmp_path).load_intent() == (before or Intent())


def test_what_is_saved_after_a_late_save_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, INTENT)
    store = FileStore(tmp_path, deadline=0.5)
    down = Intent(8, "down", "operator", "stop asked for", 3.5)
    slow = [0.7]

    def slowly(path: Path, content: bytes, mode: int) -> None:
        time.sleep(slow.pop() if slow else 0.0)
        files.replace(path, content, mode)

    monkeypatch.setattr("sparkd.host.store.replace", slowly)

    async def body() -> None:
        with pytest.raises(DoorError):
            await store.save_intent(Intent(8, "up", "operator", "start asked for", 2.5))
        await asyncio.sleep(0.4)
        await store.save_intent(down)

    asyncio.run(body())
    store.close()
    assert FileStore(tmp_path).load_intent() == down
