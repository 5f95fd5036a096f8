"""The processes in the control groups of this host's rank units, whatever systemd thinks of the units."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from sparkd.core.facts import Process
from sparkd.host.worker import describe

_UNIT = re.compile(r"sparkd-rank@(0|[1-9][0-9]*)\.service")
# How systemd names the slice of a template's instances. It lies in the one hierarchy there is, or, where the kernel has
# both versions of control groups, in systemd's own.
_SLICE = r"system.slice/system-sparkd\x2drank.slice"
_HIERARCHIES = ("", "systemd", "unified")


class RankProcesses:
    """Blocking, and cheap while no unit is loaded: the directory of the slice is not there then."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._slices = [root / "sys/fs/cgroup" / hierarchy / _SLICE for hierarchy in _HIERARCHIES]

    def read(self) -> tuple[Process, ...]:
        """All of them, zombies left out: they hold nothing any more."""
        found = {pid: unit for unit, group in self._groups() for pid in _members(group)}
        processes = (self._process(pid, unit) for pid, unit in sorted(found.items()))
        return tuple(process for process in processes if process is not None)

    def kill(self, epoch: int) -> str:
        """SIGKILL to all of one epoch, as far as this process may; why it may not, or empty.

        sparkd may not, unless a drop-in gives it CAP_KILL: it is for when systemd does not answer.
        """
        refused = ""
        for unit, group in self._groups():
            if unit != f"sparkd-rank@{epoch}.service":
                continue
            for pid in _members(group):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    refused = f"cannot kill pid {pid}: {describe(error)}"
        return refused

    def _groups(self) -> Iterator[tuple[str, Path]]:
        for place in self._slices:
            try:
                names = os.listdir(place)
            except OSError:
                continue
            yield from ((name, place / name) for name in names if _UNIT.fullmatch(name))

    def _process(self, pid: int, unit: str) -> Process | None:
        place = self._root / "proc" / str(pid)
        try:
            # A name is bytes of the process's choice, \r among them; what is too long is cut, also within a letter.
            status = (place / "status").read_bytes().decode("utf-8", "replace")
            command = _printable((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            return None  # it has ended meanwhile
        fields = dict(line.partition(":")[::2] for line in status.split("\n"))
        if fields.get("State", "").strip().startswith("Z"):
            return None
        uid = int(fields.get("Uid", "-1").split()[0])
        return Process(pid, self._user(uid), command[:80] or _printable(fields.get("Name", "")), unit)

    def _user(self, uid: int) -> str:
        try:
            lines = (self._root / "etc/passwd").read_text("utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        rows = (line.split(":") for line in lines)
        return next((row[0] for row in rows if len(row) == 7 and row[2] == str(uid)), f"uid {uid}")


def _printable(text: str) -> str:
    """It is shown in findings, and in lines of the journal, which hides what is not printable."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _members(group: Path) -> Iterator[int]:
    """Of the group and those below it. A group that is going away while it is read has no members."""
    for directory, _, files in os.walk(group):
        if "cgroup.procs" not in files:
            continue
        try:
            yield from map(int, (Path(directory) / "cgroup.procs").read_text("ascii").split())
        except OSError:
            continue
