"""RDMA and large packets over each link, between the addresses that sparkd has set and by the GIDs that came of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sparkd.core.checks.gids import common_index
from sparkd.core.hardware import GidFact
from sparkd.core.model import RoceFact
from tests.lab.layout import NODES, End, ends_of
from tests.lab.ring import RingOn
from tests.vm.bringup import REQUEST_SECONDS, addresses, daemons_again, only_the_fabric, started
from tests.vm.control import Fleet
from tests.vm.layout import CABLES, hca
from tests.vm.rdma import Rdma

pytestmark = pytest.mark.vm

LINKS = {str(link.a): link for link in CABLES}


@pytest.fixture(scope="module")
def fabric(fleet: Fleet) -> Iterator[dict[tuple[str, str], str]]:
    """The address, with its prefix length, by node and device, of a fabric that sparkd has set up and nobody uses."""
    ring = RingOn(fleet, REQUEST_SECONDS)
    started(ring)
    found = addresses(ring)
    only_the_fabric(fleet)
    yield found
    daemons_again(fleet)


@pytest.mark.parametrize("link", LINKS)
def test_verbs_between_the_addresses_of_a_link(fabric: dict[tuple[str, str], str], rdma: Rdma, link: str) -> None:
    """A hundred messages there and back, and then writes as NCCL's, by the GID of sparkd's address at each end."""
    server, client = LINKS[link].ends
    address, own = (fabric[end.node, end.device].partition("/")[0] for end in (server, client))
    indices = [rdma.index_of(server, address), rdma.index_of(client, own)]

    def pair(tool: str, option: str) -> str:
        sides = [
            shlex.split(f"{tool} -d {hca(end)} {option} {index}")
            for end, index in zip((server, client), indices, strict=True)
        ]
        return rdma.pair((server.node, sides[0]), (client.node, [*sides[1], address])).stdout

    answer = pair("ibv_rc_pingpong -i 1 -n 100", "-g")
    assert "100 iters in" in answer
    # The far end of the conversation is the GID of the address, and not another way there.
    assert f"::ffff:{address}" in answer
    answer = pair("ib_write_bw -F -s 65536 -n 200", "-x")
    # Bytes, iterations, peak and average in MB/s.
    measured = re.search(r"^ *65536 +200 +[\d.]+ +([\d.]+)", answer, re.MULTILINE)
    assert measured is not None and float(measured[1]) > 0, answer


@pytest.mark.parametrize("link", LINKS)
def test_a_jumbo_frame_goes_through_a_link_whole(fleet: Fleet, fabric: dict[tuple[str, str], str], link: str) -> None:
    near, far = LINKS[link].ends
    address = fabric[far.node, far.device].partition("/")[0]
    ping = ("ping", "-n", "-c", "2", "-W", "5", "-M", "do", "-I", near.device, "-s")
    assert fleet.exec(near.node, *ping, "8972", address, check=False).returncode == 0
    refused = fleet.exec(near.node, *ping, "8973", address, check=False)
    assert refused.returncode != 0
    assert "message too long" in (refused.stdout + refused.stderr).lower()


LOOK = """
import asyncio, json, sys
sys.path.insert(0, "/usr/lib/sparkd")
from dataclasses import asdict
from sparkd.host.gids import SysfsGids
from sparkd.host.sysfs import SysfsRoce

async def look():
    gids, roce = SysfsGids(deadline=100), SysfsRoce(deadline=100)
    found = [asdict(each) for each in await gids.observe(json.loads(sys.argv[1]))]
    print(json.dumps([found, [asdict(each) for each in await roce.observe()]]))
    gids.close(), roce.close()

asyncio.run(look())
"""


@dataclass(frozen=True)
class Seen:
    """What the installed package's own doors see on a node, by RDMA device, given all the time they need."""

    gids: dict[str, GidFact]
    roce: dict[str, RoceFact]


def _look(fleet: Fleet, fabric: dict[tuple[str, str], str], node: str) -> Seen:
    wanted = {end.device: fabric[node, end.device].partition("/")[0] for end in ends_of(node)}
    gids, roce = json.loads(fleet.exec(node, "python3", "-I", "-c", LOOK, json.dumps(wanted), timeout=300).stdout)
    return Seen(
        {each["hca"]: GidFact(**each | {"others": tuple(each["others"])}) for each in gids},
        {each["hca"]: RoceFact(**each) for each in roce},
    )


def test_gids_are_found_where_the_kernel_has_put_them(
    fleet: Fleet, fabric: dict[tuple[str, str], str], rdma: Rdma
) -> None:
    for node in NODES:
        seen = _look(fleet, fabric, node)
        for end in ends_of(node):
            address = fabric[node, end.device].partition("/")[0]
            expected = GidFact(hca(end), end.device, rdma.index_of(end, address), address, address, link_local=True)
            assert seen.gids[hca(end)] == expected
            assert seen.roce[hca(end)] == RoceFact(hca(end), "ACTIVE", end.device)


def test_an_index_that_is_another_on_one_device_is_not_common(
    fleet: Fleet, fabric: dict[tuple[str, str], str], rdma: Rdma
) -> None:
    """An address of somebody else has come first, and has the slot where ours would be."""
    end = End("spark2", 0, "0000")
    own = fabric[end.node, end.device]
    steps = (f"delete {own}", "add 192.168.200.1/24", f"add {own}")
    assert common_index(tuple(_look(fleet, fabric, end.node).gids.values())) is not None
    try:
        for step in steps:
            fleet.exec(end.node, "ip", "address", *step.split(), "dev", end.device)
        moved = rdma.index_of(end, own.partition("/")[0])
        seen = _look(fleet, fabric, end.node)
        assert seen.gids[hca(end)].index == moved
        assert seen.gids[hca(end)].others == ("192.168.200.1",)
        assert moved not in {gid.index for name, gid in seen.gids.items() if name != hca(end)}
        assert common_index(tuple(seen.gids.values())) is None
    finally:
        fleet.exec(end.node, "ip", "address", "flush", "dev", end.device, "scope", "global", check=False)
        fleet.exec(end.node, "ip", "address", "add", own, "dev", end.device)


def test_a_device_that_is_gone_and_one_without_light_are_told(fleet: Fleet, fabric: dict[tuple[str, str], str]) -> None:
    gone, dark = End("spark3", 1, "0002"), End("spark3", 0, "0000")
    fleet.exec(gone.node, "rdma", "link", "delete", hca(gone))
    fleet.unplug(dark.node, dark.port, dark.domain)
    try:
        seen = _look(fleet, fabric, gone.node)
        address = fabric[gone.node, gone.device].partition("/")[0]
        assert seen.gids[hca(gone)] == GidFact(hca(gone), gone.device, wanted=address, absent=True)
        assert hca(gone) not in seen.roce
        assert seen.roce[hca(dark)] == RoceFact(hca(dark), "DOWN", dark.device)
        assert len(seen.gids) == 4
    finally:
        fleet.exec(gone.node, "rdma", "link", "add", hca(gone), "type", "rxe", "netdev", gone.device)
        fleet.plug(dark.node, dark.port, dark.domain)
