"""Processes of rank units, and the memory that is available: on trees made by hand, and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkd.core.facts import Process
from sparkd.host.processes import RankProcesses
from sparkd.host.procfs import AvailableMemory

SLICE = r"system.slice/system-sparkd\x2drank.slice"


def group(root: Path, unit: str, *pids: int, hierarchy: str = "", below: str = "") -> None:
    place = root / "sys/fs/cgroup" / hierarchy / SLICE / unit / below
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def process(root: Path, pid: int, command: str = "python3 -m x", state: str = "S (sleeping)", uid: int = 990) -> None:
    place = root / "proc" / str(pid)
    place.mkdir(parents=True)
    (place / "status").write_text(f"Name:\tx\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (place / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("sparkd-rank:x:990:990::/var/cache/sparkd-rank:/usr/sbin/nologin\n")
    return tmp_path


def test_without_a_unit_there_are_none(root: Path) -> None:
    assert RankProcesses(root).read() == ()


@pytest.mark.parametrize("hierarchy", ["", "systemd", "unified"])
def test_processes_are_named_with_their_user_and_unit(root: Path, hierarchy: str) -> None:
    group(root, "sparkd-rank@7.service", 812, hierarchy=hierarchy)
    group(root, "sparkd-rank@7.service", 813, hierarchy=hierarchy, below="engine")
    group(root, "somebody-else.service", 900, hierarchy=hierarchy)
    for pid in (812, 900):
        process(root, pid)
    process(root, 813, uid=1234)
    unit = "sparkd-rank@7.service"
    assert RankProcesses(root).read() == (
        Process(812, "sparkd-rank", "python3 -m x", unit),
        Process(813, "uid 1234", "python3 -m x", unit),
    )


def test_a_process_may_call_itself_anything(root: Path) -> None:
    """The kernel keeps fifteen bytes of a name, and cuts a letter of several in two."""
    group(root, "sparkd-rank@7.service", 812, 813, 814)
    process(root, 812, command="x\x1b[2J\ny")
    for pid, name in ((813, b"sglang::planifi\xc3"), (814, b"a\x1b[31m\r\xffb")):
        process(root, pid, command="")
        (root / f"proc/{pid}/cmdline").write_bytes(b"")
        (root / f"proc/{pid}/status").write_bytes(
            b"Name:\t" + name + b"\nState:\tS (sleeping)\nUid:\t990\t990\t990\t990\n"
        )
    (root / "etc/passwd").write_bytes(
        b"jose:x:1000:1000:Jos\xe9:/home/jose:/bin/sh\n" + (root / "etc/passwd").read_bytes()
    )
    found = {each.pid: each for each in RankProcesses(root).read()}
    assert found[812].command == "x [2J y"
    assert found[813].command == "sglang::planifi\N{REPLACEMENT CHARACTER}"
    assert found[814].command == "a [31m \N{REPLACEMENT CHARACTER}b"
    assert {each.user for each in found.values()} == {"sparkd-rank"}


def test_who_has_ended_meanwhile_and_zombies_are_none(root: Path) -> None:
    group(root, "sparkd-rank@7.service", 812, 813)
    process(root, 813, state="Z (zombie)")
    assert RankProcesses(root).read() == ()


def test_all_of_one_epoch_are_killed_and_nobody_else(root: Path) -> None:
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
    try:
        group(root, "sparkd-rank@7.service", sleepers[0].pid)
        group(root, "sparkd-rank@7.service", sleepers[1].pid, below="engine")
        group(root, "sparkd-rank@8.service", sleepers[2].pid)
        assert RankProcesses(root).kill(7) == ""
        assert [sleeper.wait(10) for sleeper in sleepers[:2]] == [-9, -9]
        assert sleepers[2].poll() is None
        assert RankProcesses(root).kill(7) == "", "they are gone already"
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_available_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    assert 0 < AvailableMemory()() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    (tmp_path / "meminfo").write_text("MemTotal:   127598748 kB\nMemFree:  1 kB\nMemAvailable:    4194304 kB\n")
    assert AvailableMemory(tmp_path)() == 4194304
    (tmp_path / "meminfo").write_text("MemTotal:   127598748 kB\n")
    with pytest.raises(ValueError, match="no MemAvailable"):
        AvailableMemory(tmp_path)()
