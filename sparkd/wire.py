"""The versioned HTTP contract, of operators and of peers, and the state on disk: types, and JSON to types and back.

The types are standard frozen dataclasses; pydantic only checks what comes in, in the intersection of its versions 1
(Debian 12, Ubuntu 24.04) and 2 (later).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic

from sparkd.core.model import Attempt, Death, EndState, Finding, HostFacts, Intent, LinkFact, Report, RoceFact

WIRE_VERSION = 1
T = TypeVar("T")


class WireError(ValueError):
    """JSON that does not fit the type it should be; the message names the field."""


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
    """`ends` is null when the host cannot tell."""

    node: str
    ends: tuple[EndState, ...] | None


@dataclass(frozen=True)
class EngineStatus:
    name: str
    api: str


@dataclass(frozen=True)
class RingStatus:
    """GET /v1/ring. `node` is who answers; `waits` holds one sentence for each thing the ring waits for."""

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


@dataclass(frozen=True)
class Operation:
    """The answer to a change: where to follow it, and the epoch it made or found in force."""

    operation: str
    epoch: int
    want: str
    summary: str


@dataclass(frozen=True)
class OperationStatus:
    """`state`: running, done, failed (the ring is held), or superseded by a later epoch."""

    epoch: int
    want: str
    state: str
    summary: str


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
    events: tuple[Event, ...]
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
class PeerRequest:
    """An operator's request, handed to the conductor. `request`: start, stop or clear; `by`: who asked, and where."""

    request: str
    by: str


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


def encode(value: Any) -> Any:
    """A dataclass as plain JSON values: dict, list, str, numbers, None."""
    return dataclasses.asdict(value)


def dumps(value: Any) -> bytes:
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False).encode()


def decode(kind: type[T], data: Any) -> T:
    """JSON values as a dataclass of `kind`. Unknown fields are passed over, so that a newer peer is understood.

    Raises WireError, naming the field, for a missing field or a wrong type.
    """
    try:
        return _parse(kind, data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "__root__")
        raise WireError(f"{kind.__name__}.{where}: {first['msg']}") from None


def loads(kind: type[T], body: bytes) -> T:
    """As `decode`, from JSON text."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise WireError(f"{kind.__name__}: not JSON: {error}") from None
    return decode(kind, data)


if pydantic.VERSION.startswith("1."):

    def _parse(kind: type[T], data: Any) -> T:
        return pydantic.parse_obj_as(kind, data)

else:

    def _parse(kind: type[T], data: Any) -> T:
        parsed: T = _adapter(kind).validate_python(data)
        return parsed

    _ADAPTERS: dict[type[Any], Any] = {}

    def _adapter(kind: type[Any]) -> Any:
        if kind not in _ADAPTERS:
            _ADAPTERS[kind] = pydantic.TypeAdapter(kind)
        return _ADAPTERS[kind]
