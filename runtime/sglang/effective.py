"""The environment that the engine's processes really have, against the one that was asked for."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from runtime.exits import ExitCode, RankFailure
from runtime.sglang.processes import PROC, Process, executable, title


def read_environ(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """The environment with which a process was started; None where it cannot be told.

    A process that writes its title over it, or that is about to exec, shows something else or nothing.
    """
    try:
        data = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    items = [item.partition(b"=") for item in data.split(b"\0") if item]
    if not items or not all(name and sign for name, sign, _ in items):
        return None
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in items}


class Effective:
    """Checks each engine process once. Helpers that run another program may be given what they need."""

    def __init__(self, asked: Mapping[str, str], proc: Path = PROC) -> None:
        self._asked = asked
        self._proc = proc
        self._checked: set[tuple[int, int]] = set()

    def check(self, main: int, processes: Iterable[Process]) -> None:
        """``main``: the engine's main process.

        :raises RankFailure: 75 naming the first variable that is missing or different.
        """
        program = executable(main, self._proc)
        for process in processes:
            key = (process.pid, process.started)
            if key in self._checked or not program or executable(process.pid, self._proc) != program:
                continue
            environ = read_environ(process.pid, self._proc)
            if environ is None:
                continue
            self._checked.add(key)
            for name, wanted in self._asked.items():
                if (found := environ.get(name)) != wanted:
                    raise RankFailure(
                        ExitCode.NOT_AS_ASKED,
                        f"{name}: expected {wanted!r} in the environment of {process.title} (pid {process.pid}), "
                        f"got {'nothing' if found is None else repr(found)}; something between the launcher and it "
                        "sets it: a wrapper at the path of python, a sitecustomize, or the engine itself",
                    )

    def unchecked(self, main: int, processes: Iterable[Process]) -> list[str]:
        """Engine processes whose environment could not be read so far, in words."""
        program = executable(main, self._proc)
        return [
            f"{title(process.pid, self._proc) or process.title} (pid {process.pid})"
            for process in processes
            if (process.pid, process.started) not in self._checked
            and program
            and executable(process.pid, self._proc) == program
        ]
