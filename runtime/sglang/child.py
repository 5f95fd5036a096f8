"""The engine as a child process: started, reaped, and ended with everything that it has started itself."""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from runtime.environment import BadEnvironment
from runtime.sglang.config import VARIABLE
from runtime.sglang.prctl import become_subreaper, die_with_parent
from runtime.sglang.processes import Process, descendants

REMIND_SECONDS = 10.0
_EXEC_FAILED = 127


class Child:
    """A running engine. ``output`` is the reading end of its standard output and error, non-blocking."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """:raises BadEnvironment: if its python cannot be run."""
        become_subreaper()
        self.output, inner = os.pipe()
        os.set_blocking(self.output, False)
        failures, failed = os.pipe()
        launcher = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, environ, inner, failed, launcher)
        os.close(inner)
        os.close(failed)
        # Closed by a successful exec.
        told = os.read(failures, 16)
        os.close(failures)
        self.status: int | None = None
        if told:
            self._wait_for_exec_failure()
            raise BadEnvironment(
                [f"{VARIABLE}: python: expected an executable, {argv[0]}: {os.strerror(int(told.decode()))}"]
            )

    def _wait_for_exec_failure(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self.output)

    def reap(self) -> None:
        """Wait for every child and adopted orphan that has ended, without blocking."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def terminate(self) -> None:
        """SIGTERM to the engine's main process, which ends in order by it."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        os.close(self.output)


def _become(argv: Sequence[str], environ: Mapping[str, str], output: int, failed: int, launcher: int) -> None:
    """In the new process: never returns."""
    try:
        # A process group of its own: SGLang may signal all of its group, and a terminal's Ctrl-C is for the launcher.
        os.setpgid(0, 0)
        die_with_parent(signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(_EXEC_FAILED)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        # An ignored signal stays ignored over exec.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(argv[0], list(argv), dict(environ))  # noqa: S606 - without a shell on purpose
    except OSError as error:
        os.write(failed, str(error.errno or errno.EINVAL).encode())
    finally:
        os._exit(_EXEC_FAILED)


def kill_all(child: Child, idle: Callable[[float], None], say: Callable[[str], None]) -> None:
    """SIGKILL to everything below this process until nothing is left.

    ``idle`` waits for up to so many seconds and looks after the rest meanwhile. A process that the kernel does not let
    go of is waited for: its memory is not free before.
    """
    started = time.monotonic()
    remind = started + REMIND_SECONDS
    while left := _kill(child):
        idle(0.02)
        if time.monotonic() >= remind:
            remind += REMIND_SECONDS
            names = ", ".join(f"{process.title} (pid {process.pid}, state {process.state})" for process in left)
            say(f"still there {time.monotonic() - started:.0f} s after SIGKILL: {names}")
    child.reap()


def _kill(child: Child) -> list[Process]:
    child.reap()
    left = descendants(os.getpid())
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return left
