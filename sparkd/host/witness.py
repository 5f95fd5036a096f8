"""What the host knows of a rank that failed: its journal, the kernel's, its processes, its sockets, the memory.

Read with journalctl, which the unit's group systemd-journal allows: in a process of its own, because the library would
map the whole journal into a daemon that hardly ever needs it. Every step is bounded in time and in size.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from sparkd.core.facts import RankUnit
from sparkd.core.incidents import excerpt
from sparkd.host import sockets, tree
from sparkd.host.worker import Worker
from sparkd.ports import DoorError

_SECONDS = 3.0  # for each reading of a journal
_LINES = 50_000  # of a rank's journal; an engine that says more than that is cut off there
_KERNEL_LINES = 300
_THREADS = 256
_STATUS = ("Name", "State", "PPid", "Uid", "VmRSS", "RssAnon", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigCgt")


class SystemWitness:
    """`root` stands for / in tests, `journalctl` for the command."""

    def __init__(self, root: Path = Path("/"), journalctl: str = "/usr/bin/journalctl") -> None:
        self._proc = root / "proc"
        self._journalctl = journalctl
        self._journal = Worker("the journal", 4 * _SECONDS)
        self._files = Worker("/proc of the rank", 2.0)

    async def living(self, epoch: int) -> Mapping[str, str]:
        """Raises DoorError."""
        return await self._files.call(partial(self._living, RankUnit(epoch, "").name))

    async def past(self, epoch: int, since: float) -> Mapping[str, str]:
        """Raises DoorError. `first.txt` is the first error alone; what cannot be had is told in its own file."""
        return await self._journal.call(partial(self._past, RankUnit(epoch, "").name, since))

    def close(self) -> None:
        self._journal.close()
        self._files.close()

    def _past(self, unit: str, since: float) -> dict[str, str]:
        start = f"--since=@{int(since) - 1}"
        first, journal = "", ""
        try:
            declared = frozenset(self._read(["--unit", unit, start, "--priority=err"]))
            found = excerpt(self._read(["--unit", unit, start]), declared)
            first, journal = found.first, found.text
        except (DoorError, OSError) as error:
            journal = f"cannot be had: {error}\n"
        files = {"first.txt": first, "journal.txt": journal}
        files["kernel.txt"] = self._text(lambda: self._read(["--dmesg", f"--lines={_KERNEL_LINES}", start]))
        files["memory.txt"] = self._text(self._memory)
        return files

    @staticmethod
    def _text(lines: Callable[[], Iterator[str]]) -> str:
        try:
            return "".join(f"{line}\n" for line in lines())
        except (DoorError, OSError) as error:
            return f"cannot be had: {error}\n"

    def _read(self, arguments: list[str]) -> Iterator[str]:
        """Lines of the journal, oldest first. Raises DoorError when it is late or refuses."""
        command = [self._journalctl, "--quiet", "--no-pager", "--no-hostname", "--output=short-iso-precise", *arguments]
        end = time.monotonic() + _SECONDS
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, errors="replace",
        ) as child:  # fmt: skip
            assert child.stdout is not None
            try:
                for number, line in enumerate(child.stdout):
                    if number >= _LINES or time.monotonic() > end:
                        yield f"cut off here, after {number} lines"
                        return
                    yield line.rstrip("\n")
                if child.wait(max(0.1, end - time.monotonic())) != 0:
                    raise DoorError(f"journalctl has left with status {child.returncode}")
            except subprocess.TimeoutExpired:
                raise DoorError(f"journalctl has not ended within {_SECONDS:g} s") from None
            finally:
                child.kill()

    def _memory(self) -> Iterator[str]:
        yield from (self._proc / "meminfo").read_text("utf-8").splitlines()
        yield from (tree.text(self._proc / "pressure/memory") or "").splitlines()

    # Of processes that are there.

    def _living(self, unit: str) -> dict[str, str]:
        pids = list(self._pids(unit))
        if not pids:
            return {}
        lines = [line for pid in pids for line in self._process(pid)]
        uids = {uid for pid in pids if (uid := self._field(pid, "Uid"))}
        return {
            "processes.txt": "\n".join([*lines, ""]),
            "sockets.txt": "\n".join([*sockets.owned(self._proc, {uid.split()[0] for uid in uids}), ""]),
        }

    def _pids(self, unit: str) -> Iterator[int]:
        for name in tree.names(self._proc):
            if name.isdecimal() and f"/{unit}" in self._line(self._proc / name / "cgroup"):
                yield int(name)

    def _field(self, pid: int, key: str) -> str:
        for line in self._line(self._proc / str(pid) / "status").splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return value.strip()
        return ""

    def _process(self, pid: int) -> Iterator[str]:
        at = self._proc / str(pid)
        yield f"process {pid}: {self._line(at / 'cmdline').replace(chr(0), ' ').strip()}"
        for line in self._line(at / "status").splitlines():
            if line.partition(":")[0] in _STATUS:
                yield f"  {line}"
        for thread in tree.names(at / "task")[:_THREADS]:
            task = at / "task" / thread
            state = self._line(task / "stat").rpartition(")")[2].split()[:1]
            # What it waits for in the kernel; "0" for a thread that runs, or for a reader without the right to know.
            wchan = self._line(task / "wchan") or "?"
            yield f"  thread {thread} {self._line(task / 'comm').strip()}: {''.join(state)} in {wchan}"

    @staticmethod
    def _line(path: Path) -> str:
        try:
            return tree.text(path) or ""
        except OSError:  # it ends while it is looked at, or does not let itself be looked at
            return ""
