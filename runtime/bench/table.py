"""The report as text."""

import textwrap
from collections.abc import Sequence

from runtime.bench.histograms import Percentiles
from runtime.bench.report import Decode, Prefill, Report, Spread

WIDTH = 110


def table(report: Report) -> str:
    """All of it: what was measured on, both tables, and what is to be known about the figures."""
    lines = [f"{report.date}", *_pairs("machine", report.machine), *_pairs("engine", report.engine)]
    lines += _pairs("settings", report.settings)
    if report.decode:
        lines += ["", "decode: tokens per second of all streams together; milliseconds", *_decode(report.decode)]
    if report.prefill:
        lines += ["", "prefill: tokens per second up to the first token; milliseconds", *_prefill(report.prefill)]
    if notes := [*report.notes, *_noted(report)]:
        lines += [
            "",
            *(line for note in notes for line in textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")),
        ]
    if report.failed:
        lines += ["", *textwrap.wrap(f"FAILED, and ended there: {report.failed}", WIDTH, subsequent_indent="  ")]
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines, each column as wide as its widest cell, aligned to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def milliseconds(seconds: float) -> str:
    """Three digits that say something."""
    value = seconds * 1000
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _noted(report: Report) -> list[str]:
    """Notes on cases; one that is the same for several stands once."""
    found: dict[tuple[str, str], list[int]] = {}
    for case in report.decode:
        for note in case.notes:
            found.setdefault(("decode at", note), []).append(case.streams)
    for filled in report.prefill:
        for note in filled.notes:
            found.setdefault(("prefill of", note), []).append(filled.tokens)
    return [f"{what} {', '.join(map(str, which))}: {note}" for (what, note), which in found.items()]


def _pairs(name: str, pairs: object) -> list[str]:
    if not isinstance(pairs, dict) or not pairs:
        return []
    text = "; ".join(f"{key} {value}" for key, value in pairs.items())
    return textwrap.wrap(f"{name}: {text}", WIDTH, subsequent_indent="  ", break_long_words=False)


def _decode(cases: Sequence[Decode]) -> list[str]:
    head = ["streams", "tok/s", "low-high", "per stream", "TTFT", "low-high", "tok/msg"]
    head += ["engine p50", "p90", "p99", "client p50", "p90", "p99"]
    rows = [head]
    for case in cases:
        row = [str(case.streams), f"{case.tokens_per_second.median:.1f}", _range(case.tokens_per_second)]
        row += [f"{case.tokens_per_second.median / case.streams:.1f}", *_time(case.ttft)]
        row += [f"{case.tokens_per_message:.2f}", *_percentiles(case.engine), *_percentiles(case.client)]
        rows.append(row)
    return align(rows)


def _prefill(cases: Sequence[Prefill]) -> list[str]:
    rows = [["tokens", "tok/s", "low-high", "TTFT", "low-high", "from cache"]]
    for case in cases:
        row = [str(case.tokens), f"{case.tokens_per_second.median:.1f}", _range(case.tokens_per_second)]
        rows.append([*row, *_time(case.ttft), "?" if case.cached is None else str(case.cached)])
    return align(rows)


def _range(spread: Spread) -> str:
    return f"{spread.low:.1f}-{spread.high:.1f}"


def _time(spread: Spread) -> list[str]:
    return [milliseconds(spread.median), f"{milliseconds(spread.low)}-{milliseconds(spread.high)}"]


def _percentiles(found: Percentiles | None) -> list[str]:
    if found is None:
        return ["-"] * 3
    # Above the histogram's last bound nobody knows how far.
    return [
        f"{'>' if found.beyond is not None and value >= found.beyond else ''}{milliseconds(value)}"
        for value in (found.p50, found.p90, found.p99)
    ]
