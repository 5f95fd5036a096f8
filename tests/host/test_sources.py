"""Fingerprints of what a rank would run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparkd.host.sources import ABSENT, SourceFiles, registry


def told(library: Path, config: Path) -> dict[str, str]:
    async def look() -> dict[str, str]:
        door = SourceFiles(registry(library, config))
        try:
            return await door.observe()
        finally:
            door.close()

    return asyncio.run(look())


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in {"rank": "run\n", "runtime/launch.py": "a = 1\n", "runtime/probe/engine.py": "b = 2\n"}.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "lib"


def test_what_is_not_there_is_absent(library: Path, tmp_path: Path) -> None:
    seen = told(library, tmp_path)
    absent = {key for key, value in seen.items() if value == ABSENT}
    assert absent == {"adapter.code", "engine.lock", "checkpoint.manifest"}


def test_what_differs_has_another_fingerprint_and_nothing_else_has(library: Path, tmp_path: Path) -> None:
    before = told(library, tmp_path)
    assert told(library, tmp_path) == before
    (library / "runtime/__pycache__").mkdir()
    (library / "runtime/__pycache__/launch.cpython-312.pyc").write_bytes(b"\0")
    assert told(library, tmp_path) == before, "what Python keeps beside the code is not the code"
    (library / "runtime/probe/engine.py").write_text("b = 3\n")
    (tmp_path / "engine.lock").write_text("x = 1\n")
    after = told(library, tmp_path)
    assert {key for key in after if after[key] != before[key]} == {"rank.code", "engine.lock"}


def test_a_file_that_moved_is_a_difference(library: Path, tmp_path: Path) -> None:
    before = told(library, tmp_path)
    (library / "runtime/launch.py").rename(library / "runtime/link.py")
    assert told(library, tmp_path)["rank.code"] != before["rank.code"]


def test_what_cannot_be_read_says_why(library: Path, tmp_path: Path) -> None:
    (library / "rank").unlink()
    (library / "rank").symlink_to("rank")
    assert told(library, tmp_path)["rank.launcher"].startswith("unreadable (")
