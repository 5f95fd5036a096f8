"""Every source is asked once, each for itself, and again only when it may have changed."""

from __future__ import annotations

import asyncio

import pytest

from sparkd.core.model import HelloFacts, HostFacts, LinkFact, NetworkFacts, RoceFact, Unknown
from sparkd.reconcile.observer import SOURCES, Observer
from tests.fakes import FakeHellos, FakeHost, FakeLinks, FakeRoce, FakeRoom, FakeUnits
from tests.fakes.links import DEFAULT_SETTINGS
from tests.reconcile.running import in_loop, turns

HCA = RoceFact("rocep1s0f0", "ACTIVE", "enp1s0f0np0")


class SlowHost(FakeHost):
    """Answers once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def observe(self) -> HostFacts:
        await self.may_answer.wait()
        return await super().observe()


class Doors:
    def __init__(self, host: FakeHost | None = None) -> None:
        self.units = FakeUnits()
        self.links = FakeLinks("enp1s0f0np0")
        self.roce = FakeRoce()
        self.host = host or FakeHost()
        self.hello = FakeHellos(FakeRoom(), self.links, "spark1")
        self.observer = Observer(self.units, self.links, self.roce, self.host, self.hello)

    def break_all(self, sentence: str) -> None:
        for door in (self.units, self.links, self.roce, self.host, self.hello):
            door.broken = sentence

    async def change_all(self) -> None:
        """Something happens at each source."""
        await self.units.start(7)
        self.links.set_up("enp1s0f0np0", True)
        self.roce.devices[HCA.hca] = HCA
        self.host.use_memory(1024)
        self.hello.switch_ipv6("enp1s0f0np0", False)

    @property
    def known(self) -> dict[str, object]:
        o = self.observer
        return {"units": o.units, "network": o.network, "roce": o.roce, "host": o.host, "hello": o.hello}

    @property
    def network(self) -> NetworkFacts:
        assert isinstance(self.observer.network, NetworkFacts)
        return self.observer.network


@in_loop
async def test_before_the_first_look_nothing_is_known() -> None:
    assert all(isinstance(fact, Unknown) for fact in Doors().known.values())


@in_loop
async def test_the_first_look_asks_every_source() -> None:
    doors = Doors()
    await doors.observer.refresh()
    assert doors.known == {
        "units": (),
        "network": NetworkFacts(
            (LinkFact("enp1s0f0np0", False, False, 1500, "02:00:00:00:00:01", 1, DEFAULT_SETTINGS),)
        ),
        "roce": (),
        "host": doors.host.facts,
        "hello": HelloFacts(doors.hello.node_id, boot="boot of spark1", macs=("02:00:00:00:00:01",)),
    }


@in_loop
async def test_only_stale_sources_are_asked() -> None:
    doors = Doors()
    await doors.observer.refresh()
    before = doors.known
    await doors.change_all()
    await doors.observer.refresh()
    assert doors.known == before
    for number, source in enumerate(SOURCES):
        doors.observer.stale(source)
        await doors.observer.refresh()
        changed = {name for name, fact in doors.known.items() if fact != before[name]}
        assert changed == set(SOURCES[: number + 1])


@in_loop
async def test_a_tick_asks_all_of_them() -> None:
    doors = Doors()
    await doors.observer.refresh()
    before = doors.known
    await doors.change_all()
    doors.observer.all_stale()
    await doors.observer.refresh()
    assert [name for name, fact in doors.known.items() if fact == before[name]] == []


@in_loop
async def test_news_from_elsewhere_makes_no_source_stale() -> None:
    doors = Doors()
    await doors.observer.refresh()
    doors.host.use_memory(1024)
    doors.observer.stale("peers")
    doors.observer.stale("")
    await doors.observer.refresh()
    assert doors.known["host"] != doors.host.facts


@in_loop
async def test_a_source_that_fails_is_unknown_with_its_reason_and_is_asked_again() -> None:
    doors = Doors()
    await doors.observer.refresh()
    doors.break_all("it hangs")
    doors.observer.all_stale()
    await doors.observer.refresh()
    assert doors.known == dict.fromkeys(SOURCES, Unknown("it hangs"))
    doors.break_all("")
    await doors.observer.refresh()  # nobody said that there is news
    assert not any(isinstance(fact, Unknown) for fact in doors.known.values())


@pytest.mark.parametrize("broken", ["units", "links", "roce", "host", "hello"])
def test_one_failure_leaves_the_other_answers(broken: str) -> None:
    @in_loop
    async def look() -> None:
        doors = Doors()
        getattr(doors, broken).broken = "no answer"
        await doors.observer.refresh()
        unknown = [name for name, fact in doors.known.items() if isinstance(fact, Unknown)]
        assert unknown == [broken.replace("links", "network")]

    look()


@in_loop
async def test_a_slow_source_does_not_keep_the_others_from_being_asked() -> None:
    host = SlowHost()
    doors = Doors(host)
    look = asyncio.create_task(doors.observer.refresh())
    await turns()
    # The others have been asked by now, so they do not see this any more.
    doors.links.set_up("enp1s0f0np0", True)
    await doors.units.start(7)
    host.may_answer.set()
    await look
    assert doors.known["units"] == ()
    assert not doors.network.links[0].up
    assert doors.known["host"] == host.facts


@in_loop
async def test_news_while_a_source_is_being_asked_is_not_lost() -> None:
    host = SlowHost()
    doors = Doors(host)
    look = asyncio.create_task(doors.observer.refresh())
    await turns()
    doors.links.set_up("enp1s0f0np0", True)
    doors.observer.stale("network")
    host.may_answer.set()
    await look
    await doors.observer.refresh()
    assert doors.network.links[0].up


@in_loop
async def test_a_look_that_is_broken_off_is_taken_again() -> None:
    host = SlowHost()
    doors = Doors(host)
    look = asyncio.create_task(doors.observer.refresh())
    await turns()
    look.cancel()
    await asyncio.wait({look})
    host.may_answer.set()
    await doors.observer.refresh()
    assert not any(isinstance(fact, Unknown) for fact in doors.known.values())
