"""What is read of a rank that failed: from a journal that may be slow, and from processes that may go meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sparkd.host import sockets
from sparkd.host.witness import SystemWitness
from tests.reconcile.running import in_loop


def journalctl(folder: Path, script: str) -> str:
    file = folder / "journalctl"
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def proc(folder: Path) -> Path:
    (folder / "proc/net").mkdir(parents=True)
    (folder / "proc/meminfo").write_text("MemAvailable: 12 kB\n", encoding="utf-8")
    return folder


@in_loop
async def test_the_past_is_the_journal_of_the_unit_since_its_start_the_kernel_and_the_memory(tmp_path: Path) -> None:
    script = """case "$*" in
        *--dmesg*) echo "kernel: oom";;
        *--priority*) echo "x[1]: not what was expected";;
        *) echo "x[1]: well: $*"; echo "x[1]: not what was expected"; echo "x[1]: ValueError";;
    esac"""
    command = journalctl(tmp_path, script)
    witness = SystemWitness(proc(tmp_path), command)
    files = await witness.past(7, 1000.5)
    witness.close()
    assert files["first.txt"] == "not what was expected"
    assert "--unit sparkd-rank@7.service --since=@999" in files["journal.txt"]
    assert files["kernel.txt"] == "kernel: oom\n"
    assert files["memory.txt"] == "MemAvailable: 12 kB\n"


@in_loop
async def test_what_cannot_be_had_is_told_and_hides_nothing_else(tmp_path: Path) -> None:
    witness = SystemWitness(proc(tmp_path), journalctl(tmp_path, "exit 1"))
    files = await witness.past(7, 0)
    witness.close()
    assert files["journal.txt"] == "cannot be had: journalctl has left with status 1\n"
    assert files["memory.txt"] == "MemAvailable: 12 kB\n"
    missing = SystemWitness(tmp_path, str(tmp_path / "nothing"))
    assert "No such file" in (await missing.past(7, 0))["journal.txt"]
    missing.close()


@in_loop
async def test_a_journal_that_hangs_costs_its_time_and_no_more(tmp_path: Path) -> None:
    began = time.monotonic()
    witness = SystemWitness(proc(tmp_path), journalctl(tmp_path, "echo first; exec >&-; exec sleep 60"))
    files = await witness.past(7, 0)
    witness.close()
    assert files["journal.txt"] == "cannot be had: journalctl has not ended within 3 s\n"
    assert time.monotonic() - began < 9


@in_loop
async def test_the_living_are_the_processes_in_the_units_group(tmp_path: Path) -> None:
    root = proc(tmp_path)
    for pid, unit in ((12, "sparkd-rank@7.service"), (13, "sparkd-rank@77.service"), (14, "ssh.service")):
        task = root / f"proc/{pid}/task/{pid}"
        task.mkdir(parents=True)
        (root / f"proc/{pid}/cgroup").write_text(f"0::/system.slice/{unit}\n", encoding="utf-8")
        (root / f"proc/{pid}/cmdline").write_text(f"python3\0rank{pid}\0", encoding="utf-8")
        status = f"Name:\tpython3\nState:\tT (stopped)\nUid:\t{900 + pid}\t0\t0\t0\nNonsense:\t1\n"
        (root / f"proc/{pid}/status").write_text(status, encoding="utf-8")
        (task / "comm").write_text("main\n", encoding="utf-8")
        (task / "stat").write_text(f"{pid} (a ) b) T 1 1", encoding="utf-8")
        (task / "wchan").write_text("do_signal_stop", encoding="utf-8")
    head = "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n"
    rows = [
        f"   {n}: 014DA8C0:4E20 024DA8C0:1F90 {state} 0000000A:00000001 00:00000000 00000000 {uid} 0 1\n"
        for n, (state, uid) in enumerate((("02", 912), ("01", 912), ("01", 0)))
    ]
    (root / "proc/net/tcp").write_text(head + "".join(rows), encoding="utf-8")
    witness = SystemWitness(root, "/bin/false")
    files = await witness.living(7)
    assert files["processes.txt"].splitlines() == [
        "process 12: python3 rank12",
        "  Name:\tpython3",
        "  State:\tT (stopped)",
        "  Uid:\t912\t0\t0\t0",
        "  thread 12 main: T in do_signal_stop",
    ]
    assert files["sockets.txt"].splitlines() == [
        "192.168.77.1:20000 192.168.77.2:8080 SYN-SENT to send 10 to read 1",
        "192.168.77.1:20000 192.168.77.2:8080 ESTABLISHED to send 10 to read 1",
    ]
    assert await witness.living(8) == {}
    witness.close()


def test_the_sockets_of_this_machine_are_understood() -> None:
    """The real files; there may be none of this user."""
    for line in sockets.owned(Path("/proc"), {str(os.getuid())}):
        ends = line.split()
        assert ends[0].rpartition(":")[2].isdecimal()
        assert "to send" in line and "to read" in line
    assert list(sockets.owned(Path("/proc"), set())) == []
