"""/metrics, read by Prometheus' own parser."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ring_mesh import FABRIC_DEVICES
from sparkd import __version__
from sparkd.core import guard
from sparkd.core.facts import PortBytes, RoceFact
from sparkd.core.gates import GATES
from sparkd.core.model import Phase
from sparkd.reconcile.tally import Tally
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
            assert of(found, "sparkd_reconcile_duration_seconds_count") == {(): loop.cycles}
            assert of(found, "sparkd_reconcile_duration_seconds_sum") == {(): loop.timings.total}
            assert set(of(found, "sparkd_gate_open")) == {(gate.__name__,) for gate in GATES}
            assert set(of(found, "sparkd_gate_open").values()) == {1}
            assert of(found, "sparkd_restarts_left") == {(): 3}
            assert set(of(found, "sparkd_incidents_total").values()) == {0}
            assert of(found, "sparkd_memory_available_bytes") == {("spark2",): 124 * 2**30}
            (build,) = (dict(labels) for name, labels in found if name == "sparkd_build_info")
            assert (build["version"], build["node"], build["conductor"]) == (__version__, "spark2", "spark1")


@in_loop
async def test_deaths_and_restarts_are_counted_and_the_first_daemon_counts_only_its_own(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        for epoch in (1, 2):
            ring["spark3"].units.die(epoch, signal=9)
            await ring.reach("gated")
            ring.clock.advance(0.05)
            await ring.reach("ready", epoch + 1)
        async with api(ring["spark2"].loop, tmp_path) as served:
            found = await samples(served)
            assert {cause: n for (cause,), n in of(found, "sparkd_incidents_total").items() if n} == {"signal": 2}
            assert of(found, "sparkd_restarts_total") == {(): 2}
        await ring["spark2"].kill()
        ring["spark2"].boot()
        await ring.reach("ready")
        async with api(ring["spark2"].loop, tmp_path) as served:
            assert set(of(await samples(served), "sparkd_incidents_total").values()) == {0}


def test_the_first_incident_of_each_kind_is_one_more_than_none() -> None:
    """Or `increase()` does not see it, nor the alert: a series that appears with 1 has not grown."""
    told = set(re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+): ', inspect.getsource(guard)))
    assert {"carrier-flap", "gid-moved", "peer-lost", "pcie-fatal"} <= told
    assert told <= set(Tally().incidents)


@in_loop
async def test_bytes_of_both_transports_are_those_of_the_kernel(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        machine = ring["spark2"]
        machine.host.facts = replace(machine.host.facts, traffic=(PortBytes("enp1s0f0np0", 7, 2**60),))
        machine.roce.devices = {
            "rocep1s0f0": RoceFact("rocep1s0f0", "ACTIVE", "enp1s0f0np0", None, 11, 13),
            "rxe0": RoceFact("rxe0", "ACTIVE", "enp1s0f1np1"),
        }
        for source in ("host", "roce"):
            machine.loop.wake(source)
        await machine.loop.cycle()
        async with api(machine.loop, tmp_path) as served:
            found = of(await samples(served), "sparkd_rail_bytes_total")
            assert found == {
                ("enp1s0f0np0", "received", "spark2", "ethernet"): 7,
                ("enp1s0f0np0", "sent", "spark2", "ethernet"): 2.0**60,
                ("enp1s0f0np0", "received", "spark2", "rdma"): 11,
                ("enp1s0f0np0", "sent", "spark2", "rdma"): 13,
            }


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
