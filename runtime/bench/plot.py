"""A report as a picture: SVG with one panel for decode and one for prefill, an older report in grey behind them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from runtime.bench.report import Report, Spread

WIDTH, HEIGHT = 960, 420
TOP, BOTTOM, LEFT, PANEL, GAP = 76, 346, 66, 376, 94
NEW, OLD, GRID, INK = "#1664c0", "#9a9a9a", "#e3e3e3", "#222"
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TITLE_CHARACTERS = 110


@dataclass(frozen=True)
class Series:
    """Points (x, rate with its spread) in the order of x, all x above 0."""

    color: str
    points: tuple[tuple[int, Spread], ...]


def plot(new: Report, old: Report | None = None) -> str:
    """The whole picture. Panels without a single case say so."""
    engine = f"{new.engine.get('model', 'a model')}, {new.engine.get('version', 'unknown version')}"
    title = f"{engine}, on {new.machine.get('host', 'a machine')}"[:TITLE_CHARACTERS]
    under = f"{new.date}, median of {new.settings.get('rounds', '?')} rounds; bars from the lowest to the highest"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 24, title, 'font-size="15" font-weight="bold"'),
        _text(LEFT, 44, under, 'fill="#666"'),
    ]
    if old is not None:
        parts += [
            _text(WIDTH - 20, 24, f"this: {new.date}", f'text-anchor="end" fill="{NEW}"'),
            _text(WIDTH - 20, 44, f"against: {old.date}", f'text-anchor="end" fill="{OLD}"'),
        ]
    reports = [(NEW, new), *([(OLD, old)] if old is not None else [])]
    decode = [Series(c, tuple((d.streams, d.tokens_per_second) for d in r.decode)) for c, r in reports]
    prefill = [Series(c, tuple((p.tokens, p.tokens_per_second) for p in r.prefill)) for c, r in reports]
    parts += _panel(LEFT, "decode, tokens/s of all streams", "streams", decode)
    parts += _panel(LEFT + PANEL + GAP, "prefill, tokens/s", "tokens of prompt", prefill)
    return "\n".join([*parts, "</svg>\n"])


def _panel(left: int, title: str, axis: str, series: Sequence[Series]) -> list[str]:
    parts = [_text(left, TOP - 10, title, 'font-weight="bold"')]
    xs = sorted({x for one in series for x, _ in one.points})
    highest = max((spread.high for one in series for _, spread in one.points), default=0.0)
    if not xs or highest <= 0:
        return [*parts, _text(left + PANEL // 2, (TOP + BOTTOM) // 2, "not measured", 'text-anchor="middle"')]
    # Room for the label of the highest point.
    step = tick(1.08 * highest)
    top = math.ceil(1.08 * highest / step) * step

    def across(x: int) -> float:
        # Streams and lengths double from case to case, so the axis is logarithmic; some room at both ends.
        if xs[0] == xs[-1]:
            return left + PANEL / 2
        return left + 20 + (PANEL - 40) * (math.log(x / xs[0]) / math.log(xs[-1] / xs[0]))

    def up(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / top

    for index in range(round(top / step) + 1):
        y = up(index * step)
        parts.append(f'<path d="M{left} {y:.1f}H{left + PANEL}" stroke="{GRID}"/>')
        parts.append(_text(left - 8, y + 4, f"{index * step:g}", 'text-anchor="end"'))
    shown = -math.inf
    for x in xs:
        # Lengths of two reports differ by a word or two: one label is enough for both.
        if across(x) - shown >= 40:
            shown = across(x)
            parts.append(_text(shown, BOTTOM + 18, str(x), 'text-anchor="middle"'))
    parts.append(_text(left + PANEL / 2, BOTTOM + 40, axis, 'text-anchor="middle"'))
    for one in reversed(series):
        line = " ".join(f"{across(x):.1f},{up(spread.median):.1f}" for x, spread in one.points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{one.color}" stroke-width="2"/>')
        for x, spread in one.points:
            parts += _point(across(x), up(spread.median), up(spread.low), up(spread.high), one.color)
            if one.color == NEW:
                label = f"{spread.median:.1f}" if spread.median < 1000 else f"{spread.median:.0f}"
                halo = f'text-anchor="middle" fill="{NEW}" stroke="white" stroke-width="4" paint-order="stroke"'
                parts.append(_text(across(x) - 6, up(spread.high) - 10, label, halo))
    return parts


def _point(x: float, y: float, low: float, high: float, color: str) -> list[str]:
    whisker = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
    return [
        f'<path d="{whisker}" stroke="{color}" fill="none"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>',
    ]


def tick(highest: float) -> float:
    """A round distance that divides the way from 0 to ``highest`` into at most six parts."""
    power = 10.0 ** math.floor(math.log10(highest / 6))
    return next(step * power for step in STEPS if step * power * 6 >= highest)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'
