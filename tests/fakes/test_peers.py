from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from sparkd.core.model import Intent, PeerView, Report
from sparkd.ports import DoorError
from tests.fakes import FakeClock, FakeMesh


def report(node: str, sequence: int = 1, epoch: int = 0) -> Report:
    return Report(node, f"instance of {node}", sequence, "boot", "0.1.0", 1, Intent(epoch))


def mesh() -> FakeMesh:
    return FakeMesh(FakeClock(), "spark1", "spark2", "spark3")


def view(of: FakeMesh, here: str, there: str) -> PeerView:
    return next(view for view in of[here].views() if view.name == there)


async def push(of: FakeMesh, said: Report) -> None:
    of[said.node].publish(said)
    await asyncio.sleep(0)


def test_a_push_reaches_the_others_and_grows_old() -> None:
    async def body() -> None:
        three = mesh()
        woken: list[str] = []
        three["spark2"].subscribe(woken.append)
        await push(three, report("spark1"))
        assert woken == ["peers"]
        assert [view.name for view in three["spark2"].views()] == ["spark1", "spark3"]
        assert view(three, "spark2", "spark1") == PeerView("spark1", report("spark1"), 0.0)
        assert view(three, "spark2", "spark3") == PeerView("spark3")
        assert isinstance(three.clock, FakeClock)
        three.clock.advance(7)
        assert view(three, "spark2", "spark1").age == 7

    asyncio.run(body())


def test_an_overtaken_push_replaces_nothing_but_a_new_daemon_starts_over() -> None:
    three = mesh()
    three["spark2"].receive(report("spark1", sequence=5, epoch=5))
    three["spark2"].receive(report("spark1", sequence=4, epoch=4))
    assert view(three, "spark2", "spark1").report == report("spark1", sequence=5, epoch=5)
    anew = replace(report("spark1", sequence=1, epoch=6), instance="another")
    three["spark2"].receive(anew)
    assert view(three, "spark2", "spark1").report == anew


def test_a_cut_loses_what_is_under_way_and_a_poll_after_it_catches_up() -> None:
    async def body() -> None:
        three = mesh()
        three["spark1"].publish(report("spark1"))
        three.cut("spark1", "spark2")
        await asyncio.sleep(0)
        assert view(three, "spark2", "spark1").report is None
        assert view(three, "spark3", "spark1").report is not None
        three["spark2"].poll()
        assert view(three, "spark2", "spark1").error == "spark1 does not answer"
        three.mend("spark1", "spark2")
        three["spark2"].poll()
        assert view(three, "spark2", "spark1") == PeerView("spark1", report("spark1"), 0.0)

    asyncio.run(body())


def test_a_silent_node_neither_hears_nor_answers_and_remembers_nothing() -> None:
    async def body() -> None:
        three = mesh()

        async def answer(body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
            return 202, {"got": body["verb"]}

        three.handlers["spark1"] = answer
        assert await three["spark2"].request("spark1", {"verb": "up"}) == (202, {"got": "up"})
        await push(three, report("spark2"))
        three.silence("spark1")
        with pytest.raises(DoorError, match="spark1 does not answer"):
            await three["spark2"].request("spark1", {"verb": "up"})
        await push(three, report("spark2", sequence=2))
        three.wake("spark1")
        assert view(three, "spark1", "spark2").report is None
        three["spark1"].poll()
        assert view(three, "spark1", "spark2").report == report("spark2", sequence=2)

    asyncio.run(body())
