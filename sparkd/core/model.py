"""The words of the core: what is wanted (Intent), what was seen (units, network), what peers are told (Report).

Wanted and observed are different types. Everything here is a frozen dataclass of plain values, so that the same types
are the wire format between daemons (see sparkd.wire) and the state on disk (see sparkd.host.store).
Times are Unix seconds unless a name says otherwise; ages and durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Want = Literal["up", "down"]
Phase = Literal["down", "gated", "starting", "ready", "degraded", "stopping", "held"]
Severity = Literal["refuse", "repair", "warn"]
Stage = Literal["init", "rendezvous", "formed", "load", "capture", "warmup", "ready", "failed"]
RankCondition = Literal["down", "starting", "ready", "stopping", "ended", "unknown"]
STAGES: tuple[Stage, ...] = ("init", "rendezvous", "formed", "load", "capture", "warmup", "ready", "failed")

# ActiveState values in which a unit's processes may exist.
ALIVE_STATES = frozenset({"active", "activating", "deactivating", "reloading"})


@dataclass(frozen=True)
class Unknown:
    """A source that could not be asked. It has not said no: nothing may be concluded from it but that it is unknown."""

    why: str


@dataclass(frozen=True)
class Finding:
    """One check that did not pass, as refusals, doctor and status show it.

    `severity`: refuse blocks a start, repair is put right by sparkd itself before a start, warn blocks nothing.
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
class Intent:
    """What the ring is to do. Only the conductor issues one, each with an epoch above every epoch it has seen.

    `held`: sparkd gave up; want is down until an operator clears it. `blind`: a stop issued before every peer had
    been heard; it is issued again above whatever epoch a peer turns out to have.
    """

    epoch: int = 0
    want: Want = "down"
    by: str = "nobody"
    reason: str = "never started"
    at: float = 0.0
    held: bool = False
    blind: bool = False
    deaths: tuple[Death, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """This host's part in one epoch: recorded before the unit is started, closed when it is seen to have ended.

    `stopped`: sparkd itself stopped it, so its end is no death.
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


@dataclass(frozen=True)
class RankUnit:
    """One loaded `sparkd-rank@EPOCH.service` as systemd shows it.

    `job` is the type of a queued job ("start", "stop", or empty): between StartUnit's answer and the fork the unit is
    still inactive and only its job tells that it is about to live.
    """

    epoch: int
    active: str
    sub: str = ""
    job: str = ""
    main_pid: int = 0
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0
    text: str = ""

    @property
    def name(self) -> str:
        return f"sparkd-rank@{self.epoch}.service"

    @property
    def alive(self) -> bool:
        return self.active in ALIVE_STATES or self.job in {"start", "restart"}

    @property
    def runs(self) -> bool:
        """Its main process exists and nothing is ending it."""
        return self.active in {"active", "activating"} and self.main_pid > 0


@dataclass(frozen=True)
class LinkFact:
    """One network device. `carrier_changes` counts every flap; netlink events miss short ones."""

    device: str
    up: bool
    carrier: bool
    mtu: int
    mac: str = ""
    carrier_changes: int = 0


@dataclass(frozen=True)
class AddressFact:
    """One IPv4 address with prefix length, e.g. 10.77.0.1/24. `label` is the kernel's IFA_LABEL."""

    device: str
    address: str
    label: str = ""


@dataclass(frozen=True)
class RouteFact:
    """One unicast IPv4 route of the main table. `destination` in CIDR form; gateway and source empty when absent."""

    destination: str
    device: str
    gateway: str = ""
    source: str = ""
    protocol: int = 0


@dataclass(frozen=True)
class NetworkFacts:
    links: tuple[LinkFact, ...] = ()
    addresses: tuple[AddressFact, ...] = ()
    routes: tuple[RouteFact, ...] = ()

    def link(self, device: str) -> LinkFact | None:
        return next((link for link in self.links if link.device == device), None)


@dataclass(frozen=True)
class RoceFact:
    """One RDMA device of /sys/class/infiniband. `state` is port 1's, e.g. "ACTIVE"."""

    hca: str
    state: str = ""
    netdev: str = ""


@dataclass(frozen=True)
class HostFacts:
    boot_id: str
    memory_total_kib: int = 0
    memory_available_kib: int = 0
    kernel: str = ""


@dataclass(frozen=True)
class EndState:
    """One end of a fabric link as its own host sees it. `verified`: up, carrier, MTU, address and routes as planned."""

    device: str
    carrier: bool
    verified: bool


@dataclass(frozen=True)
class Report:
    """What a daemon tells its peers about its own host, and only about that.

    `instance` is new with each daemon process and `sequence` grows within it, so that a late push never replaces newer
    news. A None stands for "this host cannot tell", with the reason in `unknown`.
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
    digests: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    memory_available_kib: int = 0


@dataclass(frozen=True)
class PeerView:
    """What is known of a peer: its last report, how long ago it last answered, and the last error when asking."""

    name: str
    report: Report | None = None
    age: float | None = None
    error: str = ""
