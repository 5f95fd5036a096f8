"""A hello that somebody has recorded makes no cable appear: each test plays one back that was believed before."""

from __future__ import annotations

import asyncio

import pytest

from ring_mesh import PORTS
from sparkd.core.facts import Neighbour
from sparkd.host.hello_proof import Challenge
from sparkd.host.hello_socket import GROUP, PORT
from tests.contract.machine import Machine
from tests.contract.test_hello_kernel import P0, P1, cabled, daemon, hello, said_by, speaker

PERIOD = 0.2
FORGOTTEN = 1.0  # seconds, five periods
GENUINE = Neighbour(P0, "spark2", f"{2:032x}", P1, "lab", True)
OTHER_NEAR, OTHER_FAR = PORTS[1].device, PORTS[3].device


async def recorded(machine: Machine) -> bytes:
    """A hello of spark2 that proves itself at this moment."""
    return hello(2, repeats=await said_by(machine))


async def play(machine: Machine, data: bytes, device: str = P1, seconds: float = 0.3) -> None:
    with speaker(machine, device) as mouth:
        for _ in range(int(seconds / 0.05)):
            mouth.sendto(data, (GROUP, PORT))
            await asyncio.sleep(0.05)


def test_later() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1, PERIOD) as only:
            await only.until_hears()
            data = await recorded(two)
            await play(two, data, seconds=0.1)
            await only.until_hears(GENUINE)
            await asyncio.sleep(FORGOTTEN)
            await only.until_hears()
            await play(two, data)
            assert (await only.observe()).neighbours == ()

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_on_another_port() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1, 60.0) as only:
            await only.until_hears()
            data = await recorded(two)
            await play(two, data, OTHER_FAR)
            assert (await only.observe()).neighbours == ()
            await play(two, data, seconds=0.1)
            await only.until_hears(GENUINE)

    with cabled() as (one, two):
        one.cable(OTHER_NEAR, two, OTHER_FAR)
        one.address(OTHER_NEAR)
        two.address(OTHER_FAR)
        asyncio.run(body(one, two))


def test_to_the_next_daemon() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as first:
            await first.until_hears()
            data = await recorded(two)
            await play(two, data, seconds=0.1)
            await first.until_hears(GENUINE)
        async with daemon(one, 1) as second:
            await second.until_hears()
            await play(two, data)
            assert (await second.observe()).neighbours == ()

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_after_the_port_was_dark() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            data = await recorded(two)
            two.ip(f"link set dev {P1} down")
            await asyncio.sleep(1.2)  # the kernel tells losses of carrier once a second at most
            only.poke()
            await asyncio.sleep(0.3)
            two.ip(f"link set dev {P1} up")
            two.address(P1)
            only.poke()
            await asyncio.sleep(0.3)
            await play(two, data)
            assert (await only.observe()).neighbours == ()

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_without_the_number_that_the_port_has_said_a_hello_proves_nothing() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            await play(two, hello(2, nonce=await said_by(two)))
            await play(two, hello(2, repeats="00" * 8))
            assert (await only.observe()).neighbours == ()

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_a_number_counts_for_as_long_as_it_is_held_and_is_followed_by_others() -> None:
    challenge = Challenge(renew=5.0, hold=16.0)
    first = challenge.nonce(100.0)
    assert challenge.nonce(104.9) == first
    second = challenge.nonce(105.0)
    assert second != first
    assert challenge.proven((first,), 115.9) and not challenge.proven((first,), 116.0)
    assert challenge.proven(("00" * 8, second), 120.9)
    assert not challenge.proven((), 105.0)
    challenge.forget()
    assert not challenge.proven((second,), 105.0)


@pytest.mark.parametrize("number", [1, 4, 9])
def test_the_last_four_that_were_heard_are_repeated(number: int) -> None:
    challenge = Challenge(renew=5.0, hold=16.0)
    said = [f"{index:016x}" for index in range(number)]
    assert [challenge.heard(nonce) for nonce in said] == [True] * number
    assert not challenge.heard(said[-1]) and not challenge.heard("")
    assert challenge.repeated() == tuple(said[-4:])
