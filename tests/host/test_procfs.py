from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sparkd.core.facts import HostFacts, PortBytes
from sparkd.host.processes import RankProcesses
from sparkd.host.procfs import ProcHost
from sparkd.ports import DoorError


def observe(root: Path) -> HostFacts:
    host = ProcHost(root, processes=RankProcesses(root.parent / "nothing"))
    try:
        return asyncio.run(host.observe())
    finally:
        host.close()


def make(root: Path, meminfo: str, boot_id: str = "b00t\n") -> None:
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text(boot_id)
    (root / "sys/kernel/osrelease").write_text("6.17.0-1031-nvidia\n")
    (root / "meminfo").write_text(meminfo)


def test_this_machine_agrees_with_other_tools() -> None:
    facts = observe(Path("/proc"))
    assert facts.kernel == os.uname().release
    assert facts.memory_total_kib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    assert 0 < facts.memory_available_kib < facts.memory_total_kib
    shown = subprocess.run(["sysctl", "-n", "kernel.random.boot_id"], capture_output=True, text=True, check=True).stdout
    assert len(facts.boot_id) == 36
    assert shown.strip() == facts.boot_id


def test_fields_of_meminfo(tmp_path: Path) -> None:
    make(
        tmp_path, "MemTotal:  125829120 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nHugePages_Total:       0\nOdd:\n"
    )
    assert observe(tmp_path) == HostFacts("b00t", 125829120, 4194304, "6.17.0-1031-nvidia")


@pytest.mark.parametrize(
    ("meminfo", "boot_id", "complaint"),
    [
        ("MemTotal: 5 kB\n", "b00t\n", "meminfo has no MemAvailable"),
        ("", "b00t\n", "meminfo has no MemAvailable and no MemTotal"),
        ("MemTotal: 5 kB\nMemAvailable: 4 kB\n", "\n", "boot_id is empty"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, meminfo: str, boot_id: str, complaint: str) -> None:
    make(tmp_path, meminfo, boot_id)
    with pytest.raises(DoorError, match=complaint):
        observe(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DoorError, match=r"^/proc: .*/meminfo: No such file or directory$"):
        observe(tmp_path)


DEV = """\
Inter-|   Receive                   |  Transmit
 face |bytes    packets errs drop   |bytes    packets errs
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
enp1s0f0np0:18446744073709551615 1 0 0 0 0 0 0 42 1 0 0 0 0 0 0
enP7s7:     1       1    0    0    0     0          0         0        2       1    0    0    0     0       0          0
enp1s0f1np1: 5
"""


def test_bytes_of_the_fabric_ports_and_of_no_other(tmp_path: Path) -> None:
    make(tmp_path, "MemTotal:       125829120 kB\nMemAvailable:    4194304 kB\n")
    assert observe(tmp_path).traffic == ()
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(DEV)
    assert observe(tmp_path).traffic == (PortBytes("enp1s0f0np0", 2**64 - 1, 42),)
