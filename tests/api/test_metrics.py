"""/metrics, read by Prometheus' own parser."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ring_mesh import FABRIC_DEVICES
from sparkd.core.model import Phase
from tests.api.serving import Api, api
from tests.core.builders import NODES
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def samples(served: Api) -> Samples:
    answer = await served.get("/metrics", served.tcp)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: Samples = {}
    families: Iterable[Metric] = text_string_to_metric_families(answer.body.decode())  # type: ignore[no-untyped-call]
    for family in families:
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def of(found: Samples, name: str) -> dict[tuple[str, ...], float]:
    """The values of one series by their labels' values, labels in alphabetical order."""
    return {tuple(value for _, value in labels): value for (series, labels), value in found.items() if series == name}


@in_loop
async def test_a_ready_ring(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        loop = ring["spark2"].loop
        async with api(loop, tmp_path) as served:
            found = await samples(served)
            assert of(found, "sparkd_ring_phase") == {(phase,): float(phase == "ready") for phase in get_args(Phase)}
            assert of(found, "sparkd_ring_epoch") == {(): 1}
            assert of(found, "sparkd_ring_waits") == {(): 0}
            assert of(found, "sparkd_rank_up") == {(node, str(rank)): 1 for rank, node in enumerate(NODES)}
            assert of(found, "sparkd_peer_age_seconds") == {("spark1",): 0, ("spark3",): 0}
            assert of(found, "sparkd_link_end_verified") == {
                (device, node): 1 for node in NODES for device in FABRIC_DEVICES
            }
            assert of(found, "sparkd_reconcile_cycles_total") == {(): loop.cycles}
            assert of(found, "sparkd_reconcile_seconds_total") == {(): loop.cycle_seconds}
            assert len({name for name, _ in found if not name.endswith("_created")}) == 8


@in_loop
async def test_what_goes_wrong_shows(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        async with api(ring["spark2"].loop, tmp_path) as served:
            ring["spark2"].links.unplug("enp1s0f0np0")
            await until(lambda: ring["spark2"].phase == "degraded")
            ring.clock.advance(7.5)
            found = await samples(served)
            assert of(found, "sparkd_ring_phase")["degraded",] == 1
            assert of(found, "sparkd_link_end_verified")["enp1s0f0np0", "spark2"] == 0
            assert of(found, "sparkd_peer_age_seconds")["spark1",] >= 7.5
            assert of(found, "sparkd_ring_waits")[()] >= 1


@in_loop
async def test_peers_that_never_answered_are_infinitely_old_and_tell_nothing(tmp_path: Path) -> None:
    async with cluster(boot=False) as ring:
        loop = ring.conductor.build()
        await loop.cycle()
        async with api(loop, tmp_path) as served:
            found = await samples(served)
            assert of(found, "sparkd_peer_age_seconds") == {("spark2",): math.inf, ("spark3",): math.inf}
            assert {node for _, node in of(found, "sparkd_link_end_verified")} == {"spark1"}
            assert set(of(found, "sparkd_rank_up").values()) == {0}
