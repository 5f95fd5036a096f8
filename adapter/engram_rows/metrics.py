"""How the reads go, among the engine's own metrics, where it has them on."""

from __future__ import annotations

import os
import time
from typing import Any

from adapter.engram_rows.reader import Reader

_SECONDS = 1.0


class Metrics:
    """Gauges of the last second's state; SGLang's processes share theirs through files of prometheus_client."""

    def __init__(self) -> None:
        self._readers: dict[int, Reader] = {}
        self._next = 0.0
        self._gauges: dict[str, Any] | None = None

    def add(self, layer: int, reader: Reader) -> None:
        self._readers[layer] = reader

    def tick(self) -> None:
        """Called with each lookup; costs one look at the clock."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SECONDS
        gauges = self._made()
        for layer, reader in self._readers.items():
            stats = reader.stats()
            for name, value in (
                ("reads", stats.reads),
                ("rows", stats.rows),
                ("errors", stats.errors),
                ("queue_depth_max", stats.deepest),
                ("read_seconds_p50", stats.quantile(0.5)),
                ("read_seconds_p99", stats.quantile(0.99)),
            ):
                if name in gauges:
                    gauges[name].labels(layer=str(layer)).set(value)

    def _made(self) -> dict[str, Any]:
        # Without this directory SGLang runs without metrics, and nobody would collect these.
        if self._gauges is None:
            self._gauges = {}
            if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
                from prometheus_client import Gauge

                told = {
                    "reads": "Blocks read from the packed rows",
                    "rows": "Rows read",
                    "errors": "Batches of rows that failed",
                    "queue_depth_max": "The most reads that were under way at a time",
                    "read_seconds_p50": "Seconds that half of the reads stayed under",
                    "read_seconds_p99": "Seconds that 99 of 100 reads stayed under",
                }
                self._gauges = {
                    name: Gauge(f"sparkd_engram_{name}", text, ["layer"], multiprocess_mode="livemax")
                    for name, text in told.items()
                }
        return self._gauges
