"""doctor: every check of every node, the worst first."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkd.cli import render
from sparkd.cli.answer import STALE, Json, number, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit
from sparkd.cli.text import Style, clean, duration, say, style_of

_ORDER = ("refuse", "unknown", "wait", "warn", "pass", "n/a")
_COLOURS = {"refuse": "red", "unknown": "yellow", "wait": "yellow", "warn": "yellow", "pass": "green", "n/a": "dim"}
_WORDS = {"pass": "pass", "not-applicable": "n/a", "unknown": "unknown"}
_SEVERITIES = {"refuse": "refuse", "repair": "wait", "warn": "warn"}


@dataclass(frozen=True)
class Entry:
    """One answer of one check. word: one of _ORDER. Only what failed has findings, as in the API."""

    word: str
    id: str
    about: str
    why: str = ""
    finding: Json | None = None


@dataclass(frozen=True)
class Section:
    """What is known of one node, or of all together."""

    name: str
    note: str
    entries: tuple[Entry, ...]


def doctor(client: Client, *, as_json: bool, everything: bool) -> Exit:
    """Print the checks, those that pass as well if `everything`.

    ERROR if what failed refuses a start, DOUBT if anything else is not as it should be or cannot be told.
    """
    answer = client.get("/v1/doctor")
    found = sections(answer)
    say(json.dumps(answer, indent=2) if as_json else text(found, style_of(sys.stdout), everything=everything))
    return verdict(found)


def verdict(found: Sequence[Section]) -> Exit:
    """How the command ends: by the worst of all entries. Nothing at all is not a pass."""
    words = {entry.word for section in found for entry in section.entries}
    if "refuse" in words:
        return Exit.ERROR
    return Exit.OK if words and words <= {"pass", "n/a"} else Exit.DOUBT


def sections(answer: Json) -> list[Section]:
    """The nodes as the API lists them, then what compares them; in each the worst entries first. Pure."""
    found = []
    for node in rows(answer, "nodes"):
        name = clean(node.get("node"))
        found.append(Section(name, _age(node), _sorted([*_entries(node, "checks", name), *_silence(node)])))
    return [*found, Section("All nodes", "compared", _sorted(_entries(answer, "compared", "")))]


def text(found: Sequence[Section], style: Style, *, everything: bool) -> str:
    """The sections, each with a count of its entries. Pure."""
    parts = []
    for section in found:
        counts = Counter(entry.word for entry in section.entries)
        told = ", ".join(f"{counts[word]} {word}" for word in _ORDER if counts[word]) or "nothing to tell"
        note = f" ({section.note})" if section.note else ""
        lines = style.wrap(f"{section.name}{note}: {told}", "", "  ")
        lines[0] = style.paint(section.name, "bold") + lines[0].removeprefix(section.name)
        for entry in section.entries:
            if everything or entry.word not in ("pass", "n/a"):
                lines += _lines(entry, style)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _lines(entry: Entry, style: Style) -> list[str]:
    word = style.paint(f"{entry.word:<7}", _COLOURS[entry.word])
    head, *more = style.wrap(": ".join(part for part in (entry.id, entry.about) if part), " " * 11, " " * 11)
    lines = [f"  {word}  {head.lstrip()}", *more]
    if entry.finding is not None:
        return lines + render.details(entry.finding, style, 11)
    return lines + (style.wrap(entry.why, " " * 11, " " * 11) if entry.why else [])


def _entries(table: Json, key: str, node: str) -> Iterator[Entry]:
    """Each check, with its findings if it failed; then the findings of what is no check, such as the cables."""
    findings: list[Json] = []
    for finding in rows(table, "findings"):
        if finding not in findings:
            findings.append(finding)
    checks = rows(table, key)
    for check in checks:
        id_, about, why = (clean(check.get(name)) for name in ("id", "about", "why"))
        own = [finding for finding in findings if clean(finding.get("id")) == id_]
        if check.get("verdict") != "fail":
            # A verdict that this version does not know is one that cannot be told.
            yield Entry(_WORDS.get(clean(check.get("verdict")), "unknown"), id_, about, why)
        elif not own:
            yield Entry("refuse", id_, about, why)
        yield from (_failed(finding, node) for finding in own)
        findings = [finding for finding in findings if finding not in own]
    yield from (_failed(finding, node) for finding in findings)


def _failed(finding: Json, node: str) -> Entry:
    # unknown-is-a-state refuses a start like a failure, and still nobody has seen one.
    id_ = clean(finding.get("id"))
    word = _SEVERITIES.get(clean(finding.get("severity")), "refuse")
    word = "unknown" if id_ == "unknown-is-a-state" else word
    where, subject = clean(finding.get("node")), clean(finding.get("subject"))
    return Entry(word, id_, subject if where == node else f"{where}, {subject}", "", finding)


def _silence(node: Json) -> Iterator[Entry]:
    """What a node that does not answer leaves unknown."""
    age, error = number(node.get("age")), clean(node.get("error"))
    if not isinstance(node.get("checks"), list):
        why = error or ("it has not looked at itself yet" if age is not None else "it has not answered yet")
        yield Entry("unknown", "checks", "what this node would say of itself", why)
    elif age is None or age > STALE:
        since = "never" if age is None else f"{duration(age)} ago"
        why = f"it answered last {since}{error and f': {error}'}; what follows is of then"
        yield Entry("unknown", "checks", "whether this still holds", why)


def _age(node: Json) -> str:
    age = number(node.get("age"))
    return "" if age is None or age <= STALE else f"{duration(age)} ago"


def _sorted(entries: Iterator[Entry] | Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: _ORDER.index(entry.word)))
