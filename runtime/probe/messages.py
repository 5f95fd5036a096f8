"""What travels on the control plane, as JSON objects with a ``type``; and the first words of a connection."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from runtime.environment import Rail
from runtime.exits import ExitCode
from runtime.probe.topology import End, Link
from runtime.probe.wire import ProtocolError


@dataclass(frozen=True)
class Hello:
    """Who connects and for what: ``link`` is the index of the link, or -1 for the control plane."""

    cluster: str
    epoch: int
    world_size: int
    rank: int
    node: str
    link: int
    rails: tuple[Rail, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Who answers, and the reason of a refusal; an empty reason means welcome."""

    rank: int
    refusal: str = ""


@dataclass(frozen=True)
class Joined:
    """From rank 0 before the group has formed: the ranks it still waits for."""

    missing: tuple[int, ...]


@dataclass(frozen=True)
class Formed:
    """From rank 0: every rank is there; these are the links, in the order in which they are measured."""

    links: tuple[Link, ...]


@dataclass(frozen=True)
class Beat:
    """Sign of life: ``progress`` counts the chunks received so far, ``waiting`` is the rail waited on, or -1."""

    progress: int
    waiting: int


@dataclass(frozen=True)
class Measured:
    """Latency in seconds (median round trip), rates in Gb/s from the low end to the high one and back."""

    link: int
    latency: float
    forward: float
    backward: float


@dataclass(frozen=True)
class Leaving:
    """``rank`` was told to stop."""

    rank: int


@dataclass(frozen=True)
class Abort:
    """The group is over: the first error, as a sentence that is true on every node, and the exit code."""

    code: ExitCode
    sentence: str


Message = Hello | Answer | Joined | Formed | Beat | Measured | Leaving | Abort
_TYPES: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Hello, Answer, Joined, Formed, Beat, Measured, Leaving, Abort)
}


def encode(message: Message) -> bytes:
    """JSON in UTF-8."""
    return json.dumps({"type": type(message).__name__.lower(), **asdict(message)}, separators=(",", ":")).encode()


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The inverse of :func:`encode`.

    :raises ProtocolError: if ``data`` is no such message.
    """
    try:
        fields = json.loads(bytes(data))
        kind = _TYPES[fields.pop("type")]
        if kind is Hello:
            fields["rails"] = tuple(_checked(Rail, rail) for rail in fields["rails"])
        elif kind is Formed:
            fields["links"] = tuple(_link(link) for link in fields["links"])
        elif kind is Joined:
            fields["missing"] = tuple(int(rank) for rank in fields["missing"])
        elif kind is Abort:
            fields["code"] = ExitCode(fields["code"])
        message: Message = _checked(kind, fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"sent a message that cannot be read ({type(error).__name__})") from error
    return message


def _link(fields: dict[str, Any]) -> Link:
    fields["low"] = _checked(End, fields["low"])
    fields["high"] = _checked(End, fields["high"])
    link: Link = _checked(Link, fields)
    return link


def _checked(kind: type[Any], fields: dict[str, Any]) -> Any:
    for name, annotation in kind.__annotations__.items():
        if annotation in (int, str, float) and name in fields and type(fields[name]) is not annotation:
            raise TypeError(f"{name} is not {annotation.__name__}")
    return kind(**fields)
