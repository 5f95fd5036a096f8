"""What /proc tells of processes: real ones, and files like the kernel's for what cannot be made here."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.exits import RankFailure
from runtime.sglang import stacks
from runtime.sglang.effective import Effective, read_environ
from runtime.sglang.memory import oom_kills
from runtime.sglang.processes import Process, bytes_read, descendants, executable, read_process, title
from runtime.sglang.standing import StandingStill

SLEEP = "import sys, time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[str]"]:
    environ = {"NCCL_NET": "IB", "EMPTY": "", "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, "-c", SLEEP], env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        while seen(process.pid).state != "S":
            time.sleep(0.01)
        yield process
        process.kill()


def seen(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


def test_a_process_is_below_its_parent_and_reads_as_what_it_is(sleeper: "subprocess.Popen[str]") -> None:
    process = seen(sleeper.pid)
    assert (process.parent, process.state) == (os.getpid(), "S")
    assert process in [p for p in descendants(os.getpid()) if p.pid == sleeper.pid]
    assert os.getpid() not in [p.pid for p in descendants(os.getpid())]
    assert executable(sleeper.pid) == os.path.realpath(sys.executable)
    assert "import sys, time" in title(sleeper.pid)
    assert bytes_read(sleeper.pid) > 10_000


def test_a_name_with_parentheses_is_no_riddle(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(["S", "1", *["0"] * 9, "250", "50", *["0"] * 6, "4242", "0"])
    (tmp_path / "7" / "stat").write_text(f"7 (a) S 9 (b) {fields}")
    assert read_process(7, tmp_path) == Process(7, 1, "S", "a) S 9 (b", 300 / os.sysconf("SC_CLK_TCK"), 4242)
    assert read_process(8, tmp_path) is None


def test_a_stopped_process_is_found_after_so_long_and_forgiven_when_it_goes_on(
    sleeper: "subprocess.Popen[str]",
) -> None:
    standing = StandingStill()
    sleeper.send_signal(signal.SIGSTOP)
    while seen(sleeper.pid).state != "T":
        time.sleep(0.01)
    for now in (100, 130, 159):
        standing.sample([seen(sleeper.pid)], serving=False, now=now)
    assert standing.longest(159, 60) is None
    found = standing.longest(160, 60)
    assert found is not None
    assert found.sentence(160).endswith(f"(pid {sleeper.pid}) is stopped (by a signal such as SIGSTOP) for 60 s")
    sleeper.send_signal(signal.SIGCONT)
    while seen(sleeper.pid).state == "T":
        time.sleep(0.01)
    standing.sample([seen(sleeper.pid)], serving=False, now=161)
    assert standing.longest(1000, 60) is None


@pytest.mark.parametrize(
    ("state", "name", "serving", "counts"),
    [
        ("D", "sglang::schedul", True, True),
        ("Z", "sglang::detoken", True, True),
        ("D", "sglang::schedul", False, False),
        ("Z", "nvcc", True, False),
        ("T", "python", False, True),
        ("S", "sglang::schedul", True, False),
        ("t", "sglang::schedul", True, False),
    ],
)
def test_which_states_count_of_whom(state: str, name: str, serving: bool, counts: bool) -> None:
    standing = StandingStill()
    for now in (0, 60):
        standing.sample([Process(7, 1, state, name, 1.0, 5)], serving, now)
    assert (standing.longest(60, 60) is not None) is counts


def test_a_process_that_hangs_in_the_kernel_and_then_works_has_moved() -> None:
    standing = StandingStill()
    for now in range(0, 120, 5):
        standing.sample([Process(7, 1, "D", "sglang::schedul", float(now), 5)], True, now)
    assert standing.longest(120, 10) is None


def test_the_effective_environment_is_compared_variable_by_variable(sleeper: "subprocess.Popen[str]") -> None:
    process = seen(sleeper.pid)
    good = Effective({"NCCL_NET": "IB", "EMPTY": ""})
    assert len(good.unchecked(sleeper.pid, [process])) == 1
    good.check(sleeper.pid, [process])
    assert good.unchecked(sleeper.pid, [process]) == []
    for asked, found in (({"NCCL_NET": "Socket"}, "got 'IB'"), ({"NCCL_DEBUG": "INFO"}, "got nothing")):
        with pytest.raises(RankFailure) as caught:
            Effective(asked).check(sleeper.pid, [process])
        assert caught.value.code == 75
        assert caught.value.sentence.startswith(f"{next(iter(asked))}: expected ")
        assert found in caught.value.sentence


def test_another_program_may_have_another_environment(sleeper: "subprocess.Popen[str]") -> None:
    with subprocess.Popen(["sleep", "60"], env={"OTHER": "1"}) as other:
        while executable(other.pid) == os.path.realpath(sys.executable):
            time.sleep(0.01)
        Effective({"NCCL_NET": "IB"}).check(sleeper.pid, [seen(other.pid)])
        assert executable(other.pid) != executable(sleeper.pid)
        other.kill()


@pytest.mark.parametrize("data", [b"", b"sglang::scheduler_TP0", b"sglang::x\0\0\0PATH=/bin\0"])
def test_an_environment_that_was_written_over_is_not_known(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(data)
    assert read_environ(7, tmp_path) is None


def test_stacks_name_each_thread_and_what_it_waits_in(sleeper: "subprocess.Popen[str]") -> None:
    said: list[str] = []
    stacks.dump([seen(sleeper.pid)], said.append)
    assert said[0].startswith(f"stacks of {seen(sleeper.pid).name} (pid {sleeper.pid}, state S): ")
    assert f"thread {sleeper.pid} " in said[1]
    assert "nanosleep" in said[1] or "system call 230" in said[1]
    gone: list[str] = []
    stacks.dump([Process(2**22 + 1, 1, "S", "x", 0.0, 0)], gone.append)
    assert gone[1] == "  it is gone"


def test_py_spy_is_used_where_there_is_one(tmp_path: Path) -> None:
    assert stacks.find_pyspy(str(tmp_path)) is None
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "thread of $4"\n')
    (tmp_path / "py-spy").chmod(0o755)
    found = stacks.find_pyspy(f"/nowhere:{tmp_path}")
    assert found is not None
    said: list[str] = []
    stacks.dump_python(found, 4711, said.append)
    assert said == ["  thread of 4711"]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/sys/rank.service", "sys/rank.service/memory.events"),
        ("4:memory:/sys/rank.service", "memory/sys/rank.service/memory.oom_control"),
        ("0::/sys/rank.service", "unified/sys/rank.service/memory.events"),
    ],
)
def test_the_kernels_kills_are_counted_in_either_hierarchy(tmp_path: Path, line: str, file: str) -> None:
    own = tmp_path / "cgroup"
    own.write_text(f"1:cpu:/x\n{line}\n")
    assert oom_kills(own, tmp_path) is None
    counters = tmp_path / file
    counters.parent.mkdir(parents=True)
    counters.write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills(own, tmp_path) == 3
