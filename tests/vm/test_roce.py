"""RDMA devices and GIDs of a real kernel under an installed sparkd: seen, resolved, missed, and back after a reboot."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.layout import NODES, End, ends_of
from tests.lab.ring import RingOn
from tests.vm.bringup import READY_SECONDS, addresses, environment, started, stopped, until_verdict
from tests.vm.control import Fleet
from tests.vm.layout import CABLES, hca
from tests.vm.rdma import Rdma, all_ends

pytestmark = pytest.mark.vm


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
    epoch = started(ring)["epoch"]
    planned = addresses(ring)
    assert len(planned) == len(all_ends(fleet))
    for node in NODES:
        shown = fleet.exec(node, "ip", "-4", "-o", "address", "show").stdout
        on_ports = {(words[1], words[3]) for words in map(str.split, shown.splitlines())}
        assert {(end.device, planned[node, end.device]) for end in ends_of(node)} <= on_ports
        indices = {hca(end): rdma.index_of(end, planned[node, end.device].partition("/")[0]) for end in ends_of(node)}
        given = environment(ring, node, epoch)
        assert given["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"
        common = {str(index) for index in indices.values()}
        assert {given.get("NCCL_IB_GID_INDEX")} == (common if len(common) == 1 else {None}), indices


def test_every_rail_is_measured_by_rdma_before_a_start(ring: RingOn) -> None:
    measured = started(ring)["rails"]
    ends = {frozenset((rail[end]["node"], rail[end]["device"]) for end in "ab") for rail in measured}
    assert len(measured) == 6 and len(ends) == 6
    for rail in measured:
        assert (rail["method"], rail["mtu_passed"]) == ("rdma", True), rail
        assert rail["gbps"] > 0, rail


def test_the_kernels_log_is_followed(fleet: Fleet, ring: RingOn) -> None:
    """With a kernel of their own the machines have a log of their own, which the unit lets the daemon read."""
    for node in NODES:
        pid = fleet.exec(node, "systemctl", "show", "--property=MainPID", "--value", "sparkd").stdout.strip()
        opened = fleet.exec(node, "find", f"/proc/{pid}/fd", "-lname", "/dev/kmsg").stdout.split()
        assert len(opened) == 1, f"{node}: {ring.ask(node, 'GET', '/v1/events').body}"


def test_the_doctor_finds_every_gid(ring: RingOn) -> None:
    started(ring)
    for node in NODES:
        assert until_verdict(ring, node, "pass")["findings"] == []


def test_indices_that_differ_are_left_to_nccl(fleet: Fleet, ring: RingOn, rdma: Rdma) -> None:
    """An address of somebody else in the slot where ours would be: one device's GID moves, the others' do not."""
    started(ring)
    end = End("spark2", 0, "0000")
    own = addresses(ring)[end.node, end.device].partition("/")[0]
    stopped(ring)
    rdma.until_gone(end, own, READY_SECONDS)
    fleet.exec("spark2", "ip", "address", "add", "192.168.200.1/24", "dev", end.device)
    try:
        epoch = started(ring)["epoch"]
        planned = addresses(ring)
        indices = {
            hca(each): rdma.index_of(each, planned["spark2", each.device].partition("/")[0])
            for each in ends_of("spark2")
        }
        assert len(set(indices.values())) == 2, indices
        given = environment(ring, "spark2", epoch)
        assert "NCCL_IB_GID_INDEX" not in given
        assert given["NCCL_IB_HCA"].count(",") == 3
        assert "NCCL_IB_GID_INDEX" in environment(ring, "spark3", epoch)
    finally:
        fleet.exec("spark2", "ip", "address", "delete", "192.168.200.1/24", "dev", end.device, check=False)


def test_a_device_that_goes_is_named_by_the_doctor(fleet: Fleet, ring: RingOn) -> None:
    started(ring)
    end = End("spark3", 1, "0002")
    fleet.exec("spark3", "rdma", "link", "delete", hca(end))
    try:
        said = until_verdict(ring, "spark3", "fail")
        assert [finding["subject"] for finding in said["findings"]] == [hca(end)]
        assert said["findings"][0]["observed"] == f"no RDMA device for {end.device}, though other ports have theirs"
    finally:
        fleet.exec("spark3", "rdma", "link", "add", hca(end), "type", "rxe", "netdev", end.device)
    assert until_verdict(ring, "spark3", "pass")["findings"] == []


def test_a_pulled_cable_is_named(fleet: Fleet, ring: RingOn) -> None:
    started(ring)
    stopped(ring)
    fleet.unplug("spark1", 0)

    def dark(seen: dict[str, Any]) -> bool:
        found = {(each["node"], each["subject"]) for each in seen["findings"] if each["id"] == "cable-missing"}
        return found == {("spark1", "port 0"), ("spark2", "port 1")}

    seen = ring.until("spark3", dark, READY_SECONDS)
    told = {each["observed"] for each in seen["findings"] if each["id"] == "cable-missing"}
    assert told == {"no carrier on enp1s0f0np0, enP2p1s0f0np0", "no carrier on enp1s0f1np1, enP2p1s0f1np1"}

    def down(_: dict[str, Any]) -> bool:
        states = ring.ask("spark1", "GET", "/v1/host").body["roce"] or []
        return {each["hca"] for each in states if each["state"] != "ACTIVE"} == {"rocep1s0f0", "roceP2p1s0f0"}

    # The carrier wakes the daemon; the state of the RDMA port follows the carrier a little later, and waits for a tick.
    ring.until("spark1", down, READY_SECONDS)
    fleet.plug("spark1", 0)
    ring.until("spark3", lambda seen: bool(seen["cables"]) and not seen["findings"], READY_SECONDS)


def test_a_node_that_reboots_comes_back_into_a_ready_ring(fleet: Fleet, ring: RingOn) -> None:
    before = started(ring)
    fleet.reboot("spark2")
    after = ring.phase("ready", seconds=READY_SECONDS, above=before["epoch"])
    assert environment(ring, "spark2", after["epoch"])["NCCL_IB_HCA"].count(",") == 3
