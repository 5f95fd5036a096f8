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


def left(s: Snapshot) -> tuple[Process, ...] | None:
    """The processes on this host of units that have ended.

    None while that is not known: a rank has only just been seen to have ended, and the host was looked at before.
    """
    if s.just_ended:
        return None
    if isinstance(s.host, Unknown) or isinstance(s.units, Unknown):
        return ()
    alive = {unit.name for unit in s.units if unit.alive}
    return tuple(process for process in s.host.rank_processes if process.unit not in alive)


def words(node: str, processes: tuple[Process, ...] | None) -> str:
    """What is left there; empty if nothing is."""
    if processes is None:
        return f"{node} has to look what is left of its rank"
    if not processes:
        return ""
    more = f" (and {len(processes) - 1} more)" if len(processes) > 1 else ""
    return f"{processes[0].words} is left of {processes[0].unit} on {node}{more}"


def waits(s: Snapshot) -> list[str]:
    """The same of every host, as it last told."""
    told = {peer.name: peer.report.left for peer in s.peers if peer.report is not None}
    return [said for node, processes in {s.node: left(s), **told}.items() if (said := words(node, processes))]


def settling(s: Snapshot) -> list[str]:
    """What a stop still waits for once all ranks are gone: memory that may yet come back."""
    return [f.sentence for f in _findings(s) if f.id == "memory-not-back" and f.severity == "repair"]


def held(s: Snapshot) -> list[str]:
    """What keeps a host from being free and does not go by itself."""
    return [f.sentence for f in _findings(s) if f.id in _HELD and f.severity == "refuse"]


def look_again(s: Snapshot) -> float | None:
    """Seconds; processes and memory tell nobody when they are back."""
    return LOOK_AGAIN if left(s) != () or settle.pending(s) else None


def _findings(s: Snapshot) -> Iterator[Finding]:
    yield from s.findings
    for peer in s.peers:
        if peer.report is not None:
            yield from peer.report.findings
