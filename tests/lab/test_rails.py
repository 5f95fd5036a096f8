"""Rails are measured before a start: what is slow or drops large packets refuses one, and what is known is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import wires
from tests.lab.control import Lab
from tests.lab.layout import DOMAINS, NODES, links_at
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab
SLOW_MBIT = 40
AGAIN = "to measure again without a reboot, sparkctl fabric measure on"


@pytest.fixture
def ring(lab: Lab) -> Iterator[Ring]:
    """A ring that is down. Bad rates that a test has left are forgotten: they would refuse every later start."""
    ring = Ring(lab)
    ring.rest()
    ring.settled()
    yield ring
    if {finding["id"] for finding in ring.get("spark1")["findings"]} & {"rail-degraded-13g", "node-slow", "mtu-wrong"}:
        ring.rest()
        forget(ring)


def forget(ring: Ring, *nodes: str) -> None:
    for node in nodes or NODES:
        assert ring.ask(node, "POST", "/v1/host/fabric/measure").status == 202


def measured(ring: Ring, epoch: int) -> dict[str, list[str]]:
    """By node, what the unit of that epoch says that it has measured, e.g. "enp1s0f0np0 to spark2"."""
    told = {}
    for node in NODES:
        lines = [line for _, line in ring.journal(node, f"sparkd-measure@{epoch}.service")]
        told[node] = sorted(line.partition(" (")[0] for line in lines if " Gb/s" in line)
    return told


def start_gated(ring: Ring, words: str) -> dict[str, Any]:
    """Ask for a start, and return the ring once it waits with these words."""
    assert ring.ask("spark2", "POST", "/v1/ring/start").status == 202
    seen = [ring.until(node, lambda now: any(words in wait for wait in now["waits"])) for node in NODES]
    assert {now["phase"] for now in seen} == {"gated"}
    return seen[-1]


def exact(finding: dict[str, str]) -> str:
    """With every rate as R: it differs from run to run."""
    return re.sub(r"\b\d[\d.]*(?= Gb/s)|(?<=np[01] )\d[\d.]*", "R", sentence(finding))


def test_what_was_measured_is_kept_until_its_cable_flaps(ring: Ring) -> None:
    forget(ring, "spark2", "spark3")
    first = ring.start()["epoch"]
    every = dict.fromkeys(NODES, 4)
    assert {node: len(lines) for node, lines in measured(ring, first).items()} == every
    assert len(ring.get("spark3")["rails"]) == 6
    refused = ring.ask("spark2", "POST", "/v1/host/fabric/measure")
    assert (refused.status, refused.body["code"]) == (409, "fabric-in-use")
    ring.stop()
    second = ring.start()["epoch"]
    assert [ring.journal(node, f"sparkd-measure@{second}.service") for node in NODES] == [[], [], []]
    ring.stop()
    # A restarted daemon knows them too.
    ring.lab.exec("spark3", "systemctl", "restart", "sparkd")
    ring.lab.flap("spark1", 0, 100)
    ring.settled()
    third = ring.start()["epoch"]
    assert measured(ring, third) == {
        "spark1": ["enP2p1s0f0np0 to spark2", "enp1s0f0np0 to spark2"],
        "spark2": ["enP2p1s0f1np1 to spark1", "enp1s0f1np1 to spark1"],
        "spark3": [],
    }


def test_rail_degraded_13g_refuses_until_it_is_measured_anew(ring: Ring) -> None:
    lab = ring.lab
    expected = (
        "rail-degraded-13g: spark2: enp1s0f0np0: the rail to spark3 (enp1s0f1np1) has R Gb/s (tcp); "
        "expected at least R Gb/s"
    )
    lab.rate("spark2", 0, SLOW_MBIT, "0000")
    forget(ring, "spark2")
    waiting = start_gated(ring, "the rail to spark3 (enp1s0f1np1) has 0.0")
    assert [exact(finding) for finding in waiting["findings"]] == [expected]
    ring.stop()
    for node in ("spark1", "spark3"):
        found = ring.refusal(node)
        assert [exact(finding) for finding in found] == [expected]
        assert found[0]["fix"] == (
            f"reboot all nodes with cables attached; if still slow, unplug AC for a minute ({AGAIN} spark2)"
        )
    lab.rate("spark2", 0, 0, "0000")
    assert [finding["id"] for finding in ring.refusal()] == ["rail-degraded-13g"], "what was measured still counts"
    doctor = ring.ask("spark1", "GET", "/v1/doctor").body
    verdicts = {row["id"]: row["verdict"] for row in doctor["compared"]}
    assert (verdicts["rail-degraded-13g"], verdicts["node-slow"], verdicts["mtu-wrong"]) == ("fail", "pass", "pass")
    forget(ring, "spark2")
    epoch = ring.start()["epoch"]
    assert measured(ring, epoch)["spark1"] == ["enP2p1s0f0np0 to spark2", "enp1s0f0np0 to spark2"]


def test_node_slow_names_the_node_and_not_its_rails(ring: Ring) -> None:
    lab = ring.lab
    for port in (0, 1):
        lab.rate("spark3", port, SLOW_MBIT)
    forget(ring)
    waiting = start_gated(ring, "spark3: all its rails: ")
    assert [exact(finding) for finding in waiting["findings"]] == [
        "node-slow: spark3: all its rails: enp1s0f1np1 R, enP2p1s0f1np1 R, enp1s0f0np0 R, enP2p1s0f0np0 R Gb/s, while "
        "those between the other nodes have R Gb/s; expected the rate of the others"
    ]
    ring.stop()
    for port in (0, 1):
        lab.rate("spark3", port, 0)
    forget(ring, "spark3")
    ring.start()


@pytest.fixture
def narrow(ring: Ring) -> Iterator[str]:
    """A wire that drops large packets though both ends say 9000, and refuses them at no end."""
    (link,) = links_at("spark3", 0, DOMAINS[1], ring.lab.cables)
    space = ring.lab.places.wires_netns
    wires.batch(space, [f"link set {end.wire} mtu 4000" for end in link.ends], step="narrow a wire")
    yield str(link)
    wires.batch(space, [f"link set {end.wire} mtu {wires.WIRE_MTU}" for end in link.ends], step="widen a wire")


def test_mtu_wrong_is_found_where_both_ends_have_9000(ring: Ring, narrow: str) -> None:
    forget(ring, "spark1")
    waiting = start_gated(ring, "packets of 8972 bytes do not pass")
    assert [sentence(finding) for finding in waiting["findings"]] == [
        "mtu-wrong: spark3: enP2p1s0f0np0: packets of 8972 bytes do not pass to spark1 (enP2p1s0f1np1), small ones do, "
        "and both ends have MTU 9000; expected MTU 9000 all the way"
    ], narrow
    ring.stop()
    assert [finding["id"] for finding in ring.refusal()] == ["mtu-wrong"]


def test_a_firewall_is_named_and_waited_for(ring: Ring) -> None:
    """It lets nothing in above port 20000, where hosts meet to measure."""
    ring.lab.firewall("spark1", True)
    forget(ring, "spark1")
    assert ring.ask("spark1", "POST", "/v1/ring/start").status == 202
    told = "spark1 did not answer on 192.168.77.1:20200 within 10 s"
    ring.until("spark3", lambda now: any(told in wait for wait in now["waits"]))
    seen = ring.get("spark1")
    assert (seen["phase"], seen["deaths"]) == ("gated", [])
    ring.lab.firewall("spark1", False)
    ready = ring.phase("ready")
    assert (ready["epoch"], ready["deaths"]) == (seen["epoch"], [])
