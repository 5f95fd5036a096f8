"""Running commands and telling processes apart: the lab's errors name the node and the step."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCK_SECONDS = 1.0
"""How long a lock may be held by a holder that was killed: its child has it, too, between its fork and its exec."""


class LabError(RuntimeError):
    """A step of the lab failed; the message begins with the node (or "lab") and the step."""


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    started: int
    """Clock ticks since boot, field 22 of /proc/PID/stat."""

    def alive(self) -> bool:
        return process(self.pid) == self and state_of(self.pid) not in ("Z", "X", "")

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def write(self, path: Path) -> None:
        replace(path, f"{self.pid} {self.started}\n")


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on (the second may contain blanks); empty if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def state_of(pid: int) -> str:
    return (stat_fields(pid) or [""])[0]


def process(pid: int) -> Process | None:
    """The process that has this number now."""
    fields = stat_fields(pid)
    return Process(pid, int(fields[19])) if len(fields) > 19 else None


def read_process(path: Path) -> Process | None:
    """The process noted in a file, if it still runs."""
    try:
        pid, started = path.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    noted = Process(int(pid), int(started))
    return noted if noted.alive() else None


def kill_steps(prefix: str) -> None:
    """Kill what is still at work on things named `prefix`...: a step that had just begun when its `up` was killed."""

    def none() -> bool:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_step(pid, prefix)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_for(none, 5)


def _is_step(pid: int, prefix: str) -> bool:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return Path(argv[0]).name in ("setpriv", "ip", "mount") and any(word.startswith(prefix) for word in argv)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def environment() -> dict[str, str]:
    """What commands of the lab see: nothing of the caller's shell except its terminal and proxies."""
    kept = {key: value for key, value in os.environ.items() if key == "TERM" or key.lower().endswith("_proxy")}
    return {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **kept}


def run(
    argv: Sequence[str],
    *,
    step: str,
    node: str = "lab",
    check: bool = True,
    timeout: float | None = 60,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with its output captured.

    Raises LabError if it cannot be started, outlives `timeout` seconds, or (with `check`) fails.
    """
    if shutil.which(argv[0], path=PATH) is None:
        raise LabError(f"{node}: {step}: {argv[0]} is not installed")
    # A lab command that is killed takes the step it is at with it: nothing is made after `down` has looked for it.
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *argv],
        env=environment(),
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            out, err = child.communicate(stdin, timeout)
        except BaseException as reason:
            _end(child)
            if isinstance(reason, subprocess.TimeoutExpired):
                raise LabError(f"{node}: {step}: not done after {reason.timeout:g} s") from None
            raise
    done = subprocess.CompletedProcess(list(argv), child.returncode, out, err)
    if check and done.returncode != 0:
        raise LabError(f"{node}: {step}: exit {done.returncode}: {tail(done.stdout + done.stderr)}")
    return done


def _end(child: subprocess.Popen[str]) -> None:
    """Kill a command, and first the child that nsenter forks into a host's PID namespace.

    Left to itself that child would go on; and it would be this machine's process 1 that inherits it, for whose
    attention the host's last breath then waits.
    """
    for inner in children(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1)
    child.kill()


def tail(text: str, lines: int = 12) -> str:
    kept = [line for line in text.splitlines() if line.strip()][-lines:]
    return kept[0] if len(kept) == 1 else "\n  " + "\n  ".join(kept) if kept else "(no output)"


def wait_for(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Ask again until it holds or the time is over; True if it held."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def _lock(descriptor: int, wait: bool) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    return False


@contextlib.contextmanager
def locked(path: Path, *, wait: bool, busy: str = "", remove: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a file; with `remove`, the file is gone again afterwards.

    Raises LabError with the text `busy` if another process holds it and `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not wait_for(functools.partial(_lock, descriptor, wait), LOCK_SECONDS):
            os.close(descriptor)
            raise LabError(busy)
        with contextlib.suppress(FileNotFoundError):
            # An earlier holder may have removed the file between our open and our lock.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                break
        os.close(descriptor)
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(descriptor)
