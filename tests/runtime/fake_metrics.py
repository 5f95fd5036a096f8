"""The counters and histograms of a fake engine, as SGLang 0.5.23 names, counts and prints them."""

import threading
from collections import Counter

BETWEEN = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 1.0)
FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4)
LABELS = 'model_name="tiny {1}, \\"x\\"",engine_type="unified"'


class FakeMetrics:
    """Series appear with their first observation, as they do in several processes' shared registry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._histograms: dict[str, tuple[tuple[float, ...], Counter[float], float]] = {}

    def count(self, name: str, value: float) -> None:
        with self._lock:
            self._counters[name] += value  # type: ignore[assignment]

    def first(self, seconds: float) -> None:
        self._observe("time_to_first_token_seconds", FIRST, seconds, 1)

    def between(self, seconds: float, new_tokens: int) -> None:
        """Each token of a message counts as one observation of an equal share of the time since the last one."""
        self._observe("inter_token_latency_seconds", BETWEEN, seconds / new_tokens, new_tokens)

    def _observe(self, name: str, bounds: tuple[float, ...], value: float, times: int) -> None:
        with self._lock:
            _, counts, total = self._histograms.setdefault(name, (bounds, Counter(), 0.0))
            counts[next((bound for bound in bounds if value <= bound), float("inf"))] += times
            self._histograms[name] = bounds, counts, total + value * times

    def text(self) -> str:
        with self._lock:
            lines = ["# HELP sglang:num_running_reqs The number of running requests.", "# TYPE x gauge", ""]
            for name, value in self._counters.items():
                lines.append(f"sglang:{name}{{{LABELS}}} {float(value)}")
            for name, (bounds, counts, total) in self._histograms.items():
                seen = 0
                for bound in (*bounds, float("inf")):
                    seen += counts[bound]
                    le = "+Inf" if bound == float("inf") else str(float(bound))
                    lines.append(f'sglang:{name}_bucket{{{LABELS},le="{le}"}} {float(seen)}')
                lines += [f"sglang:{name}_count{{{LABELS}}} {float(seen)}", f"sglang:{name}_sum{{{LABELS}}} {total}"]
            return "\n".join([*lines, ""])
