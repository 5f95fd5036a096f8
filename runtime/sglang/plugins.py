"""Proof that the plug-ins asked for are in the engine: SGLang only logs that one has failed, and goes on without.

A plug-in appends one line ``ADAPTER=NAME DIGEST PID`` to the file that $SPARKD_PLUGIN_PROOF names once it is installed
in a process. It has to be in each process that loads plug-ins: the main one and the schedulers.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.exits import ExitCode, RankFailure
from runtime.sglang.processes import Process
from runtime.sglang.shared import MemoryFile

_LINE = re.compile(r"ADAPTER=(?P<name>\S+) (?P<digest>\S+) (?P<pid>\d+)")
_SHOWN = 3


@dataclass(frozen=True)
class Installed:
    """One line: the plug-in is installed in the process ``pid``."""

    name: str
    digest: str
    pid: int


def read_proof(text: str) -> list[Installed]:
    """Lines of another form are nobody's proof."""
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return [Installed(match["name"], match["digest"], int(match["pid"])) for match in matches if match is not None]


class Plugins:
    """``names``: those that the profile asks for."""

    def __init__(self, names: Sequence[str], proof: MemoryFile) -> None:
        self._names = tuple(names)
        self._proof = proof
        self._digests: dict[str, str] = {}

    def has(self, name: str, pid: int) -> bool:
        """Whether that one says that it is in that process."""
        return any((found.name, found.pid) == (name, pid) for found in self._read())

    def check(self, main: int, processes: Iterable[Process]) -> None:
        """Once the schedulers have loaded their plug-ins.

        :raises RankFailure: 75 naming the plug-in and the process that has no proof of it, or another one.
        """
        if not self._names:
            return
        needing = [process for process in processes if process.pid == main or is_scheduler(process)]
        if not any(is_scheduler(process) for process in needing):
            raise RankFailure(
                ExitCode.NOT_AS_ASKED,
                f"plug-in {self._names[0]}: no process of the engine calls itself sglang::scheduler, so that "
                "it cannot be told where it is installed",
            )
        proof = self._read()
        for name in self._names:
            self._digests[name] = _digest(name, proof, needing)

    def text(self) -> str:
        """For the status: each with its digest, or of many the number and one digest; empty without any."""
        told = [f"{name} {digest}" for name, digest in sorted(self._digests.items())]
        if len(told) > _SHOWN:
            whole = hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
            return f"{len(told)} plug-ins {whole}"
        return f"plug-ins {', '.join(told)}" if told else ""

    def describe(self) -> str:
        """All of them, for the log."""
        return ", ".join(f"{name} {digest}" for name, digest in sorted(self._digests.items()))

    def _read(self) -> list[Installed]:
        return read_proof(self._proof.read().decode("utf-8", "replace"))


def is_scheduler(process: Process) -> bool:
    return process.name.startswith("sglang::schedul")


def _digest(name: str, proof: list[Installed], needing: list[Process]) -> str:
    digests: dict[str, Process] = {}
    for process in needing:
        found = [each.digest for each in proof if (each.name, each.pid) == (name, process.pid)]
        if not found:
            raise RankFailure(
                ExitCode.NOT_AS_ASKED,
                f"plug-in {name} is not installed in {process.title} (pid {process.pid}), expected as launch.plugins "
                "has it; why is in the rank's journal, next to its name",
            )
        digests[found[-1]] = process
    if len(digests) > 1:
        told = ", ".join(f"{digest} in {process.title} (pid {process.pid})" for digest, process in digests.items())
        raise RankFailure(ExitCode.NOT_AS_ASKED, f"plug-in {name} is not the same in all processes: {told}")
    return next(iter(digests))
