"""What the daemon counts while it runs, for /metrics. Like all such counters they begin anew with the process."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from sparkd.core.model import Death, Intent

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# So that the first of each is seen to be one more than none.
CAUSES = (
    *("exit", "signal", "left", "result", "reboot", "node-hard-reset", "oom-kill", "memory-floor", "peer-lost"),
    *("carrier-flap", "mtu-wrong", "address-lost", "address-foreign", "route-lost", "route-leaks"),
    *("gid-missing", "gid-moved", "cx7-functions-missing", "pcie-fatal"),
)


class Timings:
    """A histogram of durations in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds, and how many were not above."""
        found, seen = [], 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


class Tally:
    """`incidents`: deaths that ended an epoch, by cause; `restarts`: those that sparkd itself ordered."""

    def __init__(self) -> None:
        self.incidents = Counter(dict.fromkeys(CAUSES, 0))
        self.restarts = 0
        self._deaths: set[tuple[int, int]] | None = None
        self._epoch = 0

    def see(self, intent: Intent) -> None:
        """What was there when the daemon started has been counted by the one before it."""
        deaths = {(death.epoch, death.rank): death for death in intent.deaths}
        if self._deaths is not None:
            for key, death in deaths.items():
                if key not in self._deaths:
                    self.incidents[cause(death)] += 1
            if intent.epoch > self._epoch and intent.want == "up" and intent.by == "recovery":
                self.restarts += 1
        self._deaths = set(deaths)
        self._epoch = intent.epoch


def cause(death: Death) -> str:
    """Of the signature RANK:KIND:...: the kind, and of what befell a host its id."""
    kind, _, more = death.signature.partition(":")[2].partition(":")
    return more.partition(":")[0] if kind == "incident" else kind
