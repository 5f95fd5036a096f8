"""Incidents over HTTP, for operators and for peers."""

from __future__ import annotations

from pathlib import Path

from sparkd import wire
from tests.api.serving import BEARER, EXPIRED, READER, api, ask, peers_api
from tests.core.builders import NODES
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until


async def failed(ring: Cluster) -> None:
    """Epoch 1 has lost spark2's rank, and every node has kept its part."""
    await ring.reach("down")
    await ring.ask("start")
    await ring.reach("ready")
    ring["spark2"].units.die(1, signal=9)
    await until(lambda: all(1 in m.archive.entries and m.archive.entries[1].complete for m in ring))


@in_loop
async def test_any_node_lists_and_shows_the_incidents_of_all(tmp_path: Path) -> None:
    async with cluster() as ring, api(ring["spark3"].loop, tmp_path) as served:
        await failed(ring)
        listed = (await served.get("/v1/incidents")).json
        assert [(node["node"], [i["epoch"] for i in node["incidents"]]) for node in listed["nodes"]] == [
            (name, [1]) for name in NODES
        ]
        shown = (await served.get("/v1/incidents/1")).json
        assert shown["epoch"] == 1
        assert [node["incident"]["root"] for node in shown["nodes"]] == ["spark2"] * 3
        assert shown["nodes"][1]["files"]["journal.txt"].startswith("since ")
        assert (await served.get("/v1/incidents/9")).problem["code"] == "no-such-incident"
        for wrong in ("nine", "-1", "9" * 20):
            assert (await served.get(f"/v1/incidents/{wrong}")).problem["status"] == 422, "and no peer is blamed for it"


@in_loop
async def test_what_a_rank_has_printed_is_for_those_who_may_change_the_ring(tmp_path: Path) -> None:
    """Its journal is in the evidence, as in /v1/logs, and its command line."""
    path = "/v1/incidents/1"
    async with cluster() as ring, api(ring["spark3"].loop, tmp_path, group=-1) as served:
        await failed(ring)
        whole = (await served.get(path, served.tcp, headers=BEARER)).json["nodes"]
        assert whole == (await served.get(path)).json["nodes"]
        assert whole[1]["files"]["journal.txt"].startswith("since ")
        for headers in ({}, READER):
            told = (await served.get(path, served.tcp, headers=headers)).json["nodes"]
            assert [node["incident"] for node in told] == [node["incident"] for node in whole]
            for node, all_of_it in zip(told, whole, strict=True):
                assert set(node["files"]) == set(all_of_it["files"]), "what there is may be known"
                assert all(text.startswith("for those alone who may") for text in node["files"].values())
        for headers, code in ((EXPIRED, "token-expired"), ({"Authorization": "Bearer x"}, "token-wrong")):
            assert (await served.get(path, served.tcp, headers=headers)).problem["code"] == code


@in_loop
async def test_peers_are_told_of_this_hosts_own_only() -> None:
    async with cluster() as ring, peers_api(ring["spark2"].loop) as port:
        await failed(ring)
        ring.mesh.silence("spark1")
        own = wire.loads(wire.NodeIncidents, (await ask(port, "GET", "/peer/v1/incidents")).body)
        assert (own.node, [incident.outcome for incident in own.incidents]) == ("spark2", ["it was killed by SIGKILL"])
        one = wire.loads(wire.NodeIncident, (await ask(port, "GET", "/peer/v1/incident?epoch=1")).body)
        assert one.incident == own.incidents[0]
        assert "journal.txt" in one.files
        for wrong in ("", "?epoch=", "?epoch=x", "?epoch=-1", "?epoch=" + "9" * 20):
            assert (await ask(port, "GET", f"/peer/v1/incident{wrong}")).problem["status"] == 422
