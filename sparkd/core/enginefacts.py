"""What is known of the engine that ranks run: its profile, and the package that is installed for it."""

from __future__ import annotations

from dataclasses import dataclass, field

ADAPTERS = "engine.adapters."
"""What begins the key of an adapter's gate, and of its options, among the digests."""

PROBE = "probe"


@dataclass(frozen=True)
class Fault:
    """One fault of a profile, or of what it asks for: where it is written, what is there, and what is expected."""

    file: str
    key: str
    found: str
    expected: str


@dataclass(frozen=True)
class EngineFacts:
    """`wanted`: the version that the profile is written for, "" while it cannot be used, which `faults` say why.

    `version` is that of the installed SGLang, "" without one; `interpreter`: that `python` is there. `strangers` are
    what this SGLang does not know of the profile's options and variables. None is for what could not be told, with the
    reason in `why`. `digests`: what has to be equal on all hosts, here so that a change of it is a change of the facts.
    """

    name: str
    profile: str = ""
    python: str = ""
    wanted: str = ""
    allowed: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    version: str | None = ""
    interpreter: bool = True
    strangers: tuple[Fault, ...] | None = None
    why: str = ""
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return bool(self.wanted) and self.version in (self.wanted, *self.allowed)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Those that are on, by name: what hosts compare has a gate for each, and beside it their options."""
        gates = (key.removeprefix(ADAPTERS) for key, value in self.digests.items() if value == "true")
        return tuple(sorted(gate for gate in gates if ADAPTERS + gate in self.digests and "." not in gate))
