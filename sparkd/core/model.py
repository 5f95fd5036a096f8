"""The words of the core: what is wanted (Intent), what was seen (units, network), what peers are told (Report).

Wanted and observed are different types. All are frozen dataclasses of plain values: the wire format (sparkd.wire), too,
and the state on disk (sparkd.host.store). Times are Unix seconds unless a name says otherwise, durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sparkd.core.drain import Drain
from sparkd.core.facts import (
    AddressFact,
    FabricMemory,
    HelloFacts,
    HostFacts,
    LinkFact,
    Neighbour,
    NetworkFacts,
    PortBefore,
    Process,
    RankUnit,
    RoceFact,
    RouteFact,
    Unknown,
)
from sparkd.core.hardware import HardwareFacts
from sparkd.core.maintenance import Maintenance
from sparkd.core.railfacts import RailFact

Want = Literal["up", "down"]
Phase = Literal["down", "gated", "starting", "ready", "degraded", "draining", "stopping", "held", "maintenance"]
Severity = Literal["refuse", "repair", "warn"]
Stage = Literal["init", "rendezvous", "formed", "load", "capture", "warmup", "ready", "failed"]
RankCondition = Literal["down", "starting", "ready", "stopping", "ended", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One check that did not pass, as refusals, doctor and status show it.

    `severity`: refuse blocks a start, repair holds it back until sparkd or time has put it right, warn does neither.
    """

    id: str
    node: str
    severity: Severity
    subject: str
    observed: str
    expected: str
    fix: str

    @property
    def sentence(self) -> str:
        return f"{self.node}: {self.subject}: {self.observed}; expected {self.expected}"


@dataclass(frozen=True)
class Death:
    """The end of a rank that ended its epoch: kept in the intents that follow, until an operator starts anew."""

    epoch: int
    rank: int
    node: str
    at: float
    formed: bool
    ready: bool
    signature: str
    sentence: str


@dataclass(frozen=True)
class AddressClaim:
    """An address, with prefix length, that a fabric port had from its host's own configuration."""

    node: str
    device: str
    address: str


@dataclass(frozen=True)
class Intent:
    """What the ring is to do. Only the conductor issues one, each with an epoch above every epoch it has seen.

    `held`: sparkd gave up; want is down until an operator clears it. `blind`: a stop issued before every peer had
    been heard; it is issued again above whatever epoch a peer turns out to have. `cables` are those that were seen when
    it was issued, each as "spark1.0~spark2.1" (node and cage of both ends); all hosts plan from them. `addresses`:
    those that hosts already had on their ports, with `address_plan = "adopt"`. `revision` counts the changes within an
    epoch that leave its ranks alone: `maintenance`, `drain`; `clears` how often an operator has cleared the ring.
    `cluster`: whose members alone follow it; empty in those of an older version.
    """

    epoch: int = 0
    want: Want = "down"
    by: str = "nobody"
    reason: str = "never started"
    at: float = 0.0
    held: bool = False
    blind: bool = False
    deaths: tuple[Death, ...] = ()
    cables: tuple[str, ...] = ()
    addresses: tuple[AddressClaim, ...] = ()
    revision: int = 0
    maintenance: Maintenance | None = None
    drain: Drain | None = None
    clears: int = 0
    cluster: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """The greater one counts."""
        return self.epoch, self.revision

    @property
    def paused(self) -> bool:
        return self.maintenance is not None and self.maintenance.on

    def of(self, cluster: str) -> bool:
        return self.cluster in ("", cluster)


@dataclass(frozen=True)
class Attempt:
    """This host's part in one epoch: recorded before the unit is started, closed when it is seen to have ended.

    `stopped`: sparkd itself stopped it, so its end is no death. `incident`: what befell this host's fabric while the
    group had formed; it ends the epoch like a death. `flaps` are the ports' carrier counters at the start, `foreign`
    the addresses of others on them ("DEVICE ADDRESS"), and `cluster` is the description of the cluster of then.
    `available_kib`: see sparkd.core.settle. `gids`: index and address of the GID that each RDMA device started with,
    e.g. "3 10.77.0.1". `pci`: the ConnectX-7 functions at the start, by address, as in sparkd.core.checks.pci.mark.
    """

    epoch: int
    boot_id: str
    started_at: float
    formed: bool = False
    ready: bool = False
    stopped: str = ""
    ended_at: float | None = None
    signature: str = ""
    sentence: str = ""
    incident: str = ""
    flaps: dict[str, int] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    cluster: str = ""
    available_kib: int = 0
    gids: dict[str, str] = field(default_factory=dict)
    pci: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Its epoch cannot go on."""
        return self.ended_at is not None or bool(self.incident)


@dataclass(frozen=True)
class EndState:
    """One end of a fabric link as its own host sees it. `verified`: up, carrier, MTU, address and routes as planned."""

    device: str
    carrier: bool
    verified: bool


@dataclass(frozen=True)
class CheckOutcome:
    """The answer of one check of sparkd.core.checks; its findings are told beside it."""

    id: str
    verdict: str
    why: str


@dataclass(frozen=True)
class Report:
    """What a daemon tells its peers about its own host, and only about that.

    `instance` is new with each daemon process and `sequence` grows within it, so that a late push never replaces newer
    news. A None stands for "this host cannot tell", with the reason in `unknown`. `left`: as in sparkd.core.free.
    `probe_port`: the TCP port that peers try (sparkd.core.reach), 0 for none. `rails` are its measurements that count;
    `measuring` is what its measuring unit does now, empty while none is alive.
    """

    node: str
    instance: str
    sequence: int
    boot_id: str
    version: str
    wire: int
    intent: Intent
    attempt: Attempt | None = None
    units: tuple[RankUnit, ...] | None = None
    ends: tuple[EndState, ...] | None = None
    findings: tuple[Finding, ...] = ()
    neighbours: tuple[Neighbour, ...] | None = None
    addresses: tuple[AddressClaim, ...] = ()
    checks: tuple[CheckOutcome, ...] | None = None
    hardware: HardwareFacts | None = None
    digests: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    memory_available_kib: int = 0
    memory_total_kib: int = 0
    memory_floor_kib: int = 0
    left: tuple[Process, ...] | None = ()
    probe_port: int = 0
    rails: tuple[RailFact, ...] = ()
    measuring: str = ""


@dataclass(frozen=True)
class PeerView:
    """What is known of a peer: its last report, how long ago it last answered, and the last error when asking."""

    name: str
    report: Report | None = None
    age: float | None = None
    error: str = ""


__all__ = [
    "AddressClaim",
    "AddressFact",
    "Attempt",
    "CheckOutcome",
    "Death",
    "EndState",
    "FabricMemory",
    "Finding",
    "HelloFacts",
    "HostFacts",
    "Intent",
    "LinkFact",
    "Maintenance",
    "Neighbour",
    "NetworkFacts",
    "PeerView",
    "Phase",
    "PortBefore",
    "Process",
    "RankCondition",
    "RankUnit",
    "Report",
    "RoceFact",
    "RouteFact",
    "Severity",
    "Stage",
    "Unknown",
    "Want",
]
