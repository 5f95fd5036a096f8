"""Everything a decision may look at, taken once before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ring_mesh import AdoptError, CablingError, Cluster, Plan
from sparkd.core import cabling, judge, links
from sparkd.core.boots import BootMemory
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import (
    AddressClaim,
    Attempt,
    FabricMemory,
    Finding,
    HelloFacts,
    HostFacts,
    Intent,
    NetworkFacts,
    PeerView,
    RankUnit,
    RoceFact,
    Unknown,
)
from sparkd.core.railfacts import RailFact, RailFacts, RailPolicy
from sparkd.core.rails import Rail, current, measured
from sparkd.core.reach import ReachFact


@dataclass(frozen=True)
class Policy:
    """The times and budgets of `[recovery]` and `[peers]` in sparkd.toml; seconds unless the name says otherwise.

    `memory_back`: the share of the memory before the last start that has to be back before the next one, None for 0.9
    on a Spark and none elsewhere; `memory_back_seconds`: how long it is waited for. `memory_floor_kib`: below which a
    rank is killed, None for 4 GiB on a Spark and none elsewhere. `hard_reset_window`: within which two boots without a
    shutdown hold a host out, 0 for never.

    `adopt`: plan with the addresses that the hosts' own configuration has put on the fabric ports. `rails`: how rails
    are measured before a start; None: not at all.
    """

    backoff: float = 5.0
    backoff_max: float = 300.0
    restarts: int = 3
    window: float = 3600.0
    peer_fresh: float = 15.0
    adopt: bool = False
    memory_back: float | None = None
    memory_back_seconds: float = 120.0
    memory_floor_kib: int | None = None
    rails: RailPolicy | None = None
    hard_reset_window: float = 21600.0


@dataclass(frozen=True)
class Snapshot:
    """The facts of one cycle. `now` is Unix seconds; a source that failed is Unknown(why), never an empty value.

    `ages`: seconds, by this daemon's monotonic clock, since it first saw that a node's attempt is over. The hosts' own
    clocks need not agree, and may be set. `befell`: what befell this host's rank, by its epoch, and made it be killed
    at once, as "id: sentence". `reach`: of each peer's port that has been tried, what that came to. `just_ended`: that
    its rank has ended is news, so that `host` is from when it ran.
    """

    now: float
    node: str
    cluster: Cluster
    policy: Policy
    intent: Intent
    host: HostFacts | Unknown
    units: tuple[RankUnit, ...] | Unknown
    network: NetworkFacts | Unknown
    roce: tuple[RoceFact, ...] | Unknown
    hello: HelloFacts | Unknown
    hardware: HardwareFacts | None = None
    memory: FabricMemory = field(default_factory=FabricMemory)
    boots: BootMemory = field(default_factory=BootMemory)
    attempt: Attempt | None = None
    rails: RailFacts | Unknown = field(default_factory=RailFacts)
    peers: tuple[PeerView, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)
    ages: dict[str, float] = field(default_factory=dict)
    befell: dict[int, str] = field(default_factory=dict)
    reach: tuple[ReachFact, ...] = ()
    just_ended: bool = False

    @property
    def description(self) -> str:
        """The cluster as this host's configuration has it now, in one text."""
        return "; ".join(f"{key}={value}" for key, value in sorted(self.digests.items()) if key.startswith("cluster."))

    @cached_property
    def heard(self) -> cabling.Heard:
        own = None if isinstance(self.hello, Unknown) else self.hello
        return cabling.heard(self.node, own, self.peers)

    @cached_property
    def cables(self) -> tuple[str, ...]:
        """The cabling as all ports together hear it; empty while it is not a complete ring."""
        try:
            return cabling.names(cabling.discovered(self.cluster, self.heard))
        except CablingError:
            return ()

    @cached_property
    def claims(self) -> tuple[AddressClaim, ...]:
        """The addresses on all hosts' fabric ports that are not sparkd's; empty unless they are to be adopted."""
        if not self.policy.adopt:
            return ()
        own = () if isinstance(self.network, Unknown) else links.claims(self.node, self.network)
        theirs = (claim for peer in self.peers if peer.report is not None for claim in peer.report.addresses)
        return tuple(sorted((*own, *theirs), key=lambda claim: (claim.node, claim.device, claim.address)))

    @cached_property
    def wiring(self) -> tuple[tuple[str, ...], tuple[AddressClaim, ...]]:
        """Cables and addresses to plan with now: the cables are empty while they, or the addresses, do not fit."""
        if not self.cables or not self.policy.adopt:
            return self.cables, ()
        try:
            cabling.adopted(self.cluster, cabling.parse(self.cables), self.claims)
        except AdoptError:
            return (), ()
        return self.cables, self.claims

    @cached_property
    def plan(self) -> Plan:
        """Of the cables and addresses in the intent while the ring is wanted up, else of those that are seen."""
        if self.intent.want == "up":
            return cabling.plan_of(self.cluster, self.intent.cables, self.intent.addresses)
        return cabling.plan_of(self.cluster, *self.wiring)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What this host's own facts say against a start."""
        return judge.own(self)

    @cached_property
    def rail_facts(self) -> tuple[RailFact, ...]:
        """What is on record of this host's rails as they are now."""
        return current(self)

    @cached_property
    def rated(self) -> tuple[Rail, ...]:
        """The rails whose measurement counts at both ends."""
        return measured(self)

    @property
    def next_epoch(self) -> int:
        """Above every epoch that is known of anywhere, wanted, tried or loaded."""
        reports = [peer.report for peer in self.peers if peer.report is not None]
        attempts = [self.attempt, *(report.attempt for report in reports)]
        own = () if isinstance(self.units, Unknown) else self.units
        units = [*own, *(unit for report in reports for unit in report.units or ())]
        known = [self.intent.epoch, *(report.intent.epoch for report in reports), *(unit.epoch for unit in units)]
        return 1 + max(*known, *(attempt.epoch for attempt in attempts if attempt is not None), 0)

    @property
    def conductor(self) -> bool:
        return self.cluster.conductor.name == self.node

    @property
    def rank(self) -> int:
        return self.cluster.node(self.node).rank
