"""`sparkd-engine model`: a copy is fetched, verified, packed, shown and pruned, as an operator does it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint.partial import place
from runtime.durable import alone
from runtime.manage.main import main
from tests.runtime.checkpoint import made
from tests.runtime.checkpoint.hub import COMMIT, REPOSITORY, running
from tests.runtime.checkpoint.made import digests

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy whose manifest was made of what is there."""
    directory = made.checkpoint(tmp_path / "copy")
    assert command("verify", directory, "--record", "--repository", REPOSITORY, "--revision", COMMIT) == 0
    capsys.readouterr()
    return directory


def command(name: str, *arguments: object) -> int:
    """The exit status of a subcommand of `model`."""
    quiet: Sequence[str] = () if name == "status" else ("--quiet",)
    return main(["model", name, *map(str, arguments), *quiet])


def flip(path: Path, at: int) -> None:
    """Change one byte, and leave size and times as they are."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_copy_comes_from_a_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin = made.checkpoint(tmp_path / "origin")
    with running(origin) as hub:
        where = ("--from", hub.url, "--repository", REPOSITORY, "--revision", COMMIT)
        assert command("fetch", tmp_path / "copy", *where) == 0

    assert "whole and verified" in capsys.readouterr().out
    assert command("status", tmp_path / "copy", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["whole"], found["revision"], found["missing"]) == (True, COMMIT, [])
    names = manifests.load(tmp_path / "copy").files
    assert digests(tmp_path / "copy", names) == digests(origin, names)


def test_where_it_comes_from_has_to_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("fetch", tmp_path / "copy", "--from", "http://127.0.0.1:9") == 1
    assert "--repository and --revision: not given" in capsys.readouterr().err


def test_a_dead_network_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--from", "http://127.0.0.1:9", "--repository", REPOSITORY, "--revision", COMMIT)
    assert command("fetch", tmp_path / "copy", *where) == 1
    assert "http://127.0.0.1:9/api/models/maker/model/revision" in (said := capsys.readouterr().err)
    assert "Connection refused" in said


def test_the_file_that_is_wrong_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (copy / SHARD).open("ab") as file:
        file.write(b"x")
    (copy / "config.json").unlink()

    assert command("verify", copy) == 3
    said = capsys.readouterr().err
    assert f"{SHARD}: {(copy / SHARD).stat().st_size} bytes; expected" in said
    assert "config.json: missing; expected a file" in said
    assert command("status", copy) == 3
    assert "of the wrong size: model-00002" in capsys.readouterr().out


def test_what_did_not_change_is_not_read_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("verify", copy) == 0
    assert "0.0 MiB were read, 6 files had a receipt" in capsys.readouterr().out
    # Below the file system: nothing of what a receipt holds has changed.
    flip(copy / SHARD, 5000)
    assert command("verify", copy) == 0
    assert command("verify", copy, "--all") == 3
    assert f"{SHARD}: SHA-256 " in capsys.readouterr().err
    assert command("verify", copy) == 3


def test_rows_are_packed_for_a_rank_and_verified(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("pack", copy, "--world", 3, "--rank", 1) == 0
    assert "2 files of rows written, 0 were there" in capsys.readouterr().out
    assert command("pack", copy, "--world", 3, "--all-ranks") == 0
    assert "4 files of rows written, 2 were there" in capsys.readouterr().out
    assert command("verify", copy) == 0

    flip(copy / "engram/engram-layer14-rank1-of-3.rows", 9000)
    capsys.readouterr()
    assert command("verify", copy, "--all") == 3
    assert re.search(r"engram/engram-layer14-rank1-of-3\.rows: rows \d+ to \d+ are damaged", capsys.readouterr().err)


def test_nothing_is_packed_from_a_corrupt_shard(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (copy / SHARD).open("r+b") as file:
        file.seek(5000)
        file.write(b"not this")
    assert command("pack", copy, "--world", 2, "--rank", 0) == 1
    assert f"{copy}: {SHARD}: SHA-256 " in capsys.readouterr().err
    assert not (copy / "engram").exists()


@pytest.mark.parametrize("ranks", [["--rank", "3"], ["--rank", "-1"], []])
def test_a_rank_that_cannot_be_is_refused(ranks: list[str], copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("pack", copy, "--world", 3, *ranks) == 1
    assert "--rank: expected 0 to 2, or --all-ranks" in capsys.readouterr().err


def test_only_what_is_of_no_use_is_pruned(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for world in (2, 3):
        assert command("pack", copy, "--world", world, "--rank", 0) == 0
    stale, wanted = place(copy, "gone.safetensors"), place(copy, SHARD)
    stale.parent.mkdir(exist_ok=True)
    stale.write_bytes(bytes(8192))
    wanted.write_bytes(bytes(8192))
    (copy / SHARD).unlink()
    (copy / "notes.txt").write_text("mine")

    assert command("prune", copy) == 0
    assert stale.exists()
    assert command("prune", copy, "--yes") == 0
    assert (stale.exists(), wanted.exists(), (copy / "notes.txt").exists()) == (False, True, True)
    assert command("prune", copy, "--others", "--packed", 3, "--yes") == 0
    assert not (copy / "notes.txt").exists()
    assert sorted(path.name for path in (copy / "engram").glob("*.rows")) == [
        "engram-layer1-rank0-of-3.rows", "engram-layer14-rank0-of-3.rows",
    ]  # fmt: skip
    assert (copy / "config.json").exists()
    capsys.readouterr()


def test_two_at_once_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alone(copy / ".sparkd"):
        assert command("verify", copy) == 1
    assert f"process {os.getpid()} is at work here" in capsys.readouterr().err


def test_a_directory_without_a_manifest_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("status", tmp_path) == 1
    assert "has no manifest" in (said := capsys.readouterr().err)
    assert "--record" in said


def test_a_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json"]) == 0
    assert [each["fits"] for each in json.loads(capsys.readouterr().out)] == [False, True, True]
    assert main(["plan", "--nodes", "2"]) == 3
    told = capsys.readouterr().out
    assert "GiB too much" in told
    # The tables fit nowhere in memory, and the profile alone does not keep them out of it.
    assert "adapters.engram_rows is off" in told
    assert main(["plan", "--nodes", "0"]) == 1
