"""What a rank will find on this host: its limit of locked memory, and the NCCL settings that lie about."""

from __future__ import annotations

import re
from pathlib import Path

from sparkd.core.hardware import RANK_USER, ConfLine, RankFacts
from sparkd.host import tree
from sparkd.host.worker import Worker

_UNIT = "sparkd-rank@.service"
_UNIT_DIRECTORIES = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system")
_HOME = "/var/cache/sparkd-rank"


class RankHost:
    """systemd's own opinion is behind D-Bus; here are the files it reads, and the limits of a process that runs."""

    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._root = root
        self._worker = Worker("files for ranks", deadline)

    async def observe(self, pid: int = 0) -> RankFacts:
        """`pid`: the main process of the running rank, 0 without one."""
        return await self._worker.call(lambda: self._read(pid))

    def close(self) -> None:
        self._worker.close()

    def _read(self, pid: int) -> RankFacts:
        asked, file = self._unit_memlock()
        lines, unreadable = self._nccl_conf()
        memlock = _soft_memlock(tree.text(self._root / f"proc/{pid}/limits") or "") if pid else ""
        return RankFacts(pid if memlock else 0, memlock, asked, file, tuple(lines), tuple(unreadable))

    def _unit_memlock(self) -> tuple[str, str]:
        """The last LimitMEMLOCK= of the unit and its drop-ins (soft limit), and the file that has it."""
        units = [self._root / directory / _UNIT for directory in _UNIT_DIRECTORIES]
        unit = next((path for path in units if path.exists()), None)
        if unit is None:
            return "", ""
        drop_ins = tuple(f"{directory}/{_UNIT}.d" for directory in _UNIT_DIRECTORIES)
        value, last = "", unit
        for file in [unit, *tree.layered(self._root, drop_ins, ".conf")]:
            for section, key, word in tree.assignments(tree.text(file) or ""):
                if (section, key) == ("Service", "LimitMEMLOCK"):
                    value, last = word.partition(":")[0], file
        return value, tree.shown(last, self._root)

    def _nccl_conf(self) -> tuple[list[ConfLine], list[str]]:
        """NCCL reads the home's file and the one in /etc, unless a variable names another."""
        lines: list[ConfLine] = []
        unreadable: list[str] = []
        for path in (self._root / "etc/nccl.conf", self._root / f"{self._home().lstrip('/')}/.nccl.conf"):
            shown = tree.shown(path, self._root)
            try:
                lines += _settings(shown, tree.text(path) or "")
            except OSError:
                unreadable.append(shown)
        return lines, unreadable

    def _home(self) -> str:
        for line in (tree.text(self._root / "etc/passwd") or "").splitlines():
            fields = line.split(":")
            if len(fields) == 7 and fields[0] == RANK_USER:
                return fields[5]
        return _HOME


def _settings(path: str, text: str) -> list[ConfLine]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.partition("=")
        if equals and not key.lstrip().startswith("#"):
            found.append(ConfLine(path, number, key.strip(), value.strip()))
    return found


def _soft_memlock(limits: str) -> str:
    found = re.search(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    return found[1] if found else ""
