"""What only real sockets show: the kernel's ways with groups and addresses, strangers, and how much is sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.host.hello import PER_SECOND, MulticastHellos
from sparkd.host.hello_message import Hello, Seal
from sparkd.host.hello_socket import GROUP, PORT
from sparkd.host.hello_table import MAX_PER_PORT
from sparkd.ports import DoorError
from tests.contract.machine import Machine, machines
from tests.contract.waiting import Bell, until

P0, P1 = PORTS[0].device, PORTS[2].device
KEY = b"key"
ONE, TWO = "1" * 32, "2" * 32
BOOT = "f" * 36
LONG = 60.0
TWO_AT_P1 = Neighbour(P0, "spark2", TWO, P1, "lab", True)
MAC = "02:00:00:00:00:02"


class Daemon:
    def __init__(self, machine: Machine, name: str, node_id: str, period: float, raw: bool) -> None:
        self.machine = machine
        self.bell = Bell()
        self.door = MulticastHellos("lab", name, node_id, KEY, period=period, raw=raw)
        machine.do(lambda: self.door.subscribe(self.bell))

    async def observe(self) -> HelloFacts:
        return await self.machine.run(self.door.observe())

    def poke(self) -> None:
        self.machine.do(self.door.poke)

    async def until_hears(self, *neighbours: Neighbour, seconds: float = 5.0) -> float:
        began = time.monotonic()

        def so(facts: HelloFacts) -> bool:
            return {replace(n, boot="", mac="") for n in facts.neighbours} == set(neighbours)

        await until(self.observe, so, seconds)
        return time.monotonic() - began


@contextlib.asynccontextmanager
async def daemon(machine: Machine, number: int, period: float = LONG, *, raw: bool = False) -> AsyncIterator[Daemon]:
    started = Daemon(machine, f"spark{number}", str(number) * 32, period, raw)
    try:
        yield started
    finally:
        machine.do(started.door.close)


@contextlib.contextmanager
def speaker(machine: Machine, device: str = P1, port: int = 0) -> Iterator[socket.socket]:
    """A program that says to the group whatever it likes."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.bind(("::", port))
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(device))
        return made

    with machine.do(make) as made:
        yield made


@contextlib.contextmanager
def cabled() -> Iterator[tuple[Machine, Machine]]:
    """Two hosts and a cable on which both can speak already."""
    with machines(2) as (one, two):
        one.cable(P0, two, P1)
        one.address(P0)
        two.address(P1)
        yield one, two


def hello(
    number: int = 2, *, key: bytes = KEY, node: str = "", asks: bool = False, nonce: str = "", repeats: str = ""
) -> bytes:
    names = ("lab", node or f"spark{number}", f"{number:032x}")
    return Seal(key).write(Hello(*names, P1, BOOT, asks, MAC, nonce, (repeats,) if repeats else ()))


async def said_by(machine: Machine) -> str:
    """The number that the daemon says on the port that this machine is cabled to; it is asked for it."""
    with speaker(machine, port=PORT) as ear:
        machine.do(lambda: _join(ear, P1))
        ear.settimeout(2)
        ear.sendto(hello(9, asks=True), (GROUP, PORT))
        read = Seal(KEY).read(await asyncio.to_thread(ear.recv, 2048))
    assert read is not None and read[1]
    return read[0].nonce


def stranger(number: int) -> Neighbour:
    return Neighbour(P0, f"spark{number}", f"{number:032x}", P1, "lab", False)


def test_a_daemon_that_starts_is_seen_and_sees_without_waiting_for_a_period() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as first:
            await first.until_hears()
            async with daemon(two, 2) as second:
                assert await first.until_hears(TWO_AT_P1) < 2
                await second.until_hears(Neighbour(P1, "spark1", ONE, P0, "lab", True), seconds=2)
                assert (await first.observe()).settled == ()  # that takes a period
            async with daemon(two, 2) as successor:
                # The first has not forgotten the one before it: it answers because it is asked.
                await successor.until_hears(Neighbour(P1, "spark1", ONE, P0, "lab", True), seconds=2)

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_an_address_that_the_kernel_still_tries_out_is_waited_for() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as first, daemon(two, 2) as second:
            for host, device in ((one, P0), (two, P1)):
                host.address(device, tried_out=False)
            first.poke()
            second.poke()
            assert await first.until_hears(TWO_AT_P1) > 0.5

    with machines(2, quick=False) as (one, two):
        one.cable(P0, two, P1)
        asyncio.run(body(one, two))


def test_a_plug_that_leads_back_into_its_own_port_is_heard() -> None:
    async def body(one: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears(Neighbour(P0, "spark1", ONE, P0, "lab", True))

    with machines(1) as (one,):
        one.ip(
            f"link add dev {P0} type veth peer name plug",
            "link add dev mirror type bridge mcast_snooping 0",
            "link set dev plug master mirror",
            "link set dev plug type bridge_slave hairpin on",
            "link set dev mirror up",
            "link set dev plug up",
            f"link set dev {P0} up",
        )
        one.address(P0)
        asyncio.run(body(one))


def test_a_copy_of_this_hosts_disk_is_no_loop() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            proof = await said_by(two)
            with speaker(two) as mouth:
                copy = Hello("lab", "spark2", ONE, P1, BOOT, False, MAC, "", (proof,))
                mouth.sendto(Seal(KEY).write(copy), (GROUP, PORT))
                await only.until_hears(Neighbour(P0, "spark2", ONE, P1, "lab", True))
            facts = await only.observe()
            assert [(n.boot, n.mac) for n in facts.neighbours] == [(BOOT, MAC)]
            assert facts.boot == _boot_id() and MAC not in facts.macs

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_a_device_that_lost_its_groups_joins_again() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1, period=0.2) as first, daemon(two, 2, period=0.2):
            await first.until_hears(TWO_AT_P1)
            one.ip(f"link set dev {P0} mtu 1000")  # below 1280 there is no IPv6
            seen = await until(first.observe, lambda facts: facts.deaf == (P0,))
            assert seen.neighbours == ()
            one.ip(f"link set dev {P0} mtu 9000")
            await first.until_hears(TWO_AT_P1)
            one.ip(f"link set dev {P0} mtu 1000", f"link set dev {P0} mtu 9000")  # with no look between the two
            await asyncio.sleep(1.0)  # by now it would be forgotten
            await first.until_hears(TWO_AT_P1)

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_only_the_group_on_a_fabric_port_from_a_link_local_address_is_heard() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            proof = await said_by(two)
            with speaker(one, "enP7s7") as member, speaker(two, "management") as mouth:
                # With any member on the device the kernel hands its datagrams to members on other devices too.
                one.do(lambda: _join(member, "enP7s7"))
                mouth.sendto(hello(3, repeats=proof), (GROUP, PORT))
            with speaker(two) as mouth:
                scope = two.do(lambda: socket.if_nametoindex(P1))
                mouth.sendto(hello(4, repeats=proof), (one.address(P0), PORT, 0, scope))
            with speaker(two) as mouth:
                info = socket.inet_pton(socket.AF_INET6, "fd00::2") + scope.to_bytes(4, "little")
                ancillary = [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info)]
                mouth.sendmsg([hello(5, repeats=proof)], ancillary, 0, (GROUP, PORT, 0, scope))
                mouth.sendto(hello(2, repeats=proof), (GROUP, PORT))
            await only.until_hears(Neighbour(P0, "spark2", f"{2:032x}", P1, "lab", True))

    with cabled() as (one, two):
        one.cable("enP7s7", two, "management")
        two.address("management")
        two.ip(f"address add fd00::2/64 dev {P1} nodad")
        one.ip(f"address add fd00::1/64 dev {P0} nodad")
        asyncio.run(body(one, two))


def test_a_storm_of_garbage_neither_wakes_nor_grows_nor_deafens() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            proof = await said_by(two)
            with speaker(two) as mouth:
                mouth.sendto(hello(2, repeats=proof), (GROUP, PORT))
                genuine = Neighbour(P0, "spark2", f"{2:032x}", P1, "lab", True)
                await only.until_hears(genuine)
                await only.bell.quiet()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                for number in range(10_000):
                    mouth.sendto(_garbage(number), (GROUP, PORT))
                    if number % 100 == 0:
                        await only.observe()
                await only.until_hears(genuine)
                assert only.bell.sources == []
                assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
                mouth.sendto(hello(7, repeats=proof), (GROUP, PORT))
                await only.until_hears(genuine, Neighbour(P0, "spark7", f"{7:032x}", P1, "lab", True))

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def _garbage(number: int) -> bytes:
    """Noise of every length, JSON that is no hello, hellos that are cut or changed, and ones that are too long."""
    whole = hello(2)
    return (
        os.urandom(number % 600),
        b"{}" + os.urandom(32),
        b"[" * 400,
        whole[: number % len(whole)],
        whole.replace(b'"v":1', b'"v":9'),
        whole.replace(b"spark2", b"\x1b[31m2"),
        whole + b" " * 512,
        hello(8)[:-32] + b" " * 512,
    )[number % 8]


def test_a_storm_of_strangers_wakes_a_few_times_and_does_not_keep_a_member_out() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            proof = await said_by(two)
            with speaker(two) as mouth:
                for number in range(10, 3010):
                    mouth.sendto(hello(number, key=b"other", asks=True), (GROUP, PORT))
                    mouth.sendto(hello(10, key=b"other", node=f"name-{number}"), (GROUP, PORT))
                    if number % 50 == 0:
                        await only.observe()
                await only.until_hears(*(stranger(number) for number in range(10, 10 + MAX_PER_PORT)))
                assert len(only.bell.sources) <= MAX_PER_PORT
                mouth.sendto(hello(2, repeats=proof), (GROUP, PORT))
                facts = await until(only.observe, lambda facts: any(n.ours for n in facts.neighbours))
                assert len(facts.neighbours) == MAX_PER_PORT

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_no_storm_makes_a_port_say_more_than_it_may() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            with speaker(two, port=PORT) as ear:
                two.do(lambda: _join(ear, P1))
                ear.setblocking(False)
                end = time.monotonic() + 2.0
                number = said = 0
                while time.monotonic() < end:
                    number += 1
                    ear.sendto(hello(2 + number % 5, asks=True), (GROUP, PORT))
                    only.poke()
                    await asyncio.sleep(0.005)
                    with contextlib.suppress(BlockingIOError):
                        while ear.recv(2048):
                            said += 1
                assert number > 100
                assert PER_SECOND <= said <= 3 * PER_SECOND

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def _join(ear: socket.socket, device: str) -> None:
    group = socket.inet_pton(socket.AF_INET6, GROUP) + socket.if_nametoindex(device).to_bytes(4, "little")
    ear.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
    ear.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)


def test_a_udp_port_in_other_hands_is_named_once_and_taken_when_it_is_free() -> None:
    async def body(one: Machine, two: Machine) -> None:
        with speaker(one, P0, port=PORT) as other:
            async with daemon(two, 2, period=0.2), daemon(one, 1, period=0.2) as only:
                with pytest.raises(DoorError, match=f"hello: UDP port {PORT} cannot be used: Address already in use"):
                    await only.observe()
                await asyncio.sleep(0.6)
                assert len(only.bell.sources) == 1
                one.do(other.close)
                await asyncio.sleep(0.4)
                await only.until_hears(TWO_AT_P1)

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def test_whoever_is_new_is_answered_at_once_without_asking_and_only_then() -> None:
    async def body(one: Machine, two: Machine) -> None:
        async with daemon(one, 1) as only:
            await only.until_hears()
            with speaker(two, port=PORT) as ear:
                two.do(lambda: _join(ear, P1))
                ear.settimeout(2)
                ear.sendto(hello(9, key=b"other", asks=True), (GROUP, PORT))
                first = await asyncio.to_thread(ear.recv, 2048)
                ear.sendto(hello(9, key=b"other", asks=True), (GROUP, PORT))
                proof = Seal(KEY).read(first)
                assert proof is not None
                ear.sendto(hello(2, nonce="ab" * 8, repeats=proof[0].nonce), (GROUP, PORT))
                second = await asyncio.to_thread(ear.recv, 2048)
                read = [Seal(KEY).read(data) for data in (first, second)]
                assert [(r[0].asks, r[0].repeated, r[1]) for r in read if r] == [
                    (True, (), True),
                    (False, ("ab" * 8,), True),
                ]
                assert [replace(r[0], asks=False, mac="", nonce="", repeated=()) for r in read if r] == [
                    Hello("lab", "spark1", ONE, P0, _boot_id())
                ] * 2
                ear.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    await asyncio.to_thread(ear.recv, 2048)

    with cabled() as (one, two):
        asyncio.run(body(one, two))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def test_no_capability_is_needed() -> None:
    """The door as a program of its own that has none."""
    with machines(1) as (one,):
        one.ip(f"link add dev {P0} type veth peer name far", f"link set dev {P0} up", "link set dev far up")
        program = (
            "import asyncio, pathlib; from sparkd.host.hello import MulticastHellos\n"
            "async def main():\n"
            "    door = MulticastHellos('lab', 'spark1', '1' * 32, b'key')\n"
            "    lines = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
            "    print(*[line for line in lines if 'CapEff' in line])\n"
            "    print((await door.observe()).deaf, sorted(door._socket._joined))\n"
            "    door.close()\n"
            "asyncio.run(main())"
        )
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        index = one.do(lambda: socket.if_nametoindex(P0))
        done = one.do(
            lambda: subprocess.run(
                [*command, "/usr/bin/python3", "-c", program], check=False, capture_output=True, text=True, timeout=20
            )
        )
        assert (done.stdout, done.stderr) == (f"CapEff:\t{0:016x}\n() [{index}]\n", "")
