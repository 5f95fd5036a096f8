"""Reading the API's JSON, which may be of a daemon of another version: what is not there is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkd.cli.text import clean

Json = Mapping[str, Any]
STALE = 15.0
"""Seconds without an answer after which a node's word is of the past: the default of [peers] in sparkd.toml."""


def rows(table: Json, key: str) -> list[Json]:
    """The objects in a list of the answer; nothing if it has no such list."""
    value = table.get(key)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def words(table: Json, key: str) -> tuple[str, ...]:
    """The texts in a list of the answer."""
    value = table.get(key)
    return tuple(clean(word) for word in value if isinstance(word, str)) if isinstance(value, list) else ()


def members(ring: Json) -> list[str]:
    """The nodes by rank."""
    ranks = [row for row in rows(ring, "ranks") if isinstance(row.get("rank"), int)]
    return [clean(row.get("node")) for row in sorted(ranks, key=lambda row: int(row["rank"]))]


def number(value: Any) -> float | None:
    """A JSON number; to Python true is one."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
