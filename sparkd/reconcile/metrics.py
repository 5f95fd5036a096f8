"""The Prometheus series of this host's view of the ring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparkd import wire
from sparkd.core.model import Phase
from sparkd.reconcile.loop import Loop


class _Collector(Collector):
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering does not collect: before the first cycle there is nothing to tell."""
        return ()

    def collect(self) -> Iterator[Metric]:
        ring = self._loop.ring()
        phase = GaugeMetricFamily("sparkd_ring_phase", "1 for the phase that the ring is in.", labels=["phase"])
        for name in get_args(Phase):
            phase.add_metric([name], float(ring.phase == name))
        yield phase
        yield GaugeMetricFamily("sparkd_ring_epoch", "Epoch in force.", value=ring.epoch)
        yield GaugeMetricFamily("sparkd_ring_waits", "Things that the ring waits for.", value=len(ring.waits))
        yield _ranks(ring)
        yield _ages(ring)
        yield _links(ring)
        cycles = CounterMetricFamily("sparkd_reconcile_cycles", "Finished cycles.", value=self._loop.cycles)
        yield cycles
        yield CounterMetricFamily(
            "sparkd_reconcile_seconds", "Time spent in finished cycles.", value=self._loop.cycle_seconds
        )


def _ranks(ring: wire.RingStatus) -> Metric:
    up = GaugeMetricFamily("sparkd_rank_up", "1 for a rank that is ready.", labels=["rank", "node"])
    for rank in ring.ranks:
        up.add_metric([str(rank.rank), rank.node], float(rank.state == "ready"))
    return up


def _ages(ring: wire.RingStatus) -> Metric:
    ages = GaugeMetricFamily("sparkd_peer_age_seconds", "Time since a peer last answered.", labels=["node"])
    for peer in ring.peers:
        ages.add_metric([peer.node], float("inf") if peer.age is None else peer.age)
    return ages


def _links(ring: wire.RingStatus) -> Metric:
    verified = GaugeMetricFamily(
        "sparkd_link_end_verified", "1 for a fabric end that is as planned.", labels=["node", "device"]
    )
    for fabric in ring.fabric:
        for end in fabric.ends or ():
            verified.add_metric([fabric.node, end.device], float(end.verified))
    return verified


class Metrics:
    def __init__(self, loop: Loop) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(loop))

    def text(self) -> bytes:
        return bytes(generate_latest(self._registry))
