"""The versioned HTTP contract, of operators and of peers, and the state on disk: types, and JSON to types and back.

The types are standard frozen dataclasses; sparkd.codec checks what comes in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkd.codec import WireError, decode, encode
from sparkd.core.incidents import Incident
from sparkd.core.model import (
    Attempt,
    Death,
    EndState,
    Finding,
    HostFacts,
    Intent,
    LinkFact,
    Maintenance,
    Neighbour,
    Report,
    RoceFact,
)
from sparkd.core.progress import Work
from sparkd.core.smokes import SmokeRun

WIRE_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    done: int
    total: int


@dataclass(frozen=True)
class RankStatus:
    rank: int
    node: str
    unit: str
    state: str
    stage: str | None
    progress: Progress | None
    text: str
    pid: int


@dataclass(frozen=True)
class PeerStatus:
    """`age`: seconds since it last answered, null if it never has."""

    node: str
    age: float | None
    error: str
    epoch: int | None
    version: str | None


@dataclass(frozen=True)
class FabricStatus:
    """`ends` and `neighbours` (who is heard on each port) are null when the host cannot tell."""

    node: str
    ends: tuple[EndState, ...] | None
    neighbours: tuple[Neighbour, ...] | None = None


@dataclass(frozen=True)
class RailEnd:
    node: str
    device: str


@dataclass(frozen=True)
class RailStatus:
    """A link as it was last measured. `gbps`: the lower of both directions, null if only the MTU was tried. `method`:
    rdma or tcp. `mtu_passed`: whether packets of 8972 bytes pass, null if no datagrams do.
    """

    a: RailEnd
    b: RailEnd
    gbps: float | None
    method: str
    mtu_passed: bool | None


@dataclass(frozen=True)
class EngineStatus:
    """`api`: where rank 0 listens. `profile`: "" for an engine that has none. `openai`: the base URL of its OpenAI
    API on rank 0's host, "" for the probe, which has none. `adapters`: what is added to it, as this host's
    profile has it.
    """

    name: str
    api: str
    profile: str = ""
    openai: str = ""
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True)
class BudgetStatus:
    """`used` of the `restarts` that follow the death of a formed group within `window` seconds."""

    used: int
    restarts: int
    window: float


@dataclass(frozen=True)
class NodeMemory:
    """To the nearest 64 MiB, as the node last told; null if it has not. Its rank is killed below the floor; 0: none."""

    node: str
    total_kib: int | None
    available_kib: int | None
    floor_kib: int | None


@dataclass(frozen=True)
class DrainStatus:
    """`left` of the `seconds` that requests have to come to their end. `running`: how many, null while not told."""

    by: str
    seconds: float
    left: float
    running: int | None


@dataclass(frozen=True)
class RingStatus:
    """GET /v1/ring. `node` is who answers; `waits` holds one sentence for each thing the ring waits for.

    `cables`: the complete ring that the ports hear, each as "spark1.0~spark2.1"; empty while there is none.
    `maintenance`: null unless sparkctl hold is in force. `rails`: those whose measurement counts. `drain`: null unless
    the ring drains, and then `want` is "down". `serving`: it takes requests, and as far as is known answers them.
    `work`: what the engine does now, null while it does not serve or if it does not tell.
    """

    phase: str
    want: str
    epoch: int
    summary: str
    waits: tuple[str, ...]
    ranks: tuple[RankStatus, ...]
    node: str
    conductor: str
    cluster: str
    version: str
    reason: str
    by: str
    findings: tuple[Finding, ...]
    peers: tuple[PeerStatus, ...]
    fabric: tuple[FabricStatus, ...]
    engine: EngineStatus
    deaths: tuple[Death, ...]
    cables: tuple[str, ...] = ()
    maintenance: Maintenance | None = None
    rails: tuple[RailStatus, ...] = ()
    budget: BudgetStatus | None = None
    memory: tuple[NodeMemory, ...] = ()
    work: Work | None = None
    drain: DrainStatus | None = None
    serving: bool = False


@dataclass(frozen=True)
class Operation:
    """The answer to a change: where to follow it, and the epoch it made or found in force."""

    operation: str
    epoch: int
    want: str
    summary: str


@dataclass(frozen=True)
class Trial:
    """The answer to a change with dry_run: nothing has changed. `accepted`: it would be carried out; `changes`: and the
    ring would not be as it is; else `code` and `summary` say why not. `findings`: all that is to be said of a start.
    """

    request: str
    accepted: bool
    changes: bool
    code: str
    summary: str
    epoch: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class OperationStatus:
    """`state`: running, done, failed (the ring is held), or superseded by a later epoch.

    Of one that is superseded `ended` says whether what was asked for was reached before that: done, unfinished, or
    unknown to a daemon that has started since; `superseded_by` is the next epoch, null if that is not known.
    """

    epoch: int
    want: str
    state: str
    summary: str
    ended: str = ""
    superseded_by: int | None = None


@dataclass(frozen=True)
class Event:
    """`at`: Unix seconds. `kind`: summary, intent, action, finding or error."""

    id: int
    at: float
    node: str
    kind: str
    epoch: int
    phase: str
    text: str


@dataclass(frozen=True)
class Events:
    """GET /v1/events. `last`: the newest id. `lost`: events between `after` and the first of these are not among them,
    because too many came after them, or because `after` is of the time before this daemon's start. `daemon` is new with
    each start, and ids with it."""

    events: tuple[Event, ...]
    last: int
    lost: bool = False
    daemon: str = ""


@dataclass(frozen=True)
class Lost:
    """Told to a follower of /v1/events in place of events that are gone; `last`, `daemon`: as in Events."""

    daemon: str
    last: int


@dataclass(frozen=True)
class HostStatus:
    """GET /v1/host: what this host sees of itself. A null source could not be asked; `unknown` says why."""

    node: str
    rank: int
    version: str
    host: HostFacts | None
    links: tuple[LinkFact, ...] | None
    roce: tuple[RoceFact, ...] | None
    report: Report
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class CheckStatus:
    """`verdict`: pass, fail, unknown or not-applicable; `why` is one clause for each of them."""

    id: str
    about: str
    verdict: str
    why: str


@dataclass(frozen=True)
class NodeChecks:
    """`age`: seconds since the node told this. `checks` is null when it has not, with the reason in `error`."""

    node: str
    age: float | None
    checks: tuple[CheckStatus, ...] | None
    findings: tuple[Finding, ...]
    error: str = ""


@dataclass(frozen=True)
class DoctorStatus:
    """GET /v1/doctor. `compared` and `findings` are about the ring as a whole."""

    nodes: tuple[NodeChecks, ...]
    compared: tuple[CheckStatus, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class NodeIncidents:
    """What a node has kept, the newest first. `error`: why that is not known."""

    node: str
    incidents: tuple[Incident, ...]
    error: str = ""


@dataclass(frozen=True)
class Incidents:
    """GET /v1/incidents"""

    nodes: tuple[NodeIncidents, ...]


@dataclass(frozen=True)
class NodeIncident:
    """`incident` is null if the node has kept nothing of it, or, with `error`, if that is not known."""

    node: str
    incident: Incident | None
    files: dict[str, str]
    error: str = ""


@dataclass(frozen=True)
class IncidentDetails:
    """GET /v1/incidents/EPOCH"""

    epoch: int
    nodes: tuple[NodeIncident, ...]


@dataclass(frozen=True)
class SmokeRuns:
    """GET /v1/smoke: what rank 0's host, `node`, has kept, the newest first. `error`: why that is not known."""

    node: str
    runs: tuple[SmokeRun, ...]
    error: str = ""


@dataclass(frozen=True)
class PeerRequest:
    """An operator's request, handed to the conductor; or the conductor's to a peer, to examine its host before a start.

    `request`: start, stop, clear, hold, resume or examine; `by`: who asked, and where; `reason`: of a hold; `force`: a
    stop also of a ring in maintenance; `drain`: seconds that a stop leaves to the requests that run; `expect`: the
    epoch that has to be in force; `trial`: change nothing.
    """

    request: str
    by: str
    reason: str = ""
    force: bool = False
    drain: float = 0.0
    expect: int | None = None
    trial: bool = False


@dataclass(frozen=True)
class SavedIntent:
    """/var/lib/sparkd/intent.json"""

    version: int
    intent: Intent


@dataclass(frozen=True)
class SavedAttempt:
    """/var/lib/sparkd/attempt.json"""

    version: int
    attempt: Attempt


def dumps(value: Any) -> bytes:
    """A dataclass as compact JSON text."""
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False).encode()


def loads(kind: type[T], body: bytes) -> T:
    """JSON text as a dataclass of `kind`; raises WireError."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{kind.__name__}: not JSON: {error}") from None
    return decode(kind, data)


__all__ = ["WIRE_VERSION", "WireError", "decode", "dumps", "encode", "loads"]
