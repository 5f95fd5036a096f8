"""Hellos in bare Ethernet frames between ports of which one or both have IPv6 switched off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from sparkd.core.facts import Neighbour
from sparkd.host.hello_raw import ETHERTYPE, GROUP
from tests.contract.machine import Machine
from tests.contract.test_hello_kernel import ONE, P0, P1, TWO_AT_P1, cabled, daemon
from tests.contract.waiting import until

PERIOD = 0.2
ONE_AT_P0 = Neighbour(P1, "spark1", ONE, P0, "lab", True)
Body = Callable[[Machine, Machine], Awaitable[None]]


def on_a_cable(body: Body) -> None:
    async def whole(one: Machine, two: Machine) -> None:
        await body(one, two)

    with cabled() as (one, two):
        asyncio.run(whole(one, two))


def switch(machine: Machine, device: str, on: bool) -> None:
    machine.sysctl(f"ipv6/conf/{device}/disable_ipv6", "0" if on else "1")


def test_a_port_without_ipv6_hears_and_is_heard_and_goes_back_to_ipv6() -> None:
    async def body(one: Machine, two: Machine) -> None:
        switch(one, P0, False)
        async with daemon(one, 1, PERIOD, raw=True) as first, daemon(two, 2, PERIOD, raw=True) as second:
            await first.until_hears(TWO_AT_P1)
            await second.until_hears(ONE_AT_P0)
            assert (await first.observe()).deaf == ()
            await first.bell.quiet()
            switch(one, P0, True)
            await asyncio.sleep(6 * PERIOD)  # longer than anything is believed that is not heard again
            assert {n.node for n in (await first.observe()).neighbours} == {"spark2"}
            assert {n.node for n in (await second.observe()).neighbours} == {"spark1"}

    on_a_cable(body)


def test_two_ports_without_ipv6() -> None:
    async def body(one: Machine, two: Machine) -> None:
        switch(one, P0, False)
        switch(two, P1, False)
        async with daemon(one, 1, PERIOD, raw=True) as first, daemon(two, 2, PERIOD, raw=True) as second:
            await first.until_hears(TWO_AT_P1)
            await second.until_hears(ONE_AT_P0)
            # A veth hands everything up; a network card only what the host has asked for.
            groups = one.do(Path("/proc/thread-self/net/dev_mcast").read_text).splitlines()
            assert [line.split()[4] for line in groups if P0 in line and "333300005eed" in line] == [GROUP.hex()]

    on_a_cable(body)


def test_a_port_below_the_mtu_of_ipv6() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1, PERIOD, raw=True) as first, daemon(two, 2, PERIOD, raw=True):
            one.ip(f"link set dev {P0} mtu 1000")
            await asyncio.sleep(6 * PERIOD)
            await first.until_hears(TWO_AT_P1)

    on_a_cable(body)


def test_without_the_capability_at_one_end_nothing_is_different() -> None:
    async def body(one: Machine, two: Machine) -> None:
        switch(one, P0, False)
        async with daemon(one, 1, PERIOD, raw=True) as first, daemon(two, 2, PERIOD) as second:
            await asyncio.sleep(3 * PERIOD)
            assert ((await first.observe()).neighbours, (await second.observe()).neighbours) == ((), ())
        async with daemon(one, 1, PERIOD) as first, daemon(two, 2, PERIOD, raw=True) as second:
            seen = await until(first.observe, lambda facts: facts.deaf == (P0,))
            await asyncio.sleep(3 * PERIOD)
            assert (seen.neighbours, (await second.observe()).neighbours) == ((), ())

    on_a_cable(body)


def test_ports_with_ipv6_send_no_bare_frames() -> None:
    async def body(one: Machine, two: Machine) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with two.do(lambda: socket.socket(socket.AF_PACKET, kind, socket.htons(ETHERTYPE))) as ear:
            async with daemon(one, 1, PERIOD, raw=True) as first, daemon(two, 2, PERIOD, raw=True):
                await first.until_hears(TWO_AT_P1)
                await asyncio.sleep(3 * PERIOD)
                assert _frames(ear) == 0
                switch(one, P0, False)
                await asyncio.sleep(3 * PERIOD)
                assert _frames(ear) > 0

    on_a_cable(body)


def _frames(ear: socket.socket) -> int:
    count = 0
    while True:
        try:
            ear.recv(2048)
        except BlockingIOError:
            return count
        count += 1
