"""The API's JSON as text: the status of the ring on one screen. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparkd.cli import cables, ends
from sparkd.cli.answer import Json, rows, words
from sparkd.cli.text import PHASE_COLOURS, Style, bar, clean, columns, duration

SEVERITY_COLOURS = {"refuse": "red", "repair": "yellow", "warn": "yellow"}
STATE_COLOURS = {"ready": "green", "starting": "yellow", "stopping": "yellow", "ended": "red", "unknown": "yellow"}
# Reasons that say no more than who wanted what.
_ASKED = ("asked", "start asked for", "stop asked for")
# How many deaths the daemon keeps.
_KEPT = 10


def status(ring: Json, style: Style, now: float, plan: Sequence[str] = ()) -> str:
    """What GET /v1/ring says. now: Unix seconds, for the age of the last death. plan: as in `cables.block`."""
    sections = [_head(ring, style), _waits(ring, style), cables.block(ring, style, plan)]
    sections += [_ranks(ring, style), _peers(ring, style)]
    found = rows(ring, "findings")
    if found:
        sections.append([style.paint("Findings", "bold"), *findings(found, style)])
    sections.append(_last_death(ring, style, now))
    return "\n\n".join("\n".join(section) for section in sections if section)


def sentence(ring: Json) -> str:
    """The summary, which tells the phase itself."""
    return clean(ring.get("summary")) or f"{clean(ring.get('phase')) or 'unknown'}: no summary"


def findings(found: Iterable[Json], style: Style, width: int = 6) -> list[str]:
    """Lines for each finding: where and which, what was seen, what is expected, what to do. width: of the severity.

    What both ends of a cable tell of it is one.
    """
    lines = []
    for finding, *others in ends.groups(found):
        # What sparkd or time puts right asks nothing of the reader but patience.
        severity = clean(finding.get("severity"))
        word = "wait" if severity == "repair" else severity
        head = f"{clean(finding.get('node'))}: {clean(finding.get('id'))}, {clean(finding.get('subject'))}"
        if others:
            head = f"{' and '.join(map(ends.place, (finding, *others)))}: {clean(finding.get('id'))}"
        lines.append(f"  {style.paint(f'{word:<{width}}', SEVERITY_COLOURS.get(severity))}  {head}")
        lines += details(finding, style, width + 4, others)
    return lines


def details(finding: Json, style: Style, indent: int, others: Sequence[Json] = ()) -> list[str]:
    """What was seen, what is expected and what to do. others: the findings of the cable's other end."""
    seen = [clean(end.get("observed")) for end in (finding, *others)]
    if len(set(seen)) > 1:
        seen = [f"{ends.place(end)}: {text}" for end, text in zip((finding, *others), seen, strict=True)]
    lines = []
    for word, texts in (
        ("found", list(dict.fromkeys(seen))),
        ("expected", [clean(finding.get("expected"))]),
        ("fix", [clean(finding.get("fix"))]),
    ):
        start = f"{' ' * indent}{word:<8}  "
        for text in filter(None, texts):
            lines += style.wrap(text, start, " " * (indent + 10))
            start = " " * (indent + 10)
    return lines


def summary(ring: Json, phase: str) -> str:
    # Some summaries start with the phase, which stands in front of it here.
    return clean(ring.get("summary")).removeprefix(f"{phase}: ") or "no summary"


def _head(ring: Json, style: Style) -> list[str]:
    phase = clean(ring.get("phase")) or "unknown"
    first, *more = style.wrap(summary(ring, phase), f"{phase.upper()}  ", "  ")
    engine = ring.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    profile = clean(engine.get("profile"))
    runs = f"{clean(engine.get('name'))}{f' with {profile}' if profile else ''}"
    adapters = [clean(name) for name in engine.get("adapters") or ()]
    conductor = clean(ring.get("conductor"))
    told = [
        f"ring {clean(ring.get('cluster'))}, epoch {clean(ring.get('epoch'))}",
        wanted(ring),
        *_budget(ring),
        f"engine {runs}, {_address(engine, conductor)}",
        *([f"added to the engine: {', '.join(adapters)}"] if adapters else []),
        f"told by {clean(ring.get('node'))}, conductor {conductor}",
    ]
    head = style.paint(phase.upper(), PHASE_COLOURS.get(phase, "bold")) + first.removeprefix(phase.upper())
    return [head, *more, *(line for text in told for line in style.wrap(text, "  ", "    "))]


def _address(engine: Json, conductor: str) -> str:
    url = clean(engine.get("openai"))
    if engine.get("name") == "probe":
        return f"no OpenAI API; health at {clean(engine.get('api'))} on {conductor}"
    return f"OpenAI API on {conductor}: {url}" if url else f"API on {conductor} {clean(engine.get('api'))}"


def wanted(ring: Json) -> str:
    """What the ring is to do, and who or what has last said so: the API tells no more than the latest intent."""
    want, by, reason = (clean(ring.get(key)) for key in ("want", "by", "reason"))
    if by == "recovery":
        if ring.get("phase") == "held":
            return f"wanted {want}: sparkd has given up"
        restart = reason.removeprefix("restart: ")
        return f"wanted {want}; {'planned anew' if restart == reason else 'last restart'}: {restart}"
    if by in ("", "nobody"):
        return f"wanted {want}: {reason}"
    # Over which socket is for the journal.
    by = re.sub(r" \((?:uid \d+|token)\)(?: at \S+)? on ", " on ", by)
    return f"wanted {want} by {by}" if reason in _ASKED else f"wanted {want} by {by}: {reason}"


def _budget(ring: Json) -> list[str]:
    """How often the ring may still come back by itself, once it has had to."""
    budget = ring.get("budget")
    if not isinstance(budget, dict) or not budget.get("used"):
        return []
    used, restarts, window = (budget.get(key) for key in ("used", "restarts", "window"))
    if not isinstance(used, int) or not isinstance(restarts, int) or not isinstance(window, (int, float)):
        return []
    left = max(restarts - used, 0)
    return [f"restarts left: {left} of {restarts} within {window / 60:.0f} min"]


def _waits(ring: Json, style: Style) -> list[str]:
    waits = words(ring, "waits")
    title = "Waits for"
    if ring.get("phase") == "degraded":
        # Its ranks serve. What is amiss is told once, by the findings and the peers as far as they tell it.
        told = {as_wait(finding) for finding in rows(ring, "findings")}
        silent = tuple(f"{clean(peer.get('node'))} has not answered " for peer in rows(ring, "peers"))
        waits = tuple(wait for wait in waits if wait not in told and not wait.startswith(silent))
        title = "Not as it should be"
    lines = [line for wait in waits for line in style.wrap(wait, "  - ", "    ")]
    return [style.paint(title, "bold"), *lines] if lines else []


def as_wait(finding: Json) -> str:
    """The finding as a sentence, as the daemon says it among what is waited for."""
    node, subject, observed, expected = (clean(finding.get(key)) for key in ("node", "subject", "observed", "expected"))
    return f"{node}: {subject}: {observed}; expected {expected}"


def _ranks(ring: Json, style: Style) -> list[str]:
    ranks = rows(ring, "ranks")
    if not ranks:
        return []
    table = []
    for row in ranks:
        progress = row.get("progress")
        stage = clean(row.get("stage")) or "-"
        if isinstance(progress, dict) and isinstance(done := progress.get("done"), int):
            total = progress.get("total")
            if isinstance(total, int) and total > 0:
                stage = f"{stage:<10} {bar(done, total)} {done}/{total}"
        text = clean(row.get("text"))
        table.append([f"  {clean(row.get('rank'))}", clean(row.get("node")), clean(row.get("state")), stage, text])
    lines = []
    for row, cells in zip(ranks, columns(table), strict=True):
        indent = sum(len(cell) + 2 for cell in cells[:-1])
        cells[-1] = style.fit(cells[-1], indent)
        cells[2] = style.paint(cells[2], STATE_COLOURS.get(clean(row.get("state"))))
        lines.append("  ".join(cells).rstrip())
    units = sorted({clean(row.get("unit")) for row in ranks if row.get("state") != "down"})
    return [f"{style.paint('Ranks', 'bold')}  {', '.join(units)}".rstrip(), *lines]


def _peers(ring: Json, style: Style) -> list[str]:
    peers = rows(ring, "peers")
    if not peers:
        return []
    table = []
    for peer in peers:
        age, error = peer.get("age"), clean(peer.get("error"))
        heard = f"heard {duration(age)} ago" if isinstance(age, (int, float)) else "not heard yet"
        details = [f"epoch {peer['epoch']}"] if peer.get("epoch") is not None else []
        if (version := clean(peer.get("version"))) not in ("", clean(ring.get("version"))):
            details.append(f"version {version} (here {clean(ring.get('version'))})")
        if error:
            details.append(f"last error: {error}")
        table.append([f"  {clean(peer.get('node'))}", heard, ", ".join(details)])
    lines = []
    for peer, cells in zip(peers, columns(table), strict=True):
        line = style.fit("  ".join(cells).rstrip())
        lines.append(style.paint(line, "yellow" if peer.get("error") or peer.get("age") is None else None))
    return [style.paint("Peers", "bold"), *lines]


def _last_death(ring: Json, style: Style, now: float) -> list[str]:
    deaths = [death for death in rows(ring, "deaths") if isinstance(death.get("at"), (int, float))]
    if not deaths:
        return []
    death = max(deaths, key=lambda row: float(row["at"]))
    where = f"rank {clean(death.get('rank'))} on {clean(death.get('node'))}, epoch {clean(death.get('epoch'))}"
    count = f"{len(deaths)} {'or more ' if len(deaths) >= _KEPT else ''}{'death' if len(deaths) == 1 else 'deaths'}"
    ago = f"{duration(now - death['at'])} ago ({count} since the last start)"
    return [
        f"{style.paint('Last death', 'bold')}  {where}, {ago}",
        *style.wrap(clean(death.get("sentence")), "  ", "  "),
    ]
