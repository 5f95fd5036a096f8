"""Everything a decision may look at, taken once before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ring_mesh import Plan
from sparkd.core.model import (
    Attempt,
    HostFacts,
    Intent,
    NetworkFacts,
    PeerView,
    RankUnit,
    RoceFact,
    Unknown,
)


@dataclass(frozen=True)
class Policy:
    """The times and budgets of `[recovery]` and `[peers]` in sparkd.toml; seconds unless the name says otherwise."""

    backoff: float = 5.0
    backoff_max: float = 300.0
    restarts: int = 3
    window: float = 3600.0
    peer_fresh: float = 15.0
    stop_deadline: float = 20.0


@dataclass(frozen=True)
class Snapshot:
    """The facts of one cycle. `now` is Unix seconds; a source that failed is Unknown(why), never an empty value."""

    now: float
    node: str
    plan: Plan
    policy: Policy
    intent: Intent
    host: HostFacts | Unknown
    units: tuple[RankUnit, ...] | Unknown
    network: NetworkFacts | Unknown
    roce: tuple[RoceFact, ...] | Unknown
    attempt: Attempt | None = None
    peers: tuple[PeerView, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def conductor(self) -> bool:
        return self.plan.cluster.conductor.name == self.node

    @property
    def rank(self) -> int:
        return self.plan.cluster.node(self.node).rank
