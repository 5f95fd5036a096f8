"""Real RDMA over the fabric that an installed sparkd has configured: devices, GIDs, and traffic on every cable."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from tests.lab.layout import NODES, End, ends_of
from tests.lab.ring import RingOn
from tests.vm.control import Fleet
from tests.vm.layout import CABLES, hca
from tests.vm.rdma import Rdma, all_ends

pytestmark = pytest.mark.vm

READY_SECONDS = 300
"""From a start to ready on emulated processors; a Spark takes seconds."""
EXAMINED_SECONDS = 180
"""The daemon looks at the host's hardware once a minute."""
LINKS = {str(link.a): link for link in CABLES}


def _started(ring: RingOn) -> dict[str, Any]:
    """A ready ring, started if need be."""
    for node in NODES:
        ring.until(node, lambda seen: bool(seen["cables"]), READY_SECONDS)
    if ring.get("spark1")["want"] != "up":
        answer = ring.ask("spark1", "POST", "/v1/ring/start")
        assert answer.status == 202, answer
    return ring.phase("ready", seconds=READY_SECONDS)


def _stopped(ring: RingOn) -> None:
    assert ring.ask("spark1", "POST", "/v1/ring/stop").status == 202
    ring.phase("down", seconds=READY_SECONDS)


def _addresses(ring: RingOn) -> dict[tuple[str, str], str]:
    """The planned address, with its prefix length, by node and device."""
    plan = ring.ask("spark1", "GET", "/v1/plan").body
    return {(end["node"], end["device"]): end["address"] for end in plan["ends"]}


def _environment(ring: RingOn, node: str, epoch: int) -> dict[str, str]:
    """What the rank on a node was started with, by its file, after a look whether its process has the same."""
    text = ring.hosts.exec(node, "cat", f"/run/sparkd/rank-{epoch}.env").stdout
    given = dict(line.split("=", 1) for line in text.splitlines())
    pid = ring.show(node, f"sparkd-rank@{epoch}.service", "MainPID")
    has = ring.hosts.exec(node, "cat", f"/proc/{pid}/environ").stdout.split("\0")
    # Of the plain file no value is quoted.
    assert {f"{key}={value}" for key, value in given.items()} <= set(has)
    return given


def _verdict(ring: RingOn, node: str) -> dict[str, Any]:
    """What the doctor says of the GIDs of a node: its check, with the findings of it."""
    nodes = ring.ask("spark1", "GET", "/v1/doctor").body["nodes"]
    told = next(each for each in nodes if each["node"] == node)
    check: dict[str, Any] = next((each for each in told["checks"] or [] if each["id"] == "gid-missing"), {})
    return check | {"findings": [each for each in told["findings"] if each["id"] == "gid-missing"]}


def _until_verdict(ring: RingOn, node: str, verdict: str) -> dict[str, Any]:
    """The doctor's word once it is this verdict. Raises AssertionError with the last."""
    said: dict[str, Any] = {}

    def so(_: dict[str, Any]) -> bool:
        said.clear()
        said.update(_verdict(ring, node))
        return said.get("verdict") == verdict

    try:
        ring.until("spark1", so, EXAMINED_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{node}: gid-missing: {said}") from error
    return said


def test_every_rdma_device_is_seen_with_its_port(ring: RingOn) -> None:
    for node in NODES:
        ring.until(node, lambda seen: bool(seen["cables"]), READY_SECONDS)
        seen = ring.ask(node, "GET", "/v1/host").body["roce"]
        expected = {(hca(end), "ACTIVE", end.device) for end in ends_of(node)}
        assert {(each["hca"], each["state"], each["netdev"]) for each in seen} == expected


def test_every_link_is_heard(ring: RingOn) -> None:
    seen = ring.until("spark1", lambda seen: bool(seen["cables"]), READY_SECONDS)
    assert seen["cables"] == ["spark1.0~spark2.1", "spark1.1~spark3.0", "spark2.0~spark3.1"]
    heard = {
        frozenset({(each["node"], neighbour["device"]), (neighbour["node"], neighbour["remote"])})
        for each in seen["fabric"]
        for neighbour in each["neighbours"] or ()
    }
    assert heard == {frozenset((end.node, end.device) for end in link.ends) for link in CABLES}


def test_a_ready_ring_has_its_addresses_and_its_gids(fleet: Fleet, ring: RingOn, rdma: Rdma) -> None:
    epoch = _started(ring)["epoch"]
    addresses = _addresses(ring)
    assert len(addresses) == len(all_ends(fleet))
    for node in NODES:
        shown = fleet.exec(node, "ip", "-4", "-o", "address", "show").stdout
        on_ports = {(words[1], words[3]) for words in map(str.split, shown.splitlines())}
        assert {(end.device, addresses[node, end.device]) for end in ends_of(node)} <= on_ports
        indices = {hca(end): rdma.index_of(end, addresses[node, end.device].partition("/")[0]) for end in ends_of(node)}
        environment = _environment(ring, node, epoch)
        assert environment["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"
        common = {str(index) for index in indices.values()}
        assert {environment.get("NCCL_IB_GID_INDEX")} == (common if len(common) == 1 else {None}), indices


def test_the_doctor_finds_every_gid(ring: RingOn) -> None:
    _started(ring)
    for node in NODES:
        assert _until_verdict(ring, node, "pass")["findings"] == []


@pytest.mark.parametrize("link", LINKS)
def test_verbs_between_the_addresses_of_a_link(ring: RingOn, rdma: Rdma, link: str) -> None:
    """A thousand messages there and back, and then writes as NCCL's, by the GID of sparkd's address at each end."""
    _started(ring)
    server, client = LINKS[link].ends
    address, own = (_addresses(ring)[end.node, end.device].partition("/")[0] for end in (server, client))
    indices = [rdma.index_of(server, address), rdma.index_of(client, own)]

    def pair(tool: str, option: str) -> str:
        sides = [
            shlex.split(f"{tool} -d {hca(end)} {option} {index}")
            for end, index in zip((server, client), indices, strict=True)
        ]
        return rdma.pair((server.node, sides[0]), (client.node, [*sides[1], address])).stdout

    answer = pair("ibv_rc_pingpong -i 1 -n 1000", "-g")
    assert "1000 iters in" in answer
    # The far end of the conversation is the GID of the address, and not another way there.
    assert f"::ffff:{address}" in answer
    answer = pair("ib_write_bw -F -s 65536 -n 200", "-x")
    # Bytes, iterations, peak and average in MB/s.
    measured = re.search(r"^ *65536 +200 +[\d.]+ +([\d.]+)", answer, re.MULTILINE)
    assert measured is not None and float(measured[1]) > 0, answer


@pytest.mark.parametrize("link", LINKS)
def test_a_jumbo_frame_goes_through_a_link_whole(fleet: Fleet, ring: RingOn, link: str) -> None:
    _started(ring)
    near, far = LINKS[link].ends
    address = _addresses(ring)[far.node, far.device].partition("/")[0]
    ping = ("ping", "-n", "-c", "2", "-W", "5", "-M", "do", "-I", near.device, "-s")
    assert fleet.exec(near.node, *ping, "8972", address, check=False).returncode == 0
    refused = fleet.exec(near.node, *ping, "8973", address, check=False)
    assert refused.returncode != 0
    assert "message too long" in (refused.stdout + refused.stderr).lower()


def test_indices_that_differ_are_left_to_nccl(fleet: Fleet, ring: RingOn, rdma: Rdma) -> None:
    """An address of somebody else in the slot where ours would be: one device's GID moves, the others' do not."""
    _started(ring)
    _stopped(ring)
    end = End("spark2", 0, "0000")
    fleet.exec("spark2", "ip", "address", "add", "192.168.200.1/24", "dev", end.device)
    try:
        epoch = _started(ring)["epoch"]
        addresses = _addresses(ring)
        indices = {
            hca(each): rdma.index_of(each, addresses["spark2", each.device].partition("/")[0])
            for each in ends_of("spark2")
        }
        assert len(set(indices.values())) == 2, indices
        environment = _environment(ring, "spark2", epoch)
        assert "NCCL_IB_GID_INDEX" not in environment
        assert environment["NCCL_IB_HCA"].count(",") == 3
        assert "NCCL_IB_GID_INDEX" in _environment(ring, "spark3", epoch)
    finally:
        fleet.exec("spark2", "ip", "address", "delete", "192.168.200.1/24", "dev", end.device, check=False)


def test_a_device_that_goes_is_named_by_the_doctor(fleet: Fleet, ring: RingOn) -> None:
    _started(ring)
    end = End("spark3", 1, "0002")
    fleet.exec("spark3", "rdma", "link", "delete", hca(end))
    try:
        said = _until_verdict(ring, "spark3", "fail")
        assert [finding["subject"] for finding in said["findings"]] == [hca(end)]
        assert said["findings"][0]["observed"] == f"no GID in {hca(end)}'s table"
    finally:
        fleet.exec("spark3", "rdma", "link", "add", hca(end), "type", "rxe", "netdev", end.device)
    assert _until_verdict(ring, "spark3", "pass")["findings"] == []


def test_a_pulled_cable_is_named(fleet: Fleet, ring: RingOn) -> None:
    _started(ring)
    _stopped(ring)
    fleet.unplug("spark1", 0)

    def dark(seen: dict[str, Any]) -> bool:
        found = {(each["node"], each["subject"]) for each in seen["findings"] if each["id"] == "cable-missing"}
        return found == {("spark1", "port 0"), ("spark2", "port 1")}

    seen = ring.until("spark3", dark, READY_SECONDS)
    told = {each["observed"] for each in seen["findings"] if each["id"] == "cable-missing"}
    assert told == {"no carrier on enp1s0f0np0, enP2p1s0f0np0", "no carrier on enp1s0f1np1, enP2p1s0f1np1"}
    states = ring.ask("spark1", "GET", "/v1/host").body["roce"]
    assert {each["hca"] for each in states if each["state"] != "ACTIVE"} == {"rocep1s0f0", "roceP2p1s0f0"}
    fleet.plug("spark1", 0)
    ring.until("spark3", lambda seen: bool(seen["cables"]) and not seen["findings"], READY_SECONDS)


def test_a_node_that_reboots_comes_back_into_a_ready_ring(fleet: Fleet, ring: RingOn) -> None:
    before = _started(ring)
    fleet.reboot("spark2")
    after = ring.phase("ready", seconds=READY_SECONDS, above=before["epoch"])
    assert _environment(ring, "spark2", after["epoch"])["NCCL_IB_HCA"].count(",") == 3
