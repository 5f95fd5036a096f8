"""A report beside an older one: what changed between them, and the ratios."""

from collections.abc import Mapping

from runtime.bench.report import Report, Spread
from runtime.bench.table import align, milliseconds


def against(new: Report, old: Report) -> str:
    """Ratios of the cases that both have, new by old; above 1 is faster for rates, slower for times.

    A change within the spread of either is marked: it may be chance.
    """
    lines = [f"against {old.date}: new, old, and new/old"]
    for name, now, then in (
        ("machine", new.machine, old.machine),
        ("engine", new.engine, old.engine),
        ("settings", new.settings, old.settings),
    ):
        lines += [f"differs in {name}: {text}" for text in _differences(now, then)]
    rows = [["case", "tok/s", "old", "ratio", "TTFT", "old", "ratio", "p50", "old", "ratio", ""]]
    before = {case.streams: case for case in old.decode}
    for case in new.decode:
        if (was := before.get(case.streams)) is None:
            continue
        row = [f"decode at {case.streams}", *_rates(case.tokens_per_second.median, was.tokens_per_second.median)]
        row += _times(case.ttft.median, was.ttft.median)
        # By the engine's clock if both have it: a client's is not the same thing.
        one, other = (case.engine, was.engine) if case.engine and was.engine else (case.client, was.client)
        row += _times(one.p50, other.p50) if one and other else ["-", "-", "-"]
        rows.append([*row, _chance(case.tokens_per_second, was.tokens_per_second)])
    lengths = {case.asked: case for case in old.prefill}
    for filled in new.prefill:
        if (like := lengths.get(filled.asked)) is None:
            continue
        row = [f"prefill of {filled.asked}", *_rates(filled.tokens_per_second.median, like.tokens_per_second.median)]
        row += [*_times(filled.ttft.median, like.ttft.median), "-", "-", "-"]
        rows.append([*row, _chance(filled.tokens_per_second, like.tokens_per_second)])
    if len(rows) == 1:
        return "\n".join([*lines, "no case is in both"])
    return "\n".join([*lines, *(line.rstrip() for line in align(rows))])


def _differences(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    keys = [*now, *(key for key in then if key not in now)]
    return [f"{key}: {now.get(key, '-')}; it was {then.get(key, '-')}" for key in keys if now.get(key) != then.get(key)]


def _rates(now: float, then: float) -> list[str]:
    return [f"{now:.1f}", f"{then:.1f}", _ratio(now, then)]


def _times(now: float, then: float) -> list[str]:
    return [milliseconds(now), milliseconds(then), _ratio(now, then)]


def _ratio(now: float, then: float) -> str:
    return f"{now / then:.3f}" if then else "-"


def _chance(now: Spread, then: Spread) -> str:
    return "within the spread" if now.low <= then.high and then.low <= now.high else ""
