"""RDMA and large packets over each link, between the addresses that sparkd has set and by the GIDs that came of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

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
