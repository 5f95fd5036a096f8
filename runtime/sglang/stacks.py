"""What every process of the engine is doing, for the log, before it is ended."""

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from runtime.sglang.processes import PROC, Process, title

THREADS_MAX = 64
FRAMES_MAX = 12
PYSPY_SECONDS = 10.0


def dump(processes: Iterable[Process], say: Callable[[str], None], proc: Path = PROC) -> None:
    """Say state, wait channel, system call and, where it may be read, the kernel's stack of each thread."""
    for process in processes:
        base = proc / str(process.pid)
        say(f"stacks of {process.title} (pid {process.pid}, state {process.state}): {title(process.pid, proc)}")
        try:
            threads = sorted((int(name) for name in os.listdir(base / "task")), key=int)
        except OSError:
            say("  it is gone")
            continue
        for thread in threads[:THREADS_MAX]:
            say(f"  thread {thread} {_thread(base / 'task' / str(thread))}")
        if len(threads) > THREADS_MAX:
            say(f"  and {len(threads) - THREADS_MAX} threads more")


def _thread(task: Path) -> str:
    name = _read(task / "comm")
    state = next((line.split()[1] for line in _read(task / "status").splitlines() if line.startswith("State:")), "?")
    channel = _read(task / "wchan")
    call = _read(task / "syscall").split(" ")[0]
    # Only root may read it; the wait channel often says enough.
    kernel = [line.rpartition(" ")[2] for line in _read(task / "stack").splitlines()[:FRAMES_MAX]]
    parts = [
        f"{name} {state}",
        f"in {channel}" if channel not in ("", "0") else "",
        f"system call {call}" if call else "",
    ]
    return ", ".join(part for part in parts if part) + (f", kernel: {' < '.join(kernel)}" if kernel else "")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def find_pyspy(path: str) -> str | None:
    """``py-spy`` in the directories of ``path``."""
    for directory in path.split(os.pathsep):
        candidate = os.path.join(directory, "py-spy")
        if directory and os.access(candidate, os.X_OK):
            return candidate
    return None


def dump_python(pyspy: str, pid: int, say: Callable[[str], None]) -> None:
    """Say what py-spy tells of one process."""
    import subprocess

    try:
        done = subprocess.run(
            [pyspy, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, timeout=PYSPY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"  {pyspy} tells nothing of pid {pid}: {error}")
        return
    for line in (done.stdout + done.stderr).decode("utf-8", "replace").splitlines():
        say(f"  {line}")


def ask_for_python_stacks(pids: Iterable[int]) -> None:
    """Have Python's faulthandler print the stacks of all threads, which ends the processes.

    A stopped process takes no signal but SIGKILL until it is continued.
    """
    for pid in pids:
        for number in (signal.SIGABRT, signal.SIGCONT):
            try:
                os.kill(pid, number)
            except OSError:
                break
