"""The Prometheus series of this host's view of the ring, and the key series of the engine where rank 0 is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sparkd import wire
from sparkd.core import floor
from sparkd.core.model import Phase, Severity, Unknown
from sparkd.core.snapshot import Snapshot
from sparkd.ports import DoorError
from sparkd.reconcile.engineseries import chosen
from sparkd.reconcile.loop import Loop

_KIB = 1024
_SHARED = 1.0
"""Seconds for which one look at the engine is good for all who ask: a crowd of them must not be its load."""


class _Collector(Collector):
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering does not collect: before the first cycle there is nothing to tell."""
        return ()

    def collect(self) -> Iterator[Metric]:
        ring = self._loop.ring()
        seen = self._loop.seen()
        yield _info(ring)
        yield from _ring(ring)
        yield _gates(self._loop)
        yield from _ranks(ring)
        yield from _peers(ring)
        yield from _fabric(ring)
        yield _findings(ring)
        if seen is not None:
            yield from _memory(seen)
            yield _rails(seen)
        yield from _counted(self._loop)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _info(ring: wire.RingStatus) -> Metric:
    told = {
        "version": ring.version,
        "node": ring.node,
        "cluster": ring.cluster,
        "conductor": ring.conductor,
        "engine": ring.engine.name,
        "profile": ring.engine.profile,
    }
    return InfoMetricFamily("sparkd_build", "1; this daemon's version, its node and its ring.", value=told)


def _ring(ring: wire.RingStatus) -> Iterator[Metric]:
    phase = GaugeMetricFamily("sparkd_ring_phase", "1 for the phase that the ring is in.", labels=["phase"])
    for name in get_args(Phase):
        phase.add_metric([name], float(ring.phase == name))
    yield phase
    yield _gauge("sparkd_ring_wanted", "1 while the ring is wanted up.", float(ring.want == "up"))
    yield _gauge("sparkd_ring_maintenance", "1 while sparkctl hold is in force.", float(ring.maintenance is not None))
    yield _gauge("sparkd_ring_epoch", "Epoch in force.", ring.epoch)
    yield _gauge("sparkd_ring_waits", "Things that the ring waits for.", len(ring.waits))
    if ring.budget is not None:
        left = max(ring.budget.restarts - ring.budget.used, 0)
        yield _gauge("sparkd_restarts_left", "Restarts before the ring is held.", left)
        yield _gauge("sparkd_restarts_window_seconds", "Time after which a restart is forgotten.", ring.budget.window)


def _gates(loop: Loop) -> Metric:
    gates = GaugeMetricFamily("sparkd_gate_open", "1 for a gate of a start that is open.", labels=["gate"])
    for name, is_open in loop.gates().items():
        gates.add_metric([name], float(is_open))
    return gates


def _ranks(ring: wire.RingStatus) -> Iterator[Metric]:
    up = GaugeMetricFamily("sparkd_rank_up", "1 for a rank that is ready.", labels=["rank", "node"])
    state = GaugeMetricFamily("sparkd_rank_state", "1 for the state of a rank.", labels=["rank", "node", "state"])
    done = GaugeMetricFamily("sparkd_rank_progress_ratio", "Part of its stage that is done.", labels=["rank", "node"])
    for rank in ring.ranks:
        labels = [str(rank.rank), rank.node]
        up.add_metric(labels, float(rank.state == "ready"))
        state.add_metric([*labels, rank.state], 1.0)
        if rank.progress is not None and rank.progress.total:
            done.add_metric(labels, rank.progress.done / rank.progress.total)
    yield up
    yield state
    yield done


def _peers(ring: wire.RingStatus) -> Iterator[Metric]:
    ages = GaugeMetricFamily("sparkd_peer_age_seconds", "Time since a peer last answered.", labels=["node"])
    for peer in ring.peers:
        ages.add_metric([peer.node], float("inf") if peer.age is None else peer.age)
    yield ages


def _fabric(ring: wire.RingStatus) -> Iterator[Metric]:
    labels = ["node", "device"]
    verified = GaugeMetricFamily("sparkd_link_end_verified", "1 for a fabric end that is as planned.", labels=labels)
    carrier = GaugeMetricFamily("sparkd_link_end_carrier", "1 for a fabric end that has a carrier.", labels=labels)
    for fabric in ring.fabric:
        for end in fabric.ends or ():
            verified.add_metric([fabric.node, end.device], float(end.verified))
            carrier.add_metric([fabric.node, end.device], float(end.carrier))
    yield verified
    yield carrier
    rates = GaugeMetricFamily(
        "sparkd_rail_measured_bytes_per_second",
        "Rate of a rail as last measured, the lower of both directions.",
        labels=["node", "device", "peer", "method"],
    )
    for rail in ring.rails:
        if rail.gbps is not None:
            rates.add_metric([rail.a.node, rail.a.device, rail.b.node, rail.method], rail.gbps * 1e9 / 8)
    yield rates


def _findings(ring: wire.RingStatus) -> Metric:
    found = GaugeMetricFamily("sparkd_findings", "Findings that stand.", labels=["severity"])
    for severity in get_args(Severity):
        found.add_metric([severity], sum(finding.severity == severity for finding in ring.findings))
    return found


def _memory(s: Snapshot) -> Iterator[Metric]:
    if isinstance(s.host, Unknown):
        return
    told = (
        ("sparkd_memory_total_bytes", "Memory of this host.", s.host.memory_total_kib),
        ("sparkd_memory_available_bytes", "Memory of this host that is available.", s.host.memory_available_kib),
        ("sparkd_memory_floor_bytes", "Below it this host's rank is killed; 0 for none.", floor.limit(s)),
    )
    for name, words, kib in told:
        family = GaugeMetricFamily(name, words, labels=["node"])
        family.add_metric([s.node], kib * _KIB)
        yield family


def _rails(s: Snapshot) -> Metric:
    """Two ways that a byte can go, and neither counts the other's."""
    labels = ["node", "device", "transport", "direction"]
    moved = CounterMetricFamily("sparkd_rail_bytes", "Bytes through a fabric port of this host.", labels=labels)
    if not isinstance(s.host, Unknown):
        for port in s.host.traffic:
            moved.add_metric([s.node, port.device, "ethernet", "received"], port.received)
            moved.add_metric([s.node, port.device, "ethernet", "sent"], port.sent)
    for device in () if isinstance(s.roce, Unknown) else s.roce:
        if device.received is not None and device.sent is not None:
            moved.add_metric([s.node, device.netdev or device.hca, "rdma", "received"], device.received)
            moved.add_metric([s.node, device.netdev or device.hca, "rdma", "sent"], device.sent)
    return moved


def _counted(loop: Loop) -> Iterator[Metric]:
    incidents = CounterMetricFamily("sparkd_incidents", "Deaths that ended an epoch, by cause.", labels=["cause"])
    for cause, count in sorted(loop.tally.incidents.items()):
        incidents.add_metric([cause], count)
    yield incidents
    yield CounterMetricFamily("sparkd_restarts", "Restarts that sparkd has ordered.", value=loop.tally.restarts)
    yield HistogramMetricFamily(
        "sparkd_reconcile_duration_seconds",
        "Time that a cycle took, to observe, decide and act.",
        buckets=loop.timings.buckets(),
        sum_value=loop.timings.total,
    )


class Metrics:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(loop))
        self._looked: tuple[float, str] | None = None
        self._turn = asyncio.Lock()

    async def text(self) -> bytes:
        own = bytes(generate_latest(self._registry))
        if self._loop.scrape is None:
            return own
        return own + (await self._engine(self._loop.scrape)).encode()

    async def _engine(self, scrape: Callable[[], Awaitable[str]]) -> str:
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if self._looked is None or now - self._looked[0] >= _SHARED:
                self._looked = (now, await _look(scrape))
            return self._looked[1]


async def _look(scrape: Callable[[], Awaitable[str]]) -> str:
    try:
        series, answered = chosen(await scrape()), 1
    except DoorError:
        series, answered = "", 0
    words = "1 if the engine of rank 0, on this host, told its metrics."
    return f"# HELP sparkd_engine_up {words}\n# TYPE sparkd_engine_up gauge\nsparkd_engine_up {answered}\n{series}"
