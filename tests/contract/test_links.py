"""What FakeLinks and the kernel both do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from sparkd.core.actions import AddAddress, AddRoute, FabricChange, RemoveAddress, RemoveRoute, SetMtu, SetUp
from sparkd.core.model import AddressFact, LinkFact, NetworkFacts, RouteFact
from sparkd.host.netlink import NetlinkLinks
from sparkd.ports import DoorError, Links
from tests.contract.namespace import inside
from tests.contract.networks import ONE, TWO, FakeWorld, RealWorld, World
from tests.contract.waiting import Bell, until
from tests.fakes import FakeLinks

LABEL = f"{ONE}:s"
ADDRESS = AddAddress(ONE, "10.77.0.1/24", LABEL)
ROUTE = AddRoute("10.77.2.2", "10.77.0.2", ONE, "10.77.0.1")
OURS = RouteFact("10.77.2.2/32", ONE, "10.77.0.2", "10.77.0.1", 173)
WHOLE = (SetUp(ONE), SetMtu(ONE, 9000), ADDRESS, ROUTE)


@dataclass
class Bench:
    links: Links
    world: World

    async def refuse(self, *changes: FabricChange) -> str:
        with pytest.raises(DoorError) as caught:
            await self.links.apply(changes)
        return str(caught.value)

    async def link(self, device: str = ONE) -> LinkFact:
        found = (await self.links.observe()).link(device)
        assert found is not None
        return found

    async def ours(self) -> list[RouteFact]:
        return [route for route in (await self.links.observe()).routes if route.protocol == 173]


Body = Callable[[Bench], Awaitable[None]]


async def _fake(body: Body) -> None:
    links = FakeLinks()
    world = FakeWorld(links)
    world.prepare()
    await body(Bench(links, world))
    links.close()


async def _real(body: Body) -> None:
    world = RealWorld()
    world.prepare()
    links = NetlinkLinks()
    try:
        await body(Bench(links, world))
    finally:
        links.close()


@pytest.fixture(params=["fake", "real"])
def run(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    def run_fake(body: Body) -> None:
        asyncio.run(_fake(body))

    def run_real(body: Body) -> None:
        before = set(threading.enumerate())
        inside(lambda: asyncio.run(_real(body)))
        assert set(threading.enumerate()) <= before

    return run_fake if request.param == "fake" else run_real


Run = Callable[[Body], None]


def test_a_new_port_is_down_without_carrier_address_or_route(run: Run) -> None:
    async def body(bench: Bench) -> None:
        seen = await bench.links.observe()
        link = seen.link(ONE)
        assert link is not None
        assert (link.up, link.carrier, link.mtu) == (False, False, 1500)
        assert len(link.mac.split(":")) == 6
        assert not [address for address in seen.addresses if address.device == ONE]
        assert not seen.routes

    run(body)


def test_the_whole_configuration_once_and_again(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        seen = await bench.links.observe()
        link = seen.link(ONE)
        assert link is not None
        assert (link.up, link.carrier, link.mtu) == (True, True, 9000)
        assert AddressFact(ONE, "10.77.0.1/24", LABEL) in seen.addresses
        assert set(seen.routes) == {OURS, RouteFact("10.77.0.0/24", ONE, "", "10.77.0.1", 2)}
        await bench.links.apply(WHOLE)
        assert await bench.links.observe() == seen

    run(body)


def test_nothing_to_do_is_nothing(run: Run) -> None:
    async def body(bench: Bench) -> None:
        before = await bench.links.observe()
        await bench.links.apply(())
        assert await bench.links.observe() == before

    run(body)


def test_a_port_that_is_down_takes_an_address_but_no_route(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([ADDRESS])
        assert not (await bench.links.observe()).routes
        sentence = await bench.refuse(ROUTE)
        assert sentence.startswith(f"{ONE}: cannot add the route to 10.77.2.2 via 10.77.0.2")
        await bench.links.apply([SetUp(ONE), ROUTE])
        assert await bench.ours() == [OURS]

    run(body)


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (AddRoute("10.77.2.2", "10.99.0.2", ONE, "10.77.0.1"), "invalid gateway"),
        (AddRoute("10.77.2.2", "10.77.0.2", ONE, "10.77.0.9"), "Invalid prefsrc"),
        (AddRoute("10.77.2.2", "10.77.0.2", TWO, "10.77.0.1"), "invalid gateway"),
    ],
)
def test_a_route_needs_a_neighbour_on_the_port_and_a_source_of_ours(run: Run, route: AddRoute, why: str) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetUp(ONE), SetUp(TWO), ADDRESS])
        sentence = await bench.refuse(route)
        assert sentence.startswith(f"{route.device}: ")
        assert why in sentence
        assert not await bench.ours()

    run(body)


@pytest.mark.parametrize("mtu", [65536, 67])
def test_an_mtu_the_device_cannot_have_is_refused(run: Run, mtu: int) -> None:
    async def body(bench: Bench) -> None:
        sentence = await bench.refuse(SetMtu(ONE, mtu))
        assert sentence.startswith(f"{ONE}: cannot set MTU {mtu}: ")
        assert (await bench.link()).mtu == 1500

    run(body)


@pytest.mark.parametrize(
    "change", [SetUp("gone0"), SetMtu("gone0", 9000), AddAddress("gone0", "10.1.1.1/24", "gone0:s")]
)
def test_a_device_that_is_not_there_is_named(run: Run, change: FabricChange) -> None:
    async def body(bench: Bench) -> None:
        sentence = await bench.refuse(change)
        assert sentence.startswith("gone0: ")
        assert "no such network device" in sentence

    run(body)


def test_what_is_gone_with_its_device_is_removed_already(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([RemoveAddress("gone0", "10.1.1.1/24"), RemoveRoute("10.1.2.1", "10.1.1.2", "gone0")])
        await bench.links.apply([RemoveAddress(ONE, "10.1.1.1/24"), RemoveRoute("10.1.2.1", "10.1.1.2", ONE)])
        assert not (await bench.links.observe()).routes

    run(body)


def test_one_failure_does_not_keep_the_rest_from_being_done(run: Run) -> None:
    async def body(bench: Bench) -> None:
        sentence = await bench.refuse(SetUp("gone0"), SetUp(ONE), SetMtu(ONE, 99999), SetMtu(ONE, 9000))
        assert sentence.startswith("gone0: ")
        assert "1 more" in sentence
        link = await bench.link()
        assert (link.up, link.mtu) == (True, 9000)

    run(body)


def test_a_route_of_ours_moves_to_another_gateway(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        await bench.links.apply([AddRoute("10.77.2.2", "10.77.0.7", ONE, "10.77.0.1")])
        await bench.links.apply([RemoveRoute("10.77.2.2/32", "10.77.0.2", ONE)])  # where it was
        assert [route.gateway for route in await bench.ours()] == ["10.77.0.7"]

    run(body)


def test_a_foreign_route_is_named_and_left_alone(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetUp(ONE), ADDRESS])
        bench.world.add_route("10.77.2.2", "10.77.0.9")
        before = await bench.links.observe()
        sentence = await bench.refuse(ROUTE)
        assert "another program has its own route" in sentence
        assert "10.77.0.9" in sentence
        await bench.links.apply([RemoveRoute("10.77.2.2", "10.77.0.9", ONE)])
        assert await bench.links.observe() == before

    run(body)


def test_a_foreign_address_is_left_alone(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bench.world.add_address("10.77.0.1/24")
        await bench.links.apply([ADDRESS, RemoveAddress(ONE, "10.77.0.1/24")])
        seen = await bench.links.observe()
        assert AddressFact(ONE, "10.77.0.1/24", ONE) in seen.addresses

    run(body)


def test_removing_our_own_leaves_nothing_and_does_so_twice(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        removal: list[FabricChange] = [
            RemoveRoute("10.77.2.2/32", "10.77.0.2", ONE),
            RemoveAddress(ONE, "10.77.0.1/24"),
        ]
        await bench.links.apply(removal)
        await bench.links.apply(removal)
        seen = await bench.links.observe()
        assert not seen.routes
        assert not [address for address in seen.addresses if address.device == ONE]

    run(body)


def test_an_address_takes_the_routes_that_name_it_along(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bench.world.add_address("10.5.0.1/24")
        await bench.links.apply(WHOLE)
        bench.world.remove_address("10.77.0.1/24")
        assert [route.destination for route in (await bench.links.observe()).routes] == ["10.5.0.0/24"]

    run(body)


def test_a_devices_last_address_takes_all_its_routes_along(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetUp(ONE), ADDRESS])
        bench.world.add_route("10.88.0.0/24", "10.77.0.9")
        assert len((await bench.links.observe()).routes) == 2
        await bench.links.apply([RemoveAddress(ONE, "10.77.0.1/24")])
        assert not (await bench.links.observe()).routes

    run(body)


def test_a_port_that_goes_down_loses_routes_and_keeps_addresses(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        bench.world.set_down()
        seen = await bench.links.observe()
        assert not seen.routes
        assert AddressFact(ONE, "10.77.0.1/24", LABEL) in seen.addresses
        await bench.links.apply([SetUp(ONE)])
        assert [route.destination for route in (await bench.links.observe()).routes] == ["10.77.0.0/24"]

    run(body)


def test_a_device_that_goes_takes_everything_along(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        bench.world.remove_device()
        seen = await until(bench.links.observe, lambda facts: facts.link(ONE) is None)
        assert not seen.routes
        assert not [address for address in seen.addresses if address.device == ONE]

    run(body)


def test_a_pulled_cable_keeps_the_routes_and_is_counted(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply(WHOLE)
        before = await bench.link()
        bench.world.set_far(False)

        def pulled(facts: NetworkFacts) -> bool:
            link = facts.link(ONE)
            return link is not None and not link.carrier

        seen = await until(bench.links.observe, pulled)
        assert OURS in seen.routes
        assert (await bench.link()).up
        assert (await bench.link()).carrier_changes == before.carrier_changes + 1
        bench.world.set_far(True)
        await until(bench.links.observe, lambda facts: not pulled(facts))
        assert (await bench.link()).carrier_changes == before.carrier_changes + 2

    run(body)


@pytest.mark.parametrize("event", ["carrier", "address", "route", "mtu"])
def test_every_kind_of_change_wakes(run: Run, event: str) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetUp(ONE), ADDRESS])
        bell = Bell()
        bench.links.subscribe(bell)
        await bell.quiet()
        if event == "carrier":
            bench.world.set_far(False)
        elif event == "address":
            bench.world.add_address("10.5.0.1/24")
        elif event == "route":
            bench.world.add_route("10.88.0.0/24", "10.77.0.9")
        else:
            await bench.links.apply([SetMtu(ONE, 9000)])
        await bell.rings()
        assert set(bell.sources) == {"network"}

    run(body)


def test_many_changes_at_once_wake_a_few_times(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bell = Bell()
        bench.links.subscribe(bell)
        await bell.quiet()
        await bench.links.apply([AddAddress(ONE, f"10.5.{number}.1/24", LABEL) for number in range(200)])
        assert await bell.rings() < 20
        await asyncio.sleep(0.1)
        assert len(bell.sources) < 20

    run(body)


def test_after_close_it_neither_answers_nor_wakes(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bell = Bell()
        bench.links.subscribe(bell)
        await bell.quiet()
        bench.links.close()
        with pytest.raises(DoorError, match="closed"):
            await bench.links.observe()
        bench.world.add_address("10.5.0.1/24")
        await asyncio.sleep(0.05)
        assert not bell.sources

    run(body)
