"""What is known of the peers: pulled from each, pushed by each, and never better than it is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sparkd.core.model import PeerView, RankUnit
from sparkd.peers.client import ANSWER_DEADLINE, URGENT_DEADLINE
from sparkd.peers.poller import Poller
from sparkd.ports import DoorError
from tests.core.builders import report
from tests.peers.remote import DOWN, Remote, RemoteClient
from tests.reconcile.running import in_loop, until

LONG = 60.0  # a tick that never comes
SHORT = 0.02
MINE = report("spark1", DOWN)


class Bench:
    def __init__(self, tick: float) -> None:
        self.remotes = {name: Remote(name) for name in ("spark2", "spark3")}
        self.poller = Poller(tuple(self.remotes), lambda name: RemoteClient(self.remotes[name]), tick)
        self.wakes: list[str] = []
        self.poller.subscribe(self.wakes.append)

    @property
    def two(self) -> Remote:
        return self.remotes["spark2"]

    @property
    def view(self) -> PeerView:
        """Of spark2."""
        return self.poller.views()[0]

    async def known(self) -> None:
        """Both have answered, and nobody is being asked any more."""
        await until(lambda: all(view.report == self.remotes[view.name].report for view in self.poller.views()))
        await asyncio.sleep(0)
        self.wakes.clear()


@contextlib.asynccontextmanager
async def polling(tick: float = LONG) -> AsyncIterator[Bench]:
    bench = Bench(tick)
    task = asyncio.create_task(bench.poller.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait({task})
        for remote in bench.remotes.values():
            remote.may_answer.set()
        bench.poller.close()
        await until(lambda: all(remote.closed == 2 for remote in bench.remotes.values()))


@in_loop
async def test_before_anybody_has_answered() -> None:
    bench = Bench(LONG)
    assert bench.poller.views() == (PeerView("spark2"), PeerView("spark3"))
    bench.poller.close()


@in_loop
async def test_every_peer_is_asked_at_once_and_again_with_each_tick() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        assert bench.view.age is not None
        assert bench.view.age < 1
        asked = bench.two.pulled
        await until(lambda: bench.two.pulled >= asked + 3)
        assert bench.two.heard == []


@in_loop
async def test_the_loop_is_woken_by_news_and_by_nothing_else() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        asked = bench.two.pulled
        await until(lambda: bench.two.pulled > asked + 2)
        assert bench.wakes == []
        bench.two.news(unknown=("it hangs",))
        await until(lambda: bench.view.report == bench.two.report)
        assert bench.wakes == ["peers"]


@in_loop
async def test_what_a_serving_rank_tells_is_known_and_wakes_nobody() -> None:
    serving = RankUnit(3, "active", sub="running", main_pid=7, text="ready idle")
    async with polling(SHORT) as bench:
        await bench.known()
        bench.two.news(units=(serving,))
        await until(lambda: bench.view.report == bench.two.report)
        assert bench.wakes == ["peers"]
        bench.two.news(units=(replace(serving, text="ready 44 tokens a second"),), memory_available_kib=1)
        await until(lambda: bench.view.report == bench.two.report)
        assert bench.wakes == ["peers"]
        bench.two.news(units=(replace(serving, text="failed it hangs"),))
        await until(lambda: bench.view.report == bench.two.report)
        assert bench.wakes == ["peers"] * 2


@in_loop
async def test_what_is_published_reaches_every_peer_without_a_tick() -> None:
    async with polling() as bench:
        await bench.known()
        bench.poller.publish(MINE)
        await until(lambda: all(remote.heard == [MINE] for remote in bench.remotes.values()))


@in_loop
async def test_only_the_newest_report_is_given_to_a_slow_peer() -> None:
    async with polling() as bench:
        await bench.known()
        bench.two.may_answer.clear()
        for sequence in range(2, 6):
            bench.poller.publish(replace(MINE, sequence=sequence))
            await asyncio.sleep(0.002)
        bench.two.may_answer.set()
        await until(lambda: len(bench.two.heard) == 2)
        assert [heard.sequence for heard in bench.two.heard] == [2, 5]


@in_loop
async def test_a_slow_peer_does_not_hold_up_the_other() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        bench.two.may_answer.clear()
        bench.remotes["spark3"].news()
        await until(lambda: bench.poller.views()[1].report == bench.remotes["spark3"].report)


@in_loop
async def test_a_dead_peer_ages_with_its_sentence_and_recovers() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        before = bench.view.report
        bench.two.down = "192.168.77.2:7475: connection refused"
        await until(lambda: bench.view.error == bench.two.down)
        assert bench.wakes == ["peers"]
        young = bench.view.age
        asked = bench.two.pulled
        await until(lambda: bench.two.pulled > asked + 2)
        old = bench.view.age
        assert young is not None
        assert old is not None
        assert old > young + SHORT
        assert bench.view.report == before, "it is the last that is known"
        assert bench.wakes == ["peers"], "the same sentence again is no news"
        bench.two.down = "192.168.77.2:7475: no answer in time"
        await until(lambda: len(bench.wakes) == 2)
        bench.two.down = ""
        await until(lambda: bench.view.error == "")
        assert len(bench.wakes) == 3
        assert bench.view.age is not None
        assert bench.view.age < old


@in_loop
async def test_a_peer_that_never_answered_has_no_age() -> None:
    bench = Bench(SHORT)
    bench.two.down = "192.168.77.2:7475: connection refused"
    task = asyncio.create_task(bench.poller.run())
    await until(lambda: bench.two.pulled > 2)
    assert bench.view == PeerView("spark2", None, None, bench.two.down)
    task.cancel()
    await asyncio.wait({task})
    bench.poller.close()


@in_loop
async def test_a_push_is_believed_as_the_next_of_a_daemon_that_was_pulled() -> None:
    async with polling() as bench:
        await bench.known()
        pushed = bench.two.news(unknown=("pushed",))
        bench.poller.receive(pushed)
        assert bench.view.report == pushed
        assert bench.wakes == ["peers"]
        assert bench.two.pulled == 1


@in_loop
async def test_a_push_that_was_overtaken_is_ignored() -> None:
    async with polling() as bench:
        await bench.known()
        old = bench.two.report
        new = bench.two.news(unknown=("new",))
        for pushed in (new, old, replace(new, unknown=("same number",))):
            bench.poller.receive(pushed)
        assert bench.view.report == new
        assert bench.wakes == ["peers"]


@in_loop
async def test_a_push_of_a_daemon_not_pulled_yet_makes_it_be_pulled() -> None:
    async with polling() as bench:
        await bench.known()
        known = bench.view.report
        pushed = replace(bench.two.restart(), unknown=("only in the push",))
        bench.poller.receive(pushed)
        assert bench.view.report == known, "not believed"
        await until(lambda: bench.view.report == bench.two.report)
        assert bench.two.report != pushed


@in_loop
async def test_a_push_before_the_first_answer_makes_it_be_pulled() -> None:
    bench = Bench(LONG)
    bench.two.down = "192.168.77.2:7475: connection refused"
    task = asyncio.create_task(bench.poller.run())
    await until(lambda: bench.view.error == bench.two.down)
    bench.two.down = ""
    bench.poller.receive(replace(bench.two.report, unknown=("only in the push",)))
    assert bench.view.report is None
    await until(lambda: bench.view.report == bench.two.report)
    assert bench.two.pulled == 2
    task.cancel()
    await asyncio.wait({task})
    bench.poller.close()


@in_loop
async def test_an_answer_that_a_push_has_overtaken_is_ignored() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        bench.two.may_answer.clear()
        asked = bench.two.pulled
        await until(lambda: bench.two.pulled > asked)
        pushed = bench.two.news(unknown=("pushed meanwhile",))
        bench.poller.receive(pushed)
        bench.two.may_answer.set()
        await asyncio.sleep(3 * SHORT)
        assert bench.view.report == pushed
        assert bench.wakes == ["peers"]


@in_loop
async def test_a_restarted_daemon_begins_anew_at_one() -> None:
    async with polling(SHORT) as bench:
        for _ in range(5):
            bench.two.news()
        await bench.known()
        again = bench.two.restart()
        await until(lambda: bench.view.report == again)


@in_loop
async def test_strangers_and_oneself_are_not_heard() -> None:
    async with polling() as bench:
        await bench.known()
        before = [view.report for view in bench.poller.views()]
        for name in ("spark1", "spark9", ""):
            bench.poller.receive(replace(MINE, node=name, sequence=99))
        assert [view.report for view in bench.poller.views()] == before
        assert bench.wakes == []


@in_loop
async def test_another_node_at_its_address_is_an_error() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        own = bench.two.report
        bench.two.report = replace(own, node="spark3", sequence=9)
        sentence = "the daemon at its address says that it is spark3"
        await until(lambda: bench.view.error == sentence)
        asked, age = bench.two.pulled, bench.view.age
        await until(lambda: bench.two.pulled > asked + 2)
        assert bench.view.report == own
        assert bench.view.age is not None
        assert age is not None
        assert bench.view.age > age
        assert bench.wakes == ["peers"], "the same sentence again is no news"
        assert bench.poller.views()[1].report == bench.remotes["spark3"].report
        bench.two.report = own
        await until(lambda: bench.view.error == "")


@in_loop
async def test_requests_are_handed_over_while_a_poll_hangs() -> None:
    async with polling(SHORT) as bench:
        await bench.known()
        bench.two.may_answer.clear()
        asked = bench.two.pulled
        await until(lambda: bench.two.pulled > asked)
        body = {"request": "stop", "by": "operator"}
        assert await bench.poller.request("spark2", body) == (202, {"epoch": 4})
        assert bench.two.requests == [body]


@in_loop
async def test_requests_that_cannot_be_handed_over() -> None:
    async with polling() as bench:
        bench.two.down = "192.168.77.2:7475: connection refused"
        with pytest.raises(DoorError) as caught:
            await bench.poller.request("spark2", {})
        assert str(caught.value) == "spark2 cannot be asked: 192.168.77.2:7475: connection refused"
        for name in ("spark1", "spark9"):
            with pytest.raises(DoorError, match=f"{name} is not a peer"):
                await bench.poller.request(name, {})


@in_loop
async def test_its_end_waits_for_nobody() -> None:
    bench = Bench(LONG)
    bench.two.may_answer.clear()
    task = asyncio.create_task(bench.poller.run())
    await until(lambda: bench.two.pulled == 1)
    task.cancel()
    await asyncio.wait({task})
    bench.poller.close()
    assert any(thread.name.startswith("poll-spark2") for thread in threading.enumerate())
    bench.two.may_answer.set()  # as its deadline does; the threads are gone then, which in_loop looks after
    await until(lambda: bench.two.closed == 2)


@in_loop
async def test_a_question_because_of_the_network_waits_less_long() -> None:
    async with polling() as bench:
        await bench.known()
        bench.two.may_answer.clear()
        began = time.monotonic()

        bench.poller.poke()

        await until(lambda: bench.view.error == "no answer in time")
        assert time.monotonic() - began < (URGENT_DEADLINE + ANSWER_DEADLINE) / 2


@in_loop
async def test_a_question_that_the_network_has_overtaken_is_not_waited_for() -> None:
    """1. A peer is told something, and does not answer. 2. Its cables go dark. 3. It is known to be silent in time."""
    async with polling() as bench:
        await bench.known()
        bench.two.may_answer.clear()
        bench.poller.publish(MINE)
        await asyncio.sleep(0.1)
        began = time.monotonic()

        bench.poller.poke()
        bench.poller.poke()

        await until(lambda: bench.view.error == "no answer in time")
        assert time.monotonic() - began < (URGENT_DEADLINE + ANSWER_DEADLINE) / 2
