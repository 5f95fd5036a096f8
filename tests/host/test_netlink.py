"""What only the real kernel and library can show; the rest is in tests/contract."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from sparkd.core.actions import AddRoute, SetMtu, SetUp
from sparkd.core.model import RouteFact
from sparkd.host.netlink import NetlinkLinks
from sparkd.host.rtnl import Conversation, Refused
from sparkd.ports import DoorError
from tests.contract.namespace import inside, ip

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR = 16, 18, 20, 22
NLM_F_ACK, NLM_F_DUMP = 0x4, 0x300


def run(program: str, *wrapper: str) -> str:
    command = [*wrapper, sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_loads_a_part_of_pyroute2_and_leaves_the_package_usable() -> None:
    program = """
import sys
import sparkd.host.netlink
parts = [name for name in sys.modules if name.split(".")[0] == "pyroute2"]
assert "pyroute2" not in parts, "the stand-in was left behind"
print(len(parts))
"""
    assert int(run(program)) < 60
    run("import sparkd.host.netlink, pyroute2; pyroute2.IPRoute().close()", "env", "PYTHONWARNINGS=ignore")


def test_the_import_works_without_the_stand_in() -> None:
    program = """
import importlib.machinery, sys
real = importlib.machinery.PathFinder.find_spec
class Blind:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name == "pyroute2" and path is None else real(name, path, target)
# As if the package came from something else than a directory on sys.path.
importlib.machinery.PathFinder.find_spec, finders = Blind.find_spec, sys.meta_path
class Found:
    find_spec = staticmethod(lambda name, path=None, target=None: real(name, path, target))
sys.meta_path.append(Found)
import sparkd.host.netlink
print("pyroute2" in sys.modules)
"""
    assert run(program) == "True"


def test_without_the_capability_the_sentence_says_so() -> None:
    program = """
import asyncio
from sparkd.core.actions import SetUp
from sparkd.host.netlink import NetlinkLinks
from sparkd.ports import DoorError
async def main():
    links = NetlinkLinks()
    assert (await links.observe()).link("lo")
    try:
        await links.apply([SetUp("lo")])
    except DoorError as error:
        print(error)
    links.close()
asyncio.run(main())
"""
    bare = ("unshare", "--net", "setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    assert run(program, *bare) == "lo: cannot bring it up: Operation not permitted (this needs CAP_NET_ADMIN)"


def observed(*commands: str) -> tuple[RouteFact, ...]:
    found: list[RouteFact] = []

    async def body() -> None:
        links = NetlinkLinks()
        found.extend((await links.observe()).routes)
        links.close()

    def prepare() -> None:
        ip("link add a0 type veth peer name b0", "link set a0 up", "link set b0 up", "address add 10.1.0.1/24 dev a0")
        ip(*commands)
        asyncio.run(body())

    inside(prepare)
    return tuple(found)


def test_a_default_route_and_one_over_several_gateways() -> None:
    routes = observed(
        "route add default via 10.1.0.9 metric 100",
        "route add 10.9.0.0/16 proto static nexthop via 10.1.0.2 nexthop via 10.1.0.3",
    )
    assert RouteFact("0.0.0.0/0", "a0", "10.1.0.9", "", 3) in routes
    assert RouteFact("10.9.0.0/16", "a0", "10.1.0.2", "", 4) in routes
    assert RouteFact("10.9.0.0/16", "a0", "10.1.0.3", "", 4) in routes


def test_only_unicast_routes_of_the_main_table_count() -> None:
    routes = observed(
        "route add 10.8.0.0/16 via 10.1.0.2 table 1000",
        "route add 10.7.0.0/16 via 10.1.0.2 table 100",
        "route add blackhole 10.6.0.0/16",
        "rule add from 10.5.0.0/16 table 100",
    )
    assert {route.destination for route in routes} == {"10.1.0.0/24"}


def test_more_objects_than_fit_into_one_answer() -> None:
    async def body() -> None:
        links = NetlinkLinks()
        seen = await links.observe()
        assert len(seen.links) == 201
        assert len([address for address in seen.addresses if address.device == "a0"]) == 1501
        links.close()

    def prepare() -> None:
        ip(*(f"link add a{number} type veth peer name b{number}" for number in range(100)))
        ip(
            *(f"address add 10.{n // 250}.{n % 250}.1/24 dev a0" for n in range(1500)),
            "address add 10.99.0.1/32 dev a0",
        )
        asyncio.run(body())

    inside(prepare)


def test_a_route_is_ours_although_another_with_a_worse_metric_is_not() -> None:
    async def body() -> None:
        links = NetlinkLinks()
        await links.apply([AddRoute("10.5.0.1", "10.1.0.2", "a0", "10.1.0.1")])
        await links.apply([AddRoute("10.5.0.1", "10.1.0.3", "a0", "10.1.0.1")])
        routes = [route for route in (await links.observe()).routes if route.destination == "10.5.0.1/32"]
        assert sorted((route.gateway, route.protocol) for route in routes) == [("10.1.0.3", 173), ("10.1.0.7", 3)]
        links.close()

    def prepare() -> None:
        ip("link add a0 type veth peer name b0", "link set a0 up", "link set b0 up", "address add 10.1.0.1/24 dev a0")
        ip("route add 10.5.0.1 via 10.1.0.7 metric 50")
        asyncio.run(body())

    inside(prepare)


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another() -> None:
    def body() -> None:
        ip("link set lo up")
        conversation = Conversation(1.0)
        conversation._send(RTM_NEWLINK, NLM_F_ACK, bytes(32))  # to be refused, and left unread
        addresses = conversation.dump(RTM_GETADDR, bytes(16) + bytes([socket.AF_INET]) + bytes(7))
        kinds = {int.from_bytes(answer[4:6], sys.byteorder) for answer in addresses if answer}
        assert kinds == {RTM_NEWADDR}
        with pytest.raises(Refused):
            conversation.change(RTM_NEWLINK, 0, bytes(32))
        conversation.close()

    inside(body)


def test_a_socket_that_failed_is_replaced() -> None:
    async def body() -> None:
        links = NetlinkLinks()
        await links.observe()
        conversation = links._conversation
        assert conversation is not None
        conversation._send(RTM_GETLINK, NLM_F_DUMP, bytes(32))  # the kernel refuses another dump until this is read
        with pytest.raises(DoorError, match="busy"):
            await links.observe()
        conversation._socket.close()
        with pytest.raises(DoorError, match="Bad file descriptor"):
            await links.observe()
        assert (await links.observe()).link("lo")
        links.close()

    inside(lambda: asyncio.run(body()))


def test_a_wedged_rtnl_is_told_within_the_deadline_and_leaves_one_thread() -> None:
    """A socket whose other end does not answer stands in for the kernel whose rtnl lock is held."""

    async def body() -> None:
        links = NetlinkLinks(deadline=0.2)
        await links.observe()
        conversation = links._conversation
        assert conversation is not None
        conversation._socket.close()
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        conversation._socket = near
        with pytest.raises(DoorError, match=r"netlink did not answer within 0\.2 s"):
            await links.observe()
        with pytest.raises(DoorError, match="netlink has not answered for"):
            await links.apply([SetUp("lo"), SetMtu("lo", 9000)])
        assert [thread.name for thread in threading.enumerate()].count("netlink") == 1
        far.send(b"".join([(20).to_bytes(4, sys.byteorder), b"\3\0\0\0", bytes(12)]))  # of an older sequence
        far.close()
        near.shutdown(socket.SHUT_RDWR)
        links.close()
        near.close()

    inside(lambda: asyncio.run(body()))
