"""The engine's key series, taken from what its own /metrics says: SGLang's names, with types and words of ours.

An engine may say anything. Only series of this table pass, in the form that Prometheus reads, once each; the rest would
be a reader's to refuse, with everything of sparkd's beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

SERIES: dict[str, tuple[str, str]] = {
    "sglang:prompt_tokens_total": ("counter", "Tokens of prompts of finished requests."),
    "sglang:generation_tokens_total": ("counter", "Tokens generated for finished requests."),
    "sglang:realtime_tokens_total": ("counter", "Tokens as they are worked through, by mode."),
    "sglang:cached_tokens_total": ("counter", "Tokens of prompts that were found in the cache."),
    "sglang:num_requests_total": ("counter", "Requests finished."),
    "sglang:num_aborted_requests_total": ("counter", "Requests aborted."),
    "sglang:num_running_reqs": ("gauge", "Requests that run."),
    "sglang:num_queue_reqs": ("gauge", "Requests that wait."),
    "sglang:gen_throughput": ("gauge", "Tokens generated per second, as the scheduler last saw it."),
    "sglang:token_usage": ("gauge", "Part of the KV cache that is in use."),
    "sglang:num_used_tokens": ("gauge", "Tokens in the KV cache."),
    "sglang:cache_hit_rate": ("gauge", "Part of the prompts' tokens that was found in the cache."),
    "sglang:time_to_first_token_seconds": ("histogram", "From a request's arrival to its first token."),
    "sglang:inter_token_latency_seconds": ("histogram", "Between two tokens of a request."),
    "sglang:e2e_request_latency_seconds": ("histogram", "From a request's arrival to its end."),
    "sglang:queue_time_seconds": ("histogram", "Time that a request waited."),
}
MOST_SAMPLES = 2000
_SAMPLE = re.compile(
    r"(?P<name>[a-z:_0-9]{1,80})"
    r'(?P<labels>\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\[\\"n])*",?)*\})?'
    r" (?P<value>[+-]?(?:\d[\d.eE+-]*|Inf)|NaN)",
    re.ASCII,  # as Prometheus counts letters and digits
)
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"', re.ASCII)
_PART = re.compile(r"_(?:bucket|sum|count)$")


def chosen(text: str) -> str:
    """The lines of an exposition that pass, family by family; at most MOST_SAMPLES samples."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for line in _lines(text):
        match = _SAMPLE.fullmatch(line)
        if match is None or not _number(match["value"]):
            continue
        name, labels = match["name"], match["labels"] or ""
        names = _LABEL.findall(labels)
        if len(set(names)) < len(names) or "__name__" in names:
            continue
        family = name if name in SERIES else _PART.sub("", name)
        kind = SERIES.get(family, ("",))[0]
        if not kind or (kind == "histogram") == (family == name):
            continue
        # Several processes of the engine may tell of one thing; the first does.
        found.setdefault(family, {}).setdefault((name, labels), line)
    told: list[str] = []
    for family, samples in found.items():
        kind, words = SERIES[family]
        told += [f"# HELP {family} {words}", f"# TYPE {family} {kind}", *samples.values()]
    return "\n".join([*told, ""]) if told else ""


def _lines(text: str) -> Iterable[str]:
    for count, line in enumerate(line for line in text.split("\n") if line.startswith("sglang:")):
        if count == MOST_SAMPLES:
            return
        yield line


def _number(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    # To Prometheus a number that is too large is none.
    return not math.isinf(value) or text.endswith("Inf")
