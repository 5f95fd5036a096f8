"""Whether a host is free after a stop: no process of a rank, its memory back, its ports nobody else's.

systemd counts a unit as ended although a process of it may go on: one that waits for a driver in the kernel heeds not
even SIGKILL. What is left is named with its owner and waited for; sparkd ends nothing but units of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkd.core import settle
from sparkd.core.model import Finding, Process, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

LOOK_AGAIN = 1.0  # seconds
# Ports and memory, as their findings are called.
_HELD = ("second-supervisor", "memory-not-back")


def left(s: Snapshot) -> tuple[Process, ...]:
    """The processes on this host of units that have ended."""
    if isinstance(s.host, Unknown) or isinstance(s.units, Unknown):
        return ()
    alive = {unit.name for unit in s.units if unit.alive}
    return tuple(process for process in s.host.rank_processes if process.unit not in alive)


def everywhere(s: Snapshot) -> dict[str, tuple[Process, ...]]:
    """The same of every host that has any, as it last told."""
    told = {peer.name: peer.report.left for peer in s.peers if peer.report is not None}
    return {node: processes for node, processes in {s.node: left(s), **told}.items() if processes}


def words(node: str, process: Process) -> str:
    return f"{process.words} is left of {process.unit} on {node}"


def waits(s: Snapshot) -> list[str]:
    return [words(node, process) for node, processes in everywhere(s).items() for process in processes]


def settling(s: Snapshot) -> list[str]:
    """What a stop still waits for once all ranks are gone: memory that may yet come back."""
    return [f.sentence for f in _findings(s) if f.id == "memory-not-back" and f.severity == "repair"]


def held(s: Snapshot) -> list[str]:
    """What keeps a host from being free and does not go by itself."""
    return [f.sentence for f in _findings(s) if f.id in _HELD and f.severity == "refuse"]


def look_again(s: Snapshot) -> float | None:
    """Seconds; processes and memory tell nobody when they are back."""
    return LOOK_AGAIN if left(s) or settle.pending(s) else None


def _findings(s: Snapshot) -> Iterator[Finding]:
    yield from s.findings
    for peer in s.peers:
        if peer.report is not None:
            yield from peer.report.findings
