"""The engine's own counts: Prometheus text, the difference of two readings, and percentiles of a histogram."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.openai.document import quote
from runtime.prometheus import Sample, read_sample

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Histogram:
    """``counts`` of observations at most as large as each bound, in the order of the bounds; the last is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def __sub__(self, before: "Histogram | None") -> "Histogram":
        """What came since ``before``. Raises ValueError if that is less than nothing: the engine has restarted."""
        if before is None:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        if self.bounds != before.bounds or any(count < 0 for count in counts):
            raise ValueError("the engine's counters went backwards: it was restarted meanwhile")
        return Histogram(self.bounds, counts, self.total - before.total)

    def quantile(self, share: float) -> float:
        """The value that ``share`` of the observations do not exceed; nan without any.

        Observations are taken as spread evenly within a bucket, the first of which begins at 0, as Prometheus'
        ``histogram_quantile`` does. Beyond the last finite bound nothing is known: the answer is that bound.
        """
        if not self.count:
            return math.nan
        rank = share * self.count
        index = next(i for i, count in enumerate(self.counts) if count >= rank)
        if math.isinf(self.bounds[index]):
            return self.bounds[index - 1] if index else math.inf
        low, below = (self.bounds[index - 1], self.counts[index - 1]) if index else (0.0, 0.0)
        inside = self.counts[index] - below
        return low + (self.bounds[index] - low) * ((rank - below) / inside if inside else 1.0)


@dataclass(frozen=True)
class Percentiles:
    """Seconds. ``beyond``: what is as large as this is at least so large; None if all is known."""

    p50: float
    p90: float
    p99: float
    mean: float
    count: int
    beyond: float | None = None

    @classmethod
    def of_histogram(cls, histogram: Histogram) -> "Percentiles | None":
        """None without observations."""
        if not histogram.count:
            return None
        p50, p90, p99 = (histogram.quantile(share) for share in QUANTILES)
        finite = [bound for bound in histogram.bounds if not math.isinf(bound)]
        mean = histogram.total / histogram.count
        return cls(p50, p90, p99, mean, round(histogram.count), finite[-1] if finite else None)

    @classmethod
    def of_weighted(cls, values: list[tuple[float, int]]) -> "Percentiles | None":
        """Of (seconds, how many times); the smallest value that enough do not exceed. None without values."""
        ordered = sorted((value, weight) for value, weight in values if weight > 0)
        count = sum(weight for _, weight in ordered)
        if not count:
            return None
        found: list[float] = []
        seen, index = 0, -1
        for share in QUANTILES:
            while seen < share * count or index < 0:
                index += 1
                seen += ordered[index][1]
            found.append(ordered[index][0])
        p50, p90, p99 = found
        return cls(p50, p90, p99, sum(value * weight for value, weight in ordered) / count, count)


@dataclass(frozen=True)
class Metrics:
    """One reading of ``/metrics``. Series of one name are added up over all labels."""

    values: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]]

    @classmethod
    def read(cls, text: str) -> "Metrics":
        """The text format of Prometheus. Raises ValueError with the line that does not fit it."""
        values: dict[str, float] = {}
        buckets: dict[str, dict[float, float]] = {}
        for line in text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            sample = _sample(line)
            name, labels = sample.name, sample.labels
            if name.endswith("_bucket") and "le" in labels:
                bounds = buckets.setdefault(name.removesuffix("_bucket"), {})
                bound = float(labels["le"])
                bounds[bound] = bounds.get(bound, 0.0) + sample.value
            else:
                values[name] = values.get(name, 0.0) + sample.value
        return cls(values, buckets)

    def histogram(self, name: str) -> Histogram | None:
        """None if the engine has none of that name, or has not observed anything for it yet."""
        found = self.buckets.get(name)
        if not found or math.inf not in found:
            return None
        bounds = tuple(sorted(found))
        return Histogram(bounds, tuple(found[bound] for bound in bounds), self.values.get(f"{name}_sum", math.nan))


def _sample(line: str) -> Sample:
    """Raises ValueError for a line that is none."""
    if (sample := read_sample(line)) is None:
        raise ValueError(f"is not the text format of Prometheus: {quote(line)}")
    return sample
