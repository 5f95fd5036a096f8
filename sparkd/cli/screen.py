"""`sparkctl status` on a terminal: the ring on one screen of 80 columns and 24 lines. Pure.

What is told where: memory, and tokens per second, are in GET /v1/ring as `memory` and `work`. A daemon that does not
tell the first yet tells that of its own host in GET /v1/host; of the second, rank 0 tells in the text of its stage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkd.cli import ends, render, wires
from sparkd.cli.answer import STALE, Json, number, rows, words
from sparkd.cli.text import PHASE_COLOURS, Style, clean, columns, duration

_GIB = 1024 * 1024  # KiB
_WORK = re.compile(r"(\d+(?:\.\d+)?) tokens/s, (\d+) running, (\d+) queued")
_LEAST = 4  # lines for what is waited for and what is wrong, however small the terminal is
_SERVES = ("ready", "degraded", "draining")
_BAR = 10


@dataclass(frozen=True)
class Beside:
    """What is told by others than GET /v1/ring. plan: the cables to show while no ring is heard. incident: the newest
    that is on record, with `epoch`, `at`, `sentence`. memory: KiB that are left, by node."""

    plan: Sequence[str] = ()
    incident: Json | None = None
    memory: Mapping[str, float] = field(default_factory=dict)


def screen(
    ring: Json, style: Style, now: float, beside: Beside, *, fancy: bool, height: int | None = None
) -> list[str]:
    """now: Unix seconds. height: lines that there are, below which what is wrong is cut short, with a word about it."""
    sections = [_head(ring, style), wires.picture(ring, style, fancy=fancy, plan=beside.plan)]
    last, wrong = _last(ring, style, now, beside), _wrong(ring, style)
    sections += [_ranks(ring, style, beside, fancy=fancy), _peers(ring, style)]
    if height is not None and sum(map(len, [*sections, last])) + min(len(wrong), _LEAST) > height:
        last = last[:1]
    sections = [section for section in [*sections, last] if section]
    if wrong and height is not None:
        taken = sum(len(section) + 1 for section in sections)
        room = max(height - taken, _LEAST)
        if len(wrong) > room:
            more = style.fit(f"  and {len(wrong) - room + 1} lines more: sparkctl status --full")
            wrong = [*wrong[: room - 1], style.paint(more, "dim")]
    if wrong:
        sections.insert(1, wrong)
    lines: list[str] = []
    for section in sections:
        # Where there is no room to spare, sections follow each other without a line between.
        lines += [*([""] if lines and _roomy(sections, height) else []), *section]
    return lines


def _roomy(sections: Sequence[Sequence[str]], height: int | None) -> bool:
    return height is None or sum(map(len, sections)) + len(sections) - 1 <= height


def _head(ring: Json, style: Style) -> list[str]:
    phase = clean(ring.get("phase")) or "unknown"
    summary = render.summary(ring, phase)
    first, *more = style.wrap(summary, f"{phase.upper()}  ", "  ")[:2]
    engine = ring.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    profile = clean(engine.get("profile"))
    ring_is = f"ring {clean(ring.get('cluster'))}, epoch {clean(ring.get('epoch'))}, {render.wanted(ring)}"
    told = [style.fit(f"  {', '.join([ring_is, *_restarts(ring)])}")]
    runs = f"{clean(engine.get('name'))}{f' with {profile}' if profile else ''}"
    told.append(style.fit(f"  {', '.join([runs, _address(ring, engine), *_work(ring)])}"))
    head = style.paint(phase.upper(), PHASE_COLOURS.get(phase, "bold")) + first.removeprefix(phase.upper())
    return [head, *more, *told]


def _address(ring: Json, engine: Json) -> str:
    """Where programs find the engine: its OpenAI API, if it has one."""
    conductor = clean(ring.get("conductor"))
    openai = clean(engine.get("openai"))
    if not openai and engine.get("name") != "probe" and engine.get("api"):
        openai = f"http://{clean(engine.get('api'))}/v1"
    if openai:
        return f"OpenAI API {openai} on {conductor}"
    return f"no OpenAI API; health at {clean(engine.get('api'))} on {conductor}"


def _restarts(ring: Json) -> list[str]:
    budget = ring.get("budget")
    budget = budget if isinstance(budget, dict) else {}
    used, restarts = number(budget.get("used")), number(budget.get("restarts"))
    return [] if used is None or restarts is None else [f"{used:.0f} of {restarts:.0f} restarts used"]


def _work(ring: Json) -> list[str]:
    """Tokens per second, of an engine that tells."""
    if ring.get("phase") not in _SERVES:
        return []
    work = ring.get("work")
    if isinstance(work, dict) and (rate := number(work.get("tokens_per_second"))) is not None:
        return [f"{rate:.1f} tokens/s, {clean(work.get('running'))} running, {clean(work.get('queued'))} queued"]
    text = next((clean(row.get("text")) for row in rows(ring, "ranks") if row.get("rank") == 0), "")
    match = _WORK.search(text)
    return [match[0]] if match else []


def _wrong(ring: Json, style: Style) -> list[str]:
    """What is waited for and what is not as it should be, each with what to do, in as few lines as that takes."""
    found = rows(ring, "findings")
    told = {render.as_wait(finding) for finding in found}
    lines = []
    for finding, *others in ends.groups(found):
        severity = clean(finding.get("severity"))
        word = "wait" if severity == "repair" else severity
        where = " and ".join(map(ends.place, (finding, *others))) if others else ends.place(finding)
        colour = render.SEVERITY_COLOURS.get(severity)
        head = style.wrap(f"{where}: {clean(finding.get('observed'))}", f"  {word:<6}  ", " " * 10)
        lines += [f"  {style.paint(word, colour)}{head[0][2 + len(word) :]}", *head[1:]]
        if fix := clean(finding.get("fix")):
            lines += style.wrap(f"-> {fix}", " " * 10, " " * 13)
    waits = [wait for wait in words(ring, "waits") if wait not in told]
    if ring.get("phase") == "degraded":
        silent = tuple(f"{clean(peer.get('node'))} has not answered " for peer in rows(ring, "peers"))
        waits = [wait for wait in waits if not wait.startswith(silent)]
    # What a rank of its own line says is not told twice.
    waits = [wait for wait in waits if not re.match(r"rank \d+ \(", wait)]
    lines = [line for wait in waits for line in style.wrap(wait, "  waits   ", " " * 10)] + lines
    summary = clean(ring.get("summary"))
    return [] if len(waits) == 1 and len(found) == 0 and waits[0] in summary else lines


def _ranks(ring: Json, style: Style, beside: Beside, *, fancy: bool) -> list[str]:
    ranks = rows(ring, "ranks")
    if not ranks:
        return []
    left = _memory(ring, beside)
    table = [["Rank", "node", "state", "stage", *(["memory left"] if left else []), ""]]
    for row in ranks:
        node = clean(row.get("node"))
        kib = left.get(node)
        memory = [f"{kib / _GIB:.1f} GiB" if kib is not None else "?"] if left else []
        stage = _stage(row, fancy=fancy)
        table.append(
            [f"  {clean(row.get('rank'))}", node, clean(row.get("state")), stage, *memory, clean(row.get("text"))]
        )
    lines = []
    for index, cells in enumerate(columns(table)):
        line = style.fit("  ".join(cells).rstrip())
        state = clean(ranks[index - 1].get("state")) if index else ""
        if index and (colour := render.STATE_COLOURS.get(state)):
            start = len(cells[0]) + len(cells[1]) + 4
            line = line[:start] + style.paint(line[start : start + len(state)], colour) + line[start + len(state) :]
        lines.append(line if index else style.paint(line, "bold"))
    return lines


def _stage(row: Json, *, fancy: bool) -> str:
    stage = clean(row.get("stage")) or "-"
    progress = row.get("progress")
    if not isinstance(progress, dict):
        return stage
    done, total = number(progress.get("done")), number(progress.get("total"))
    if done is None or not total or total < 0:
        return stage
    filled = _BAR if done >= total else int(max(done, 0) * _BAR // total)
    full, empty = ("█", "░") if fancy else ("#", "-")
    return f"{stage:<7} {full * filled}{empty * (_BAR - filled)} {done:.0f}/{total:.0f}"


def _memory(ring: Json, beside: Beside) -> dict[str, float]:
    """KiB that are left on each node, as far as that is known."""
    told = {clean(row.get("node")): number(row.get("available_kib")) for row in rows(ring, "memory")}
    known = {node: kib for node, kib in told.items() if kib is not None}
    return {**beside.memory, **known}


def _peers(ring: Json, style: Style) -> list[str]:
    """Those that are silent, or of another version: of the others there is nothing to say."""
    lines = []
    for peer in rows(ring, "peers"):
        age, error, version = number(peer.get("age")), clean(peer.get("error")), clean(peer.get("version"))
        parts = []
        if age is None or age > STALE or error:
            heard = "not heard yet" if age is None else f"heard {duration(age)} ago"
            parts.append(f"{heard}{f', last error: {error}' if error else ''}")
        if version not in ("", clean(ring.get("version"))):
            parts.append(f"runs sparkd {version} (here {clean(ring.get('version'))})")
        if parts:
            lines.append(style.paint(style.fit(f"  {clean(peer.get('node'))}: {'; '.join(parts)}"), "yellow"))
    return lines


def _last(ring: Json, style: Style, now: float, beside: Beside) -> list[str]:
    """The newest of what has failed: a death since the last start, or what the nodes have on record."""
    known = [row for row in (*rows(ring, "deaths"), beside.incident or {}) if number(row.get("at")) is not None]
    if not known:
        return []
    newest = max(known, key=lambda row: float(row["at"]))
    epoch = clean(newest.get("epoch"))
    first, *more = style.wrap(
        f"epoch {epoch}, {duration(now - float(newest['at']))} ago: {clean(newest.get('sentence'))}",
        "Last incident  ",
        "  ",
    )[:2]
    hint = style.paint(style.fit(f"  sparkctl incidents show {epoch}"), "dim")
    return [style.paint("Last incident", "bold") + first.removeprefix("Last incident"), *more, hint]
