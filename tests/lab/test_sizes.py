"""Two nodes on one cable, and four in a ring, whose opposite nodes share none."""

from __future__ import annotations

import time
from ipaddress import IPv4Interface

import pytest

from tests.lab.control import Lab
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab
of_two = pytest.mark.parametrize("sized_lab", [2], ids=["pair"], indirect=True)
of_four = pytest.mark.parametrize("sized_lab", [4], ids=["square"], indirect=True)
of_either = pytest.mark.parametrize("sized_lab", [2, 4], ids=["pair", "square"], indirect=True)


@pytest.fixture
def ring(sized_lab: Lab) -> Ring:
    return Ring(sized_lab)


def _links(ring: Ring) -> set[frozenset[tuple[str, str]]]:
    """The (node, device) at both ends of each rail that carries canaries; the ends share a subnet with no other's."""
    rails = ring.health()["rails"]
    subnets = [{str(IPv4Interface(f"{end['address']}/24").network) for end in rail["ends"]} for rail in rails]
    assert all(len(subnet) == 1 for subnet in subnets)
    assert len(set.union(*subnets)) == len(rails)
    assert all(rail["forward_gbps"] > 0 and rail["backward_gbps"] > 0 for rail in rails)
    return {frozenset((end["node"], end["device"]) for end in rail["ends"]) for rail in rails}


def _cabled(ring: Ring) -> set[frozenset[tuple[str, str]]]:
    return {frozenset((end.node, end.device) for end in link.ends) for link in ring.lab.cables}


@of_either
def test_start_and_stop_from_the_last_node(ring: Ring) -> None:
    nodes = ring.lab.nodes
    ring.settled()
    assert ring.ask(nodes[-1], "POST", "/v1/ring/start").status == 202
    ready = ring.phase("ready")
    assert [(rank["node"], rank["state"]) for rank in ready["ranks"]] == [(node, "ready") for node in nodes]
    assert ready["summary"] == f"epoch {ready['epoch']} is ready: all {len(nodes)} ranks serve"
    assert _links(ring) == _cabled(ring)
    canaries = ring.health()["canaries"]
    ring.until_health(lambda later: later["canaries"] > canaries + 1)
    ring.stop(nodes[-1])
    for node in nodes:
        assert ring.units(node) == []
        assert "10.77." not in ring.lab.exec(node, "ip", "-4", "address").stdout
        assert ring.lab.exec(node, "ip", "route", "show", "proto", "173").stdout == ""


@of_either
def test_rank_exited_stops_the_others_and_the_ring_comes_back(ring: Ring) -> None:
    before = ring.fresh()
    victim = ring.lab.nodes[-1]
    ring.lab.exec(victim, "systemctl", "kill", "-s", "KILL", f"sparkd-rank@{before['epoch']}.service")
    after = ring.phase("ready", above=before["epoch"])
    assert after["deaths"][-1]["node"] == victim
    assert all(ring.units(node) == [f"sparkd-rank@{after['epoch']}.service"] for node in ring.lab.nodes)


@of_either
def test_cable_missing_is_named_at_both_ends(ring: Ring) -> None:
    ring.rest()
    ring.lab.unplug("spark1", 0)
    far = "spark2 port 0" if len(ring.lab.nodes) == 2 else "spark2 port 1"
    expected = {
        f"cable-missing: {near.replace(' port', ': port')}: no carrier on enp1s0f{near[-1]}np{near[-1]}, "
        f"enP2p1s0f{near[-1]}np{near[-1]}; expected a cable from {near} to {other}"
        for near, other in (("spark1 port 0", far), (far, "spark1 port 0"))
    }
    ring.until("spark1", lambda seen: {sentence(f) for f in seen["findings"] if f["severity"] == "refuse"} == expected)
    assert {sentence(finding) for finding in ring.refusal()} == expected


@of_two
@pytest.mark.parametrize(
    "cables",
    [
        ("spark1.p1-spark2.p1",),
        ("spark1.p0-spark2.p1",),
        ("spark1.p0-spark2.p0", "spark1.p1-spark2.p1"),
        ("spark1.p0-spark2.p1", "spark1.p1-spark2.p0"),
    ],
    ids=" ".join,
)
def test_two_nodes_may_be_cabled_in_any_way(ring: Ring, cables: tuple[str, ...]) -> None:
    ring.rest()
    ring.lab.recable(cables)
    ring.until("spark1", lambda seen: len(seen["cables"]) == len(cables), 15)
    ring.settled()
    ring.start()
    assert _links(ring) == _cabled(ring)


@of_two
def test_the_status_of_two_nodes_shows_one_whole_cable(ring: Ring) -> None:
    ring.rest()
    ring.settled()
    ring.start()
    shown = ring.lab.exec("spark2", "sparkctl", "status").stdout
    assert "no device" not in shown
    assert "-X-" not in shown


@of_two
def test_cable_loop_of_two_nodes(ring: Ring) -> None:
    ring.rest()
    ring.lab.recable(["spark1.p0-spark1.p1"])
    ring.until("spark2", lambda seen: {f["id"] for f in seen["findings"]} >= {"cable-loop", "cable-missing"}, 15)
    named = {(f["id"], f["node"], f["subject"]) for f in ring.refusal()}
    assert named >= {("cable-loop", "spark1", "port 0"), ("cable-missing", "spark2", "port 0")}


@of_four
def test_four_nodes_cabled_in_another_order_and_direction_than_their_ranks(ring: Ring) -> None:
    ring.rest()
    ring.lab.recable(
        ["spark1.p1-spark3.p0", "spark3.p1-spark2.p0", "spark2.p1-spark4.p0", "spark4.p1-spark1.p0"],
    )
    ring.until("spark4", lambda seen: "spark1.1~spark3.0" in seen["cables"], 15)
    ring.settled()
    ring.start()
    assert _links(ring) == _cabled(ring)


TWO_RINGS = ("spark1.p0-spark2.p1", "spark2.p0-spark1.p1", "spark3.p0-spark4.p1", "spark4.p0-spark3.p1")


@of_four
def test_two_rings_of_two_are_no_ring_of_four(ring: Ring) -> None:
    ring.rest()
    ring.settled()
    ring.lab.recable(TWO_RINGS)
    ring.until("spark1", lambda seen: seen["cables"] == [] and seen["findings"] == [], 15)
    (found,) = ring.refusal()
    assert sentence(found).startswith("cable-ring: spark1: the cables: ")
    assert "spark3" in found["observed"]
    assert "spark4" in found["observed"]


@of_four
def test_nothing_starts_over_cables_that_are_not_known_yet(ring: Ring) -> None:
    """A start that comes while the ports still listen is refused or waits; it is not for a cabling that was guessed."""
    ring.rest()
    ring.settled()
    ring.lab.recable(TWO_RINGS)
    answer = ring.ask("spark1", "POST", "/v1/ring/start")
    assert answer.status in (202, 409)
    time.sleep(2)
    for node in ring.lab.nodes:
        assert ring.units(node) == []
    ring.stop()


@of_four
def test_opposite_nodes_of_a_ring_of_four_have_no_way_to_each_other_and_take_none(ring: Ring) -> None:
    ring.rest()
    ring.settled()
    ring.start()
    plan = ring.ask("spark1", "GET", "/v1/plan").body
    assert plan["unreachable"]["spark1"] == ["spark3"]
    own = [end["address"].partition("/")[0] for end in plan["ends"] if end["node"] == "spark3"]
    shared = 0
    for address in own:
        way = ring.lab.exec("spark1", "ip", "route", "get", address, check=False)
        # Nothing may leak to the management network, where there is a route to it only by mistake.
        assert "enP7s7" not in way.stdout
        shared += way.returncode == 0
    assert shared == 0


@of_four
def test_subnet_overlap_is_found_in_the_subnets_of_the_fourth_cable(ring: Ring) -> None:
    ring.rest()
    ring.settled()
    ring.lab.exec("spark3", "ip", "address", "add", "10.77.7.1/24", "dev", "enP7s7")
    try:
        ring.until("spark1", lambda seen: [f["id"] for f in seen["findings"]] == ["subnet-overlap"], 10)
        assert [finding["id"] for finding in ring.refusal()] == ["subnet-overlap"]
    finally:
        ring.lab.exec("spark3", "ip", "address", "delete", "10.77.7.1/24", "dev", "enP7s7")
