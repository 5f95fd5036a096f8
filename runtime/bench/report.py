"""What was measured, as values and as JSON."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from runtime.bench.histograms import Percentiles
from runtime.openai.document import at, count_at, list_at, parse, quote, text_at

VERSION = 1


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of some rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Decode:
    """Decode at ``streams``: tokens per second of all together, seconds to the first token, seconds between tokens.

    ``engine`` and ``client``: seconds between tokens, by the engine's histogram and the client's clock. ``cached``:
    tokens of prompts that were not computed; None if the engine does not say.
    """

    streams: int
    tokens: int
    tokens_per_second: Spread
    ttft: Spread
    tokens_per_message: float
    engine: Percentiles | None
    client: Percentiles | None
    engine_ttft: Percentiles | None
    cached: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prefill:
    """Prefill of prompts of about ``asked`` tokens, ``tokens`` as the engine counts them: tokens per second up to the
    first token."""

    asked: int
    tokens: int
    tokens_per_second: Spread
    ttft: Spread
    engine_ttft: Percentiles | None
    cached: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole run. ``failed``: why it ended early; empty if it did not."""

    date: str
    machine: Mapping[str, str]
    engine: Mapping[str, str]
    settings: Mapping[str, str]
    decode: tuple[Decode, ...] = ()
    prefill: tuple[Prefill, ...] = ()
    notes: tuple[str, ...] = ()
    failed: str = ""
    version: int = field(default=VERSION)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def read(cls, text: str) -> "Report":
        """Raises ValueError."""
        document = parse(text)
        if (version := at(document, "version")) != VERSION:
            raise ValueError(f"has version {quote(version)}, expected {VERSION}")
        return cls(
            text_at(document, "date"),
            _texts(at(document, "machine")),
            _texts(at(document, "engine")),
            _texts(at(document, "settings")),
            tuple(_decode(case) for case in list_at(document, "decode")),
            tuple(_prefill(case) for case in list_at(document, "prefill")),
            _notes(document),
            text_at(document, "failed"),
        )


def _decode(case: object) -> Decode:
    return Decode(
        count_at(case, "streams"),
        count_at(case, "tokens"),
        _spread(case, "tokens_per_second"),
        _spread(case, "ttft"),
        _number(case, "tokens_per_message"),
        _percentiles(at(case, "engine")),
        _percentiles(at(case, "client")),
        _percentiles(at(case, "engine_ttft")),
        None if at(case, "cached") is None else count_at(case, "cached"),
        _notes(case),
    )


def _prefill(case: object) -> Prefill:
    return Prefill(
        count_at(case, "asked"),
        count_at(case, "tokens"),
        _spread(case, "tokens_per_second"),
        _spread(case, "ttft"),
        _percentiles(at(case, "engine_ttft")),
        None if at(case, "cached") is None else count_at(case, "cached"),
        _notes(case),
    )


def _spread(case: object, name: str) -> Spread:
    return Spread(_number(case, name, "median"), _number(case, name, "low"), _number(case, name, "high"))


def _percentiles(found: object) -> Percentiles | None:
    if found is None:
        return None
    p50, p90, p99, mean = (_number(found, name) for name in ("p50", "p90", "p99", "mean"))
    beyond = None if at(found, "beyond") is None else _number(found, "beyond")
    return Percentiles(p50, p90, p99, mean, count_at(found, "count"), beyond)


def _number(document: object, *path: str) -> float:
    found = at(document, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ValueError(f"has {'.'.join(path)} = {quote(found)}, expected a number")
    return float(found)


def _notes(document: object) -> tuple[str, ...]:
    return tuple(str(note) for note in list_at(document, "notes"))


def _texts(found: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
