"""The results of smoke tests over HTTP: rank 0's host has them, every node answers."""

from __future__ import annotations

from pathlib import Path

from sparkd import wire
from sparkd.core.smokes import SmokeCheck, SmokeRun
from sparkd.ports import DoorError
from tests.api.serving import api, ask, peers_api
from tests.core.builders import NODES
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

RUN = SmokeRun(7, 1.0, "p", "m", True, True, "1 smoke test passed", (SmokeCheck("health", True, 0.5, "it lives"),))


@in_loop
async def test_every_node_answers_with_what_rank_0s_host_has(tmp_path: Path) -> None:
    async def kept() -> tuple[SmokeRun, ...]:
        return (RUN,)

    async with cluster() as ring:
        await ring.reach("down")
        ring.conductor.loop.smokes_from(kept)
        for name in NODES:
            folder = tmp_path / name
            folder.mkdir()
            async with api(ring[name].loop, folder) as served:
                assert wire.decode(wire.SmokeRuns, (await served.get("/v1/smoke")).json) == wire.SmokeRuns(
                    "spark1", (RUN,)
                )
        async with peers_api(ring.conductor.loop) as port:
            told = wire.loads(wire.SmokeRuns, (await ask(port, "GET", "/peer/v1/smoke")).body)
            assert told.runs == (RUN,)


@in_loop
async def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    async def broken() -> tuple[SmokeRun, ...]:
        raise DoorError("/var/lib/sparkd-rank/smoke cannot be read: Input/output error")

    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring["spark2"].loop, tmp_path) as served:
            assert (await served.get("/v1/smoke")).json == {"node": "spark1", "runs": [], "error": ""}
            ring.conductor.loop.smokes_from(broken)
            assert "Input/output error" in (await served.get("/v1/smoke")).json["error"]
            ring.mesh.silence("spark1")
            assert (await served.get("/v1/smoke")).json["error"] != ""
