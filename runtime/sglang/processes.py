"""The engine's processes as /proc shows them."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_NAME_MAX = 15


@dataclass(frozen=True)
class Process:
    """One process: ``state`` is the letter of proc(5), ``cpu_seconds`` without its children, ``started`` in ticks.

    The kernel keeps 15 bytes of a ``name``; ``title`` is the whole of one that is longer, where it is to be had.
    """

    pid: int
    parent: int
    state: str
    name: str
    cpu_seconds: float
    started: int
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """The process, or None if it is gone."""
    try:
        text = (proc / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    # The name is in parentheses and may itself hold any of them.
    head, _, tail = text.rpartition(")")
    name = head.partition("(")[2]
    fields = tail.split()
    if len(fields) < 20:
        return None
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    process = Process(pid, int(fields[1]), fields[0], name, cpu, int(fields[19]))
    if len(name) < _NAME_MAX:
        return process
    whole = title(pid, proc).partition(" ")[0]
    return replace(process, title=whole) if whole.startswith(name) else process


def descendants(root: int, proc: Path = PROC) -> list[Process]:
    """All processes below ``root``, without itself, by pid.

    An orphan is among them as long as ``root`` is their subreaper, see prctl(2).
    """
    everyone: dict[int, Process] = {}
    for name in os.listdir(proc):
        if name.isdigit() and (process := read_process(int(name), proc)) is not None:
            everyone[process.pid] = process
    below = {root}
    # A child may have a lower pid than its parent once pids have wrapped around.
    while more := {p.pid for p in everyone.values() if p.parent in below} - below:
        below |= more
    return [everyone[pid] for pid in sorted(below - {root}) if pid in everyone]


def again(processes: Iterable[Process], proc: Path = PROC) -> list[Process]:
    """The same processes as they are now, without those that are gone."""
    before = list(processes)
    now = ((process, read_process(process.pid, proc)) for process in before)
    return titled((new for old, new in now if new is not None and new.started == old.started), before)


def titled(processes: Iterable[Process], before: Iterable[Process]) -> list[Process]:
    """The processes with the titles that they had ``before``: one that has ended tells none any more."""
    known = {(process.pid, process.started): process.title for process in before if process.title != process.name}
    return [
        replace(process, title=known.get((process.pid, process.started), process.title))
        if process.title == process.name
        else process
        for process in processes
    ]


def alive(processes: Iterable[Process]) -> list[Process]:
    """Those that have not ended; a zombie only waits for its parent."""
    return [process for process in processes if process.state not in ("Z", "X")]


def is_worker(process: Process) -> bool:
    """One of those that SGLang's main process starts, and that name themselves so: schedulers and detokenizers."""
    return process.name.startswith("sglang::")


def bytes_read(pid: int, proc: Path = PROC) -> int:
    """What a process has read so far: by read(2), and from storage through its mappings. 0 where it is not told."""
    try:
        text = (proc / str(pid) / "io").read_text()
        values = dict(line.split(": ") for line in text.splitlines())
        return int(values["rchar"]) + int(values["read_bytes"])
    except (OSError, ValueError, KeyError):
        return 0


def executable(pid: int, proc: Path = PROC) -> str:
    """What it runs; empty if it is gone or a zombie."""
    try:
        return os.readlink(proc / str(pid) / "exe")
    except OSError:
        return ""


def title(pid: int, proc: Path = PROC) -> str:
    """Its command line, as it names itself, cut; empty for a zombie."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120]
    except OSError:
        return ""
