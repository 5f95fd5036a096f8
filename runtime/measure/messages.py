"""What two hosts tell each other on the management network while they measure, as JSON objects."""

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from runtime.probe.wire import Channel, Kind, ProtocolError

T = TypeVar("T")
LIMIT = 8192


@dataclass(frozen=True)
class Plan:
    """First words: the links this side wants measured, and those that it can measure with RDMA."""

    wanted: list[int]
    rdma: list[int]


@dataclass(frozen=True)
class Ready:
    """This side stands ready for a link. ``problem``: why it cannot measure it; empty if it can."""

    link: int
    problem: str = ""


@dataclass(frozen=True)
class Arrived:
    """Which datagrams of the other side have arrived here."""

    small: bool
    large: bool


@dataclass(frozen=True)
class Serving:
    """The server of a measurement listens, or could not be started."""

    problem: str = ""


@dataclass(frozen=True)
class Rates:
    """Gb/s of one or both directions; None and a problem where there is none."""

    gbps: float | None
    problem: str = ""


async def tell(channel: Channel, message: object, patience: float) -> None:
    """Send one message.

    :raises ChannelError: the connection failed.
    """
    fields = {"type": type(message).__name__, **asdict(message)}  # type: ignore[call-overload]
    await channel.send(Kind.MESSAGE, json.dumps(fields, separators=(",", ":")).encode(), patience)


async def hear(channel: Channel, kind: type[T], patience: float) -> T:
    """Receive one message of exactly that type.

    :raises ChannelError: the connection failed, or the other side sent something else.
    """
    payload = await channel.expect(Kind.MESSAGE, patience, LIMIT)
    try:
        fields = json.loads(bytes(payload))
        if fields.pop("type") != kind.__name__:
            raise TypeError("another type")
        return kind(**{name: _checked(kind, name, value) for name, value in fields.items()})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"sent what is no {kind.__name__} ({type(error).__name__})") from error


def _checked(kind: type[Any], name: str, value: object) -> object:
    wanted = kind.__annotations__[name]
    if wanted == list[int]:
        fine = isinstance(value, list) and all(type(item) is int for item in value)
    elif wanted == float | None:
        fine = value is None or (type(value) is float and 0 <= value < 1e6)
    else:
        fine = type(value) is wanted
    if not fine:
        raise TypeError(f"{name} is not {wanted}")
    return value
