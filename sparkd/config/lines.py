"""The lines of a TOML file that its keys are on: to be named, and to be changed without touching any other.

Not a second reader of TOML: what a change makes of a file is read back with the real one and compared, so that a form
that is not understood here is refused and never spoilt.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

_HEADER = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<name>[^\[\]]+?)\s*\]?\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?P<key>[A-Za-z0-9_.\-"' ]+?)\s*=\s*(?P<value>.*)""")
# A value of one line: a string, or what has no quotes and brackets in it; then perhaps a comment.
_VALUE = re.compile(r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^#"'\[{]+?)(?P<rest>\s*(?:#.*)?)""")


@dataclass(frozen=True)
class Place:
    """number: counted from 1. key: the whole dotted path, with the index of a table in a list, as in `node[1].rank`."""

    number: int
    key: str


def places(text: str) -> Iterator[Place]:
    """Where each key begins, and each table."""
    table = ""
    counts: dict[str, int] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if (header := _HEADER.fullmatch(line)) is not None and (header["array"] or "=" not in line):
            table = _plain(header["name"])
            if header["array"]:
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            yield Place(number, table)
        elif (key := _KEY.fullmatch(line)) is not None and not line.lstrip().startswith("#"):
            yield Place(number, f"{table}.{_plain(key['key'])}" if table else _plain(key["key"]))
            for quotes in ('"""', "'''"):
                if key["value"].count(quotes) == 1:
                    inside = quotes


def numbers(text: str) -> dict[str, int]:
    """The line of each key and table; of one that is there twice, which is no TOML, the first."""
    known: dict[str, int] = {}
    for place in places(text):
        known.setdefault(place.key, place.number)
    return known


class NotUnderstood(Exception):
    """The file has a form that is not changed here; the message says which line."""


def with_value(text: str, key: str, value: str) -> str:
    """The text with that value, which is TOML, at the key TABLE.NAME; all other lines as they are.

    Raises NotUnderstood, also if the outcome would differ from the file in anything else.
    """
    table, _, name = key.partition(".")
    lines = text.splitlines()
    found = {place.key: place.number for place in places(text)}
    if key in found:
        line = lines[found[key] - 1]
        start = line.index("=") + 1
        old = _VALUE.fullmatch(line[start:].lstrip())
        if old is None:
            raise NotUnderstood(f"line {found[key]}: a value over several lines, or a list")
        lines[found[key] - 1] = f"{line[:start]} {value}{old['rest']}"
    elif table in found:
        lines.insert(found[table], f"{name} = {value}")
    else:
        lines += [*([""] if lines else []), f"[{table}]", f"{name} = {value}"]
    return _checked(text, "\n".join([*lines, ""]), table, name, tomllib.loads(f"it = {value}")["it"])


def without(text: str, key: str) -> str:
    """The text without the line of the key; as it is if it has none. Raises NotUnderstood."""
    table, _, name = key.partition(".")
    number = next((place.number for place in places(text) if place.key == key), None)
    if number is None:
        return text
    lines = text.splitlines()
    del lines[number - 1]
    return _checked(text, "\n".join([*lines, ""]), table, name, None)


def _checked(before: str, after: str, table: str, name: str, value: Any) -> str:
    expected = deepcopy(tomllib.loads(before))
    inner = expected.setdefault(table, {})
    if not isinstance(inner, dict):
        raise NotUnderstood(f"{table}: no table")
    if value is None:
        inner.pop(name, None)
    else:
        inner[name] = value
    try:
        same = tomllib.loads(after) == expected
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise NotUnderstood(f"{table}.{name}: it is written in a way that only an editor can change")
    return after


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
