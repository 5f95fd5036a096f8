"""What came of the smoke tests that an engine passes, or not, before it is ready."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmokeCheck:
    """`seconds` it took; `sentence`: what was seen."""

    name: str
    ok: bool
    seconds: float
    sentence: str


@dataclass(frozen=True)
class SmokeRun:
    """`at`: Unix seconds. `required`: a rank whose tests fail does not come up. `sentence`: the whole in one line."""

    epoch: int
    at: float
    profile: str
    model: str
    required: bool
    ok: bool
    sentence: str
    results: tuple[SmokeCheck, ...] = ()
