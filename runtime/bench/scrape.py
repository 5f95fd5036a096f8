"""Readings of the engine's ``/metrics`` before and after."""

import time

from runtime.bench.histograms import Histogram, Metrics
from runtime.openai.client import Client
from runtime.openai.exchange import Deadline

BETWEEN_TOKENS = "sglang:inter_token_latency_seconds"
FIRST_TOKEN = "sglang:time_to_first_token_seconds"  # noqa: S105 - a metric's name
GENERATED = "sglang:generation_tokens_total"
CACHED = "sglang:cached_tokens_total"
SETTLE_SECONDS = 2.0
PAUSE_SECONDS = 0.05


class Scraper:
    """Reads ``/metrics``. ``missing`` says what the engine does not tell, and why; empty if it tells everything."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.missing = ""

    def read(self, deadline: Deadline) -> Metrics | None:
        """None if the engine has no metrics. Raises RequestFailed."""
        status, body = self._client.get("/metrics", deadline)
        if status != 200:
            self.missing = f"GET /metrics was answered with {status} (the engine was started without --enable-metrics?)"
            return None
        try:
            return Metrics.read(body.decode("utf-8", "replace"))
        except ValueError as error:
            self.missing = f"GET /metrics: the answer {error}"
            return None

    def settle(self, before: Metrics | None, tokens: int, deadline: Deadline) -> Metrics | None:
        """Read once more when ``tokens`` have been counted since ``before``: an engine may do so after it answers."""
        if before is None:
            return None
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            after = self.read(deadline)
            if after is None or difference(before, after, GENERATED) >= tokens or time.monotonic() >= end:
                return after
            time.sleep(PAUSE_SECONDS)


def difference(before: Metrics, after: Metrics, name: str) -> float:
    """How much a counter has grown; one that is not there has not."""
    return after.values.get(name, 0.0) - before.values.get(name, 0.0)


def between(before: Metrics | None, after: Metrics | None, name: str) -> Histogram | None:
    """What a histogram observed between two readings; None if there is no such. Raises ValueError after a restart."""
    if before is None or after is None:
        return None
    histogram = after.histogram(name)
    return None if histogram is None else histogram - before.histogram(name)


def cached(before: Metrics | None, after: Metrics | None, told: list[int | None]) -> int | None:
    """Tokens of prompts that came from the prefix cache: as the answers ``told``, else by the engine's counter."""
    if all(count is not None for count in told):
        return sum(count or 0 for count in told)
    if before is None or after is None or GENERATED not in after.values:
        return None
    # The counter has no value at all before the first hit.
    return round(difference(before, after, CACHED))
