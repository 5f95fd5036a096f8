"""The list of mutations, and how one is applied to a file's text."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("mutations.toml")


@dataclass(frozen=True)
class Mutation:
    """`gate`: the gate that it drops, if it drops one. `equivalent`: why no test can tell; empty if one must."""

    rule: str
    file: str
    old: str
    new: str
    gate: str = ""
    equivalent: str = ""


def mutations() -> list[Mutation]:
    return [Mutation(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutation"]]


def apply(mutation: Mutation, text: str) -> str:
    """The broken text. Raises ValueError if what is to be replaced does not stand there exactly once."""
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(f"{mutation.file}: {mutation.rule}: {mutation.old!r} stands there {count} times, not once")
    return text.replace(mutation.old, mutation.new)
