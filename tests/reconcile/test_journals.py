"""The journals of all nodes in one answer: whoever is silent is named, and nobody waits for more than there is time."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from sparkd import wire
from sparkd.core.journal import Line, NodeJournal, Query
from sparkd.ports import DoorError
from sparkd.reconcile.journals import Journals, as_query, from_query
from tests.fakes import FakeClock, FakeMesh
from tests.reconcile.running import in_loop

NODES = ("spark1", "spark2", "spark3")
PLAIN = Query()


class FakeJournal:
    """A host's journal that tells what it was asked for. broken: the sentence with which it cannot be read."""

    def __init__(self, node: str, clock: FakeClock, ahead: float = 0.0) -> None:
        self.node = node
        self.clock = clock
        self.ahead = ahead
        self.asked: list[Query] = []
        self.broken = ""
        self.closed = False

    async def read(self, query: Query) -> bytes:
        assert not self.closed
        self.asked.append(query)
        if self.broken:
            raise DoorError(self.broken)
        now = self.clock.now() + self.ahead
        line = Line(now - 1, "sparkd", 6, f"of {self.node}")
        return wire.dumps(NodeJournal(self.node, NODES.index(self.node), now, (line,), cursor=f"s=1;i={self.node[-1]}"))

    def close(self) -> None:
        self.closed = True


class Ring:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.mesh = FakeMesh(self.clock, *NODES)
        self.doors = {node: FakeJournal(node, self.clock) for node in NODES}
        self.journals = {node: Journals(node, NODES, lambda node=node: self.doors[node], self.clock) for node in NODES}  # type: ignore[misc]
        for node in NODES:
            self.mesh.fetchers[node] = self.answer(node)

    def answer(self, node: str) -> Any:
        async def answer(path: str) -> bytes:
            name, _, query = path.partition("?")
            assert name == "logs"
            given = dict(part.split("=", 1) for part in query.replace("%3D", "=").replace("%3B", ";").split("&"))
            return await self.journals[node].own(from_query(given))

        return answer

    async def look(self, query: Query = PLAIN, **more: Any) -> list[dict[str, Any]]:
        body = await self.journals["spark1"].everywhere(query, self.mesh["spark1"], **more)
        nodes: list[dict[str, Any]] = json.loads(body)["nodes"]
        for node in nodes:  # every one fits what the API promises
            wire.decode(NodeJournal, node)
        return nodes


@in_loop
async def test_all_nodes_by_rank_with_how_far_their_clocks_are_ahead() -> None:
    ring = Ring()
    ring.doors["spark2"].ahead = 3.25
    told = await ring.look(Query(epoch=8, lines=7))
    assert [(node["node"], node["rank"], node["offset"]) for node in told] == [
        ("spark1", 0, 0.0),
        ("spark2", 1, 3.25),
        ("spark3", 2, 0.0),
    ]
    assert [node["lines"][0]["text"] for node in told] == ["of spark1", "of spark2", "of spark3"]
    assert [door.asked for door in ring.doors.values()] == [[Query(7, 8)]] * 3


@in_loop
async def test_only_one_node_and_only_what_has_followed() -> None:
    ring = Ring()
    told = await ring.look(only=("spark3",), cursors={"spark3": "s=1;i=5"})
    assert [node["node"] for node in told] == ["spark3"]
    assert ring.doors["spark3"].asked == [Query(cursor="s=1;i=5")]
    assert ring.doors["spark1"].asked == []


@in_loop
async def test_whoever_is_silent_is_named_and_goes_on_where_it_was() -> None:
    ring = Ring()
    ring.mesh.silence("spark2")
    ring.doors["spark1"].broken = "journalctl has left with status 1"
    told = await ring.look(cursors={"spark2": "s=1;i=2"})
    assert [node["error"] for node in told] == ["journalctl has left with status 1", "spark2 does not answer", ""]
    assert told[1]["cursor"] == "s=1;i=2"
    assert told[1]["lines"] == []


@pytest.mark.parametrize("body", [b"x", b"{}", b"[1]", b"[" * 100_000])
@in_loop
async def test_an_answer_that_is_no_journal_is_no_answer(body: bytes) -> None:
    ring = Ring()

    async def odd(path: str) -> bytes:
        return body

    ring.mesh.fetchers["spark3"] = odd
    assert (await ring.look())[2]["error"] == "spark3 gave an answer that is no journal"


@in_loop
async def test_no_node_speaks_for_another() -> None:
    ring = Ring()
    ring.mesh.fetchers["spark3"] = ring.answer("spark2")
    assert (await ring.look())[2]["error"] == "spark3 gave an answer that is no journal"


@in_loop
async def test_the_door_is_made_when_it_is_needed_and_closed_then() -> None:
    ring = Ring()
    ring.journals["spark1"].close()
    assert not ring.doors["spark1"].closed
    await ring.look()
    ring.journals["spark1"].close()
    assert ring.doors["spark1"].closed


@pytest.mark.parametrize(
    "query", [Query(), Query(5000, 8, 1.5, "a&b=c", "s=1;i=2a;b=3"), Query(since=0.0), Query(epoch=0)]
)
def test_a_query_travels_whole(query: Query) -> None:
    assert from_query(dict(parse_qsl(as_query(query), keep_blank_values=True))) == query


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lines", "0"),
        ("lines", "5001"),
        ("lines", "-1"),
        ("lines", "²"),
        ("lines", "9" * 5000),
        ("epoch", "x"),
        ("epoch", "9" * 16),
        ("since", "soon"),
        ("since", "nan"),
        ("since", "-1"),
        ("cursor", "--all"),
    ],
)
def test_what_is_no_query_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError):
        from_query({name: value})
