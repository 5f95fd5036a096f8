"""GET /v1/logs: only for those who may operate the ring, whatever the method and the listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkd import wire
from sparkd.api.app import operator_app
from sparkd.core.journal import Journals as Answer
from sparkd.reconcile.journals import Journals
from tests.api.serving import BEARER, EXPIRED, READER, api, ask, peers_api, served
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop
from tests.reconcile.test_journals import FakeJournal


def with_journal(ring: Cluster) -> FakeJournal:
    """The conductor's alone: the others are silent."""
    loop = ring.conductor.loop
    door = FakeJournal("spark1", ring.clock)
    loop.journals = Journals("spark1", loop.nodes, lambda: door, ring.clock)
    return door


@in_loop
async def test_who_gets_logs(tmp_path: Path) -> None:
    async with cluster() as ring:
        with_journal(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            answer = await served.get("/v1/logs")
            assert answer.status == 200
            told = wire.decode(Answer, answer.json)
            assert [node.node for node in told.nodes] == ["spark1", "spark2", "spark3"]
            assert told.nodes[0].lines[0].text == "of spark1"
            assert told.nodes[1].error
            for headers, status, code in (
                ({}, 401, "token-missing"),
                ({"Authorization": "Basic x"}, 401, "token-missing"),
                ({"Authorization": "Bearer wrong"}, 401, "token-wrong"),
                (EXPIRED, 401, "token-expired"),
                (READER, 403, "read-only"),
            ):
                for path in ("/v1/logs", "/v1/logs?lines=1", "/v1/logs?grep=x&after=y"):
                    refused = await served.get(path, served.tcp, headers=headers)
                    assert (refused.status, refused.problem["code"]) == (status, code)
                    if code == "token-missing":
                        assert refused.problem["detail"] == "reading logs needs a token"
            assert (await served.get("/v1/logs", served.tcp, headers=BEARER)).status == 200
            # What is open to all stays so.
            assert (await served.get("/v1/ring", served.tcp)).status == 200


@in_loop
async def test_without_tokens_on_the_machine_nobody_gets_them_over_tcp(tmp_path: Path) -> None:
    async with cluster() as ring:
        with_journal(ring)
        async with api(ring.conductor.loop, tmp_path, tokens=()) as served:
            assert (await served.get("/v1/logs", served.tcp, headers=BEARER)).status == 401
            assert (await served.get("/v1/logs")).status == 200


@in_loop
async def test_a_caller_that_nobody_has_identified_gets_none(tmp_path: Path) -> None:
    """The route's own lock, for a listener that would forget the other."""
    async with cluster() as ring:
        door = with_journal(ring)
        async with served(operator_app(ring.conductor.loop)) as port:
            assert (await ask(port, "GET", "/v1/logs")).problem["code"] == "read-only"
        assert door.asked == []


@pytest.mark.parametrize(
    "query",
    ["lines=0", "lines=5001", "epoch=-1", "rank=3", "rank=x", "since=-1", "after=spark9%3Ds%3D1%3Bi%3D2", "after=x",
     "after=spark1%3D--all", f"grep={'x' * 201}", "grep=a%00b"],
)  # fmt: skip
@in_loop
async def test_what_is_asked_is_checked(query: str, tmp_path: Path) -> None:
    async with cluster() as ring:
        door = with_journal(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            assert (await served.get(f"/v1/logs?{query}")).problem["code"] == "bad-request"
        assert door.asked == []


@in_loop
async def test_one_rank_and_what_has_followed(tmp_path: Path) -> None:
    async with cluster() as ring:
        door = with_journal(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            answer = await served.get("/v1/logs?rank=0&after=spark1%3Ds%3D1%3Bi%3D2")
        assert [node["node"] for node in answer.json["nodes"]] == ["spark1"]
        assert door.asked[0].cursor == "s=1;i=2"


@in_loop
async def test_a_peer_reads_the_journal_of_this_host_alone(tmp_path: Path) -> None:
    async with cluster() as ring:
        door = with_journal(ring)
        async with peers_api(ring.conductor.loop, "spark2") as port:
            answer = await ask(port, "GET", "/peer/v1/logs?lines=5&epoch=3")
            assert answer.json["node"] == "spark1"
            assert (door.asked[0].lines, door.asked[0].epoch) == (5, 3)
            for wrong in ("cursor=--all", "grep=a%00b", "lines=0000019999999"):
                assert (await ask(port, "GET", f"/peer/v1/logs?{wrong}")).problem["code"] == "bad-request"


@in_loop
async def test_a_daemon_that_has_only_just_started(tmp_path: Path) -> None:
    async with cluster() as ring, api(ring.conductor.loop, tmp_path) as served:
        assert (await served.get("/v1/logs")).problem["code"] == "starting"
