"""The ranks of the ring as this host knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkd.core import free, gates, progress
from sparkd.core.model import Attempt, Process, RankCondition, RankUnit, Stage, Unknown
from sparkd.core.snapshot import Snapshot


@dataclass(frozen=True)
class RankView:
    """One rank. `epoch` is that of the unit shown; `was_ready`: its host is silent and, as far as anybody
    has heard, it served. `left`: which process its unit has left behind."""

    rank: int
    node: str
    epoch: int
    condition: RankCondition
    stage: Stage | None = None
    done: int | None = None
    total: int | None = None
    text: str = ""
    pid: int = 0
    was_ready: bool = False
    left: str = ""

    @property
    def unit(self) -> str:
        return f"sparkd-rank@{self.epoch}.service"

    @property
    def alive(self) -> bool:
        return self.condition in ("starting", "ready", "stopping")

    @property
    def silent(self) -> bool:
        """It is ready, and yet its engine gives no token although it is asked for one."""
        return self.condition == "ready" and self.text.startswith(progress.SILENT)

    @property
    def sentence(self) -> str:
        count = f" {self.done}/{self.total}" if self.total is not None else ""
        stage = f"{self.stage}{count}" if self.stage else ""
        told = ", ".join(part for part in (stage, self.text) if part)
        return f"rank {self.rank} ({self.node}): {told or self.condition}"


def view(s: Snapshot) -> tuple[RankView, ...]:
    """All ranks in order."""
    relied = {peer.name for peer, _ in gates.fresh(s)}
    views = []
    for node in s.cluster.nodes:
        if node.name == s.node:
            units = None if isinstance(s.units, Unknown) else s.units
            views.append(_freed(_one(s, node.rank, node.name, units, s.attempt), free.left(s)))
            continue
        report = next((peer.report for peer in s.peers if peer.name == node.name), None)
        if report is None:
            text = "has not answered yet"
            views.append(RankView(node.rank, node.name, s.intent.epoch, "unknown", text=text, was_ready=True))
            continue
        known = _freed(_one(s, node.rank, node.name, report.units, report.attempt), report.left)
        if node.name in relied:
            views.append(known)
            continue
        said = f"last known {known.condition}"
        was_ready = known.condition == "ready"
        views.append(RankView(node.rank, node.name, known.epoch, "unknown", text=said, was_ready=was_ready))
    return tuple(views)


def _one(s: Snapshot, rank: int, node: str, units: Sequence[RankUnit] | None, attempt: Attempt | None) -> RankView:
    epoch = s.intent.epoch
    if units is None:
        served = attempt is not None and attempt.epoch == epoch and attempt.ready and not attempt.over
        return RankView(rank, node, epoch, "unknown", text="its systemd cannot be asked", was_ready=served)
    alive = [unit for unit in units if unit.alive]
    stale = [unit for unit in alive if unit.epoch != epoch]
    if stale:
        return RankView(rank, node, stale[0].epoch, "stopping", text="of another epoch", pid=stale[0].main_pid)
    if alive:
        unit = alive[0]
        if attempt is not None and attempt.epoch == epoch and attempt.incident:
            return RankView(rank, node, epoch, "stopping", text=attempt.incident, pid=unit.main_pid)
        seen = progress.parse(unit.text)
        return RankView(
            rank, node, epoch, _condition(unit), seen.stage, seen.done, seen.total, seen.text, unit.main_pid
        )
    if attempt is not None and attempt.epoch == epoch and s.intent.want == "up":
        if attempt.ended_at is None:
            return RankView(rank, node, epoch, "starting", text="its unit is being started")
        return RankView(rank, node, epoch, "ended", text=attempt.sentence)
    return RankView(rank, node, epoch, "down", text="not started yet" if s.intent.want == "up" else "")


def _freed(rank: RankView, left: tuple[Process, ...] | None) -> RankView:
    """A rank is not gone before all of its processes are."""
    told = free.words(rank.node, left)
    if rank.alive or not told:
        return rank
    return replace(rank, condition="stopping", text=told, pid=left[0].pid if left else 0, left=told)


def _condition(unit: RankUnit) -> RankCondition:
    if unit.active == "deactivating" or unit.job == "stop":
        return "stopping"
    return "ready" if unit.active == "active" else "starting"
