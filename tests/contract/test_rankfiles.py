"""What FakeRankFiles and the run-time directory both do."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkd.config.resolved import Resolved, Setting
from sparkd.host.rankfiles import RunFiles
from sparkd.ports import DoorError, RankFiles
from tests.contract.manager import running
from tests.fakes import FakeRankFiles

ENVIRONMENT = {
    "SPARKD_EPOCH": "7",
    "SPARKD_RAILS": "enp1s0f0np0:10.77.0.1:1:10.77.0.2,enP2p1s0f0np0:10.77.1.1:1:10.77.1.2",
    "NCCL_PROTO": "^LL128",
    "NCCL_IB_HCA": "=rocep1s0f0,roceP2p1s0f0",
    "EMPTY": "",
}


@dataclass
class Bench:
    files: RankFiles
    read: Callable[[int], dict[str, str] | None]
    break_it: Callable[[], None]


def _read(path: Path) -> dict[str, str] | None:
    if not path.exists():
        return None
    return {key: value for key, _, value in (line.partition("=") for line in path.read_text().splitlines())}


@pytest.fixture(params=["fake", "real"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "fake":
        fake = FakeRankFiles()

        def break_fake() -> None:
            fake.broken = "rank files: Not a directory"

        yield Bench(fake, fake.files.get, break_fake)
    else:
        directory = tmp_path / "sparkd"
        directory.mkdir()
        real = RunFiles(directory)

        def break_real() -> None:
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
            directory.touch()

        yield Bench(real, lambda epoch: _read(directory / f"rank-{epoch}.env"), break_real)
        real.close()


def do(step: Coroutine[Any, Any, None]) -> None:
    asyncio.run(step)


def test_a_file_carries_the_environment_unchanged(bench: Bench) -> None:
    do(bench.files.write(7, ENVIRONMENT))
    assert bench.read(7) == ENVIRONMENT
    assert bench.read(8) is None


def test_a_second_write_replaces_the_first(bench: Bench) -> None:
    do(bench.files.write(7, ENVIRONMENT))
    do(bench.files.write(7, {"SPARKD_EPOCH": "7"}))
    assert bench.read(7) == {"SPARKD_EPOCH": "7"}


def test_each_epoch_has_its_own_and_removing_is_done_once_or_twice(bench: Bench) -> None:
    do(bench.files.write(7, ENVIRONMENT))
    do(bench.files.write(8, {"SPARKD_EPOCH": "8"}))
    do(bench.files.remove(7))
    do(bench.files.remove(7))
    assert bench.read(7) is None
    assert bench.read(8) == {"SPARKD_EPOCH": "8"}


@pytest.mark.parametrize(
    "value", ["two words", "a\nB=1", "tab\tbed", '"quoted"', "it's", "back\\slash", "naïve", "\0", "a\rb", "\x7f"]
)
def test_a_value_that_systemd_would_read_differently_is_refused(bench: Bench, value: str) -> None:
    with pytest.raises(ValueError, match=r"^NCCL_DEBUG: "):
        do(bench.files.write(7, {"SPARKD_EPOCH": "7", "NCCL_DEBUG": value}))
    assert bench.read(7) is None


@pytest.mark.parametrize("key", ["", "lower", "1ST", "A B", "A=B", "A\nB", "#A"])
def test_a_key_that_is_no_variable_is_refused(bench: Bench, key: str) -> None:
    with pytest.raises(ValueError, match="name of an environment variable"):
        do(bench.files.write(7, {key: "1"}))
    assert bench.read(7) is None


def test_a_directory_that_cannot_be_written_is_told(bench: Bench) -> None:
    bench.break_it()
    with pytest.raises(DoorError, match=r"^rank files: .*Not a directory"):
        do(bench.files.write(7, ENVIRONMENT))


ENGINE = "SPARKD_ENGINE_CONFIG"


@pytest.mark.parametrize("value", ["it's", "a\nb", "a\tb", "naïve", "\0", "\x7f"])
def test_what_cannot_be_between_single_quotes_is_refused(bench: Bench, value: str) -> None:
    with pytest.raises(ValueError, match=rf"^{ENGINE}: "):
        do(bench.files.write(7, {"SPARKD_EPOCH": "7", ENGINE: value}))
    assert bench.read(7) is None


def test_systemd_gives_a_rank_the_engines_configuration_unchanged(tmp_path: Path) -> None:
    """Every printable character, alone, doubled and between others, through JSON and the real parser."""
    printable = [chr(code) for code in range(32, 127)]
    odd = ["${HOME}", "$$", "%n", "\\n", "\\\\", '\\"', "a # b", " ; x", "'it''s'", "ü€𝄞", "`id`", "x" * 5000]
    told = [*printable, *(f"{character}{character} {character}" for character in printable), *odd]
    resolved = Resolved("p", "f", "", "1", (), (Setting("arguments", "x", tuple(told), "f"),))
    config = resolved.config("/p", "1")
    files = RunFiles(tmp_path)
    do(files.write(7, {"SPARKD_EPOCH": "7", ENGINE: config, "NCCL_PROTO": "^LL128"}))
    files.close()
    with running() as manager:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(manager.where)}
        unit = ["systemd-run", "--user", "--wait", "--pipe", "--quiet"]
        command = [*unit, "--property", f"EnvironmentFile={tmp_path}/rank-7.env", "printenv", "--null"]
        given = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode()
    seen = dict(line.split("=", 1) for line in given.split("\0") if line)
    assert seen[ENGINE] == config
    assert json.loads(seen[ENGINE])["arguments"] == ["--x", *told]
    assert (seen["SPARKD_EPOCH"], seen["NCCL_PROTO"]) == ("7", "^LL128")
