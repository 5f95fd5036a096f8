"""The incidents on disk: kept, listed, limited, and never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparkd.core.incidents import Incident
from sparkd.host.archive import FILE_LIMIT, FileArchive
from sparkd.ports import DoorError
from tests.reconcile.running import in_loop


def incident(epoch: int, complete: bool = False) -> Incident:
    return Incident(epoch, 1.0, "spark2", 1, "1:signal:9", "it was killed", "spark1", "stopped", complete=complete)


@in_loop
async def test_what_was_kept_is_there_also_for_the_next_daemon(tmp_path: Path) -> None:
    first = FileArchive(tmp_path / "incidents", 30, 64)
    assert await first.kept() == ()
    await first.keep(incident(7), {"processes.txt": "process 12\n"})
    await first.keep(incident(7, complete=True), {"journal.txt": "a line\n"})
    await first.keep(incident(9), {})
    first.close()
    second = FileArchive(tmp_path / "incidents", 30, 64)
    assert await second.kept() == (incident(9), incident(7, complete=True))
    assert await second.files(7) == {"journal.txt": "a line\n", "processes.txt": "process 12\n"}
    assert await second.files(8) == {}
    second.close()
    assert (tmp_path / "incidents/7/journal.txt").stat().st_mode & 0o777 == 0o640


@in_loop
async def test_what_is_too_old_or_too_much_goes_the_oldest_first(tmp_path: Path) -> None:
    archive = FileArchive(tmp_path, 30, 64 / 1024)
    await archive.keep(incident(1), {})
    os.utime(tmp_path / "1", (0, time.time() - 31 * 86400))
    for epoch in (2, 3, 4):
        await archive.keep(incident(epoch), {"journal.txt": "x" * 30_000})
    assert [kept.epoch for kept in await archive.kept()] == [4, 3]
    await archive.keep(incident(5), {"journal.txt": "x" * 60_000, "kernel.txt": "y" * 60_000})
    assert [kept.epoch for kept in await archive.kept()] == [5], "the newest stays whatever its size"
    archive.close()


@in_loop
async def test_a_long_file_loses_its_middle(tmp_path: Path) -> None:
    archive = FileArchive(tmp_path, 30, 64)
    await archive.keep(incident(1), {"journal.txt": "first " + "x" * 2 * FILE_LIMIT + " last"})
    text = (await archive.files(1))["journal.txt"]
    archive.close()
    assert text.startswith("first ") and text.endswith(" last")
    assert "bytes left out" in text
    assert len(text) < FILE_LIMIT + 100


@in_loop
async def test_an_interrupted_or_foreign_directory_hides_no_other(tmp_path: Path) -> None:
    archive = FileArchive(tmp_path, 30, 64)
    await archive.keep(incident(3), {})
    (tmp_path / "4").mkdir()
    (tmp_path / "5").mkdir()
    (tmp_path / "5/incident.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes").mkdir()
    assert [kept.epoch for kept in await archive.kept()] == [3]
    archive.close()


@in_loop
async def test_a_disk_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "incidents").write_text("a file in the way", encoding="utf-8")
    archive = FileArchive(tmp_path / "incidents", 30, 64)
    with pytest.raises(DoorError, match="incidents/7 cannot be written: "):
        await archive.keep(incident(7), {})
    archive.close()
