"""`[launch]`: what sparkd's own launcher goes by, each value with its default and range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ring_mesh.cluster import shown

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True)
class Seconds:
    default: float
    low: float
    high: float
    why: str

    @property
    def expected(self) -> str:
        return f"seconds from {self.low:g} to {self.high:g}"

    def fits(self, value: object) -> bool:
        # To Python true is an int; nan fails the comparison.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high  # type: ignore[operator]


@dataclass(frozen=True)
class Choice:
    default: str
    choices: tuple[str, ...]
    why: str

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def fits(self, value: object) -> bool:
        return value in self.choices and isinstance(value, str)


@dataclass(frozen=True)
class Switch:
    default: bool
    why: str
    expected: str = "true or false"

    def fits(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Names:
    """A list of words, none of them twice. known: those that there are, empty where that is not known here."""

    default: tuple[str, ...]
    why: str
    known: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        words = f"of {', '.join(self.known)}" if self.known else "of names of letters, digits, _ . : and -"
        return f"a list {words}, each at most once"

    def fits(self, value: object) -> bool:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            return False
        return len(set(value)) == len(value) and all(self._is_one(name) for name in value)

    def _is_one(self, name: str) -> bool:
        return name in self.known if self.known else re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,99}", name) is not None


# The names of runtime.smoke, which runs in the rank's own world and is not imported here; a test compares the two.
SMOKE = ("health", "completion", "repeat", "stream", "arithmetic", "structured", "tools", "batch", "prompts")

LAUNCH: Mapping[str, Seconds | Choice | Switch | Names] = {
    "transport": Choice(
        "ib",
        ("ib", "any"),
        "ib: not ready before NCCL has said that it reaches every peer over InfiniBand verbs; any: sockets will do",
    ),
    "init_stuck_seconds": Seconds(120, 10, 3600, "torch.distributed has begun to form the group and does not end"),
    "stall_seconds": Seconds(600, 30, 86400, "loading without a line, a byte read or time of a processor used"),
    "load_cap_seconds": Seconds(3600, 60, 86400, "from the start to ready, whatever progress there is"),
    "canary_idle_seconds": Seconds(10, 1, 3600, "without tokens, after which one is asked for to see that it comes"),
    "canary_timeout_seconds": Seconds(20, 1, 600, "that the one token may take"),
    "hung_seconds": Seconds(60, 5, 3600, "without tokens though asked for, after which the rank is an incident"),
    "smoke": Names(("arithmetic",), "the tests that rank 0 runs before it calls itself ready", SMOKE),
    "smoke_required": Switch(True, "a failed smoke test keeps the ring from ready"),
    "plugins": Names((), "the plug-ins of SGLang that have to be installed, by entry point"),
}


def fault(name: str, value: object) -> tuple[str, str] | None:
    """(found, expected) of a value that `[launch]` cannot have; None for one that it can."""
    rule = LAUNCH[name]
    return None if rule.fits(value) else (shown(value), rule.expected)
