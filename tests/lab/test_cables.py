"""Cables that are wrong, and right ones that are not the usual: what is said of them, and what starts over them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from tests.lab import stranger
from tests.lab.control import Lab
from tests.lab.layout import NODES, OUTSIDE, ends_of
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab
ONE = " (the other PCI domain of the port has it)"

A, B, C = "spark1.p0-spark2.p1", "spark2.p0-spark3.p1", "spark3.p0-spark1.p1"
REVERSED = ("spark1.p1-spark2.p0", "spark2.p1-spark3.p0", "spark3.p1-spark1.p0")
"""The ring in the other direction: along it come rank 0, rank 2, rank 1."""


@pytest.fixture
def ring(lab: Lab) -> Ring:
    """A ring that is down."""
    ring = Ring(lab)
    ring.rest()
    return ring


@dataclass(frozen=True)
class Case:
    """`found`: id, node, port and what was observed. `fixes`: each of them is advised, and nothing else."""

    cables: tuple[str, ...]
    found: tuple[tuple[str, str, int, str], ...]
    fixes: tuple[str, ...] = field(default=())


def _dark(*domains: str, port: int) -> str:
    return ", ".join(f"en{domain}s0f{port}np{port}" for domain in domains)


BOTH_0, BOTH_1 = _dark("p1", "P2p1", port=0), _dark("p1", "P2p1", port=1)
HALF_A, HALF_B, HALF_C = ("spark1.p0.{0}-spark2.p1.{0}", "spark2.p0.{0}-spark3.p1.{0}", "spark3.p0.{0}-spark1.p1.{0}")
CASES = {
    "two-same-ports": Case(
        ("spark1.p0-spark2.p0", "spark2.p1-spark3.p1", C),
        (
            ("cable-same-port", "spark1", 0, "the cable between spark1 and spark2 joins port 0 to port 0"),
            ("cable-same-port", "spark2", 0, "the cable between spark1 and spark2 joins port 0 to port 0"),
            ("cable-same-port", "spark2", 1, "the cable between spark2 and spark3 joins port 1 to port 1"),
            ("cable-same-port", "spark3", 1, "the cable between spark2 and spark3 joins port 1 to port 1"),
        ),
        ("at spark2, exchange the two cables",),
    ),
    "one-same-port": Case(
        ("spark1.p0-spark2.p0", C),
        (
            ("cable-same-port", "spark1", 0, "the cable between spark1 and spark2 joins port 0 to port 0"),
            ("cable-same-port", "spark2", 0, "the cable between spark1 and spark2 joins port 0 to port 0"),
            ("cable-missing", "spark2", 1, f"no carrier on {BOTH_1}"),
            ("cable-missing", "spark3", 1, f"no carrier on {BOTH_1}"),
        ),
        (
            "at spark2, move this cable's end from port 0 to port 1",
            "seat the cable between spark2 port 1 and spark1 port 0, or switch spark1 on",
            "seat the cable between spark3 port 1 and spark2 port 0, or switch spark2 on",
        ),
    ),
    "missing": Case(
        (A, C),
        (
            ("cable-missing", "spark2", 0, f"no carrier on {BOTH_0}"),
            ("cable-missing", "spark3", 1, f"no carrier on {BOTH_1}"),
        ),
        (
            "seat the cable between spark2 port 0 and spark3 port 1, or switch spark3 on",
            "seat the cable between spark3 port 1 and spark2 port 0, or switch spark2 on",
        ),
    ),
    "half-missing": Case(
        (A, HALF_B.format("0000"), C),
        (
            ("cable-missing", "spark2", 0, f"no carrier on {_dark('P2p1', port=0)}{ONE}"),
            ("cable-missing", "spark3", 1, f"no carrier on {_dark('P2p1', port=1)}{ONE}"),
        ),
    ),
    "silent": Case(
        (A, B, "spark3.p0-outside.p0"),
        (
            ("cable-missing", "spark1", 1, f"no carrier on {BOTH_1}"),
            ("cable-missing", "spark3", 0, f"carrier, but nobody is heard on {BOTH_0}"),
        ),
        (
            "seat the cable between spark1 port 1 and spark3 port 0, or switch spark3 on",
            "start sparkd on the machine at the cable's other end, move the cable to a Spark of this ring, or let UDP "
            "port 7476 through a firewall on these ports",
        ),
    ),
    "half-silent": Case(
        (A, B, HALF_C.format("0000"), "spark3.p0.0002-outside.p0.0002"),
        (
            ("cable-missing", "spark1", 1, f"no carrier on {_dark('P2p1', port=1)}{ONE}"),
            (
                "cable-missing",
                "spark3",
                0,
                f"carrier, but nobody is heard on {_dark('P2p1', port=0)}, while its twin reaches spark1 port 1 "
                "(enp1s0f1np1)",
            ),
        ),
    ),
    "loop": Case(
        ("spark1.p0-spark1.p1", B),
        (
            ("cable-loop", "spark1", 0, "the cable comes back to spark1 itself (enP2p1s0f1np1)"),
            ("cable-loop", "spark1", 1, "the cable comes back to spark1 itself (enP2p1s0f0np0)"),
            ("cable-missing", "spark2", 1, f"no carrier on {BOTH_1}"),
            ("cable-missing", "spark3", 0, f"no carrier on {BOTH_0}"),
        ),
        (
            "move one end of this cable from spark1 to port 1 of another node",
            "move one end of this cable from spark1 to port 0 of another node",
            "seat the cable between spark2 port 1 and spark1 port 0, or switch spark1 on",
            "seat the cable between spark3 port 0 and spark1 port 1, or switch spark1 on",
        ),
    ),
    "twins-apart": Case(
        (
            *(half.format("0000") for half in (HALF_A, HALF_B, HALF_C)),
            "spark1.p0.0002-spark3.p0.0002",
            "spark2.p1.0002-spark1.p1.0002",
            HALF_B.format("0002"),
        ),
        tuple(
            ("twins-split", node, port, f"enP2p1s0f{port}np{port} reaches {one}; enp1s0f{port}np{port} reaches {other}")
            for node, port, one, other in (
                ("spark1", 0, "spark3 port 0 (enP2p1s0f0np0)", "spark2 port 1 (enp1s0f1np1)"),
                ("spark1", 1, "spark2 port 1 (enP2p1s0f1np1)", "spark3 port 0 (enp1s0f0np0)"),
                ("spark2", 1, "spark1 port 1 (enP2p1s0f1np1)", "spark1 port 0 (enp1s0f0np0)"),
                ("spark3", 0, "spark1 port 0 (enP2p1s0f0np0)", "spark1 port 1 (enp1s0f1np1)"),
            )
        ),
    ),
    "twins-crossed": Case(
        ("spark1.p0.0000-spark2.p1.0002", "spark1.p0.0002-spark2.p1.0000", B, C),
        tuple(
            ("twins-split", node, port, f"enP2p1s0f{port}np{port} reaches {one}; enp1s0f{port}np{port} reaches {other}")
            for node, port, one, other in (
                ("spark1", 0, "spark2 port 1 (enp1s0f1np1)", "spark2 port 1 (enP2p1s0f1np1)"),
                ("spark2", 1, "spark1 port 0 (enp1s0f0np0)", "spark1 port 0 (enP2p1s0f0np0)"),
            )
        ),
    ),
}


def _refused(ring: Ring, expected: set[tuple[str, str, str, str]]) -> list[dict[str, str]]:
    """Waits until every node knows these findings (id, node, subject, observed) and no others; a start has the same."""

    def against(findings: list[dict[str, str]]) -> set[tuple[str, str, str, str]]:
        refusing = [each for each in findings if each["severity"] == "refuse"]
        return {(each["id"], each["node"], each["subject"], each["observed"]) for each in refusing}

    for node in ring.lab.nodes:
        try:
            ring.until(node, lambda seen: against(seen["findings"]) == expected, 25)
        except AssertionError:
            assert against(ring.get(node)["findings"]) == expected
            raise
    refusal = ring.refusal()
    assert against(refusal) == expected
    return refusal


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_cable_is_named_with_both_ends_and_what_to_do(ring: Ring, name: str) -> None:
    """Field reports cable-same-port, cable-missing, cable-loop, and twins that are cabled apart."""
    case = CASES[name]
    before = ring.get("spark1")["epoch"]
    ring.lab.recable(case.cables)
    findings = _refused(ring, {(id_, node, f"port {port}", seen) for id_, node, port, seen in case.found})
    if case.fixes:
        assert {finding["fix"] for finding in findings} == set(case.fixes)
    told = ring.ask("spark2", "POST", "/v1/ring/start").body["detail"]
    assert told.startswith("the ring cannot start: ")
    assert sentence(findings[0]).partition(": ")[2] in told
    assert ring.get("spark1")["epoch"] == before


@pytest.fixture
def stranger_speaks(lab: Lab) -> Iterator[None]:
    """The machine outside belongs to another cluster, and says so on all its ports."""
    devices = [end.device for end in ends_of(OUTSIDE)]
    script = str(Path(stranger.__file__))
    ring = Ring(lab)
    ring.rest()
    lab.recable([A, B, "spark3.p0-outside.p1"])
    with subprocess.Popen(lab.command(OUTSIDE, sys.executable, "-B", script, *devices)) as speaking:
        yield
        assert speaking.poll() is None
        speaking.kill()


def test_cable_foreign_names_the_stranger(stranger_speaks: None, lab: Lab) -> None:
    """Field report cable-foreign."""
    ring = Ring(lab)
    stranger_says = "the cable ends in a machine outside this cluster (it says: spark9 of other)"
    findings = _refused(
        ring,
        {
            ("cable-foreign", "spark3", "port 0", stranger_says),
            ("cable-missing", "spark1", "port 1", f"no carrier on {BOTH_1}"),
        },
    )
    foreign = next(finding for finding in findings if finding["id"] == "cable-foreign")
    assert foreign["expected"] == "a cable to another node of this cluster"
    assert "sparkctl cluster install" in foreign["fix"]


def test_a_triangle_the_other_way_round_is_planned_over_its_own_cables(ring: Ring) -> None:
    ring.lab.recable(REVERSED)
    ring.until("spark1", lambda seen: seen["cables"] == ["spark1.0~spark3.1", "spark1.1~spark2.0", "spark2.1~spark3.0"])
    ring.settled()
    ring.start("spark2")
    _carried_over(ring, {("spark1", "spark3"), ("spark3", "spark2"), ("spark2", "spark1")})


def test_recabling_a_ring_that_serves_ends_in_one_over_the_new_cables(ring: Ring) -> None:
    ring.settled()
    before = ring.start()
    _carried_over(ring, {("spark1", "spark2"), ("spark2", "spark3"), ("spark3", "spark1")})
    ring.lab.recable(REVERSED)
    ring.phase("ready", seconds=60, above=before["epoch"])
    _carried_over(ring, {("spark1", "spark3"), ("spark3", "spark2"), ("spark2", "spark1")})


def _carried_over(ring: Ring, cables: set[tuple[str, str]]) -> None:
    """Each cable leads from port 0 of the first to port 1 of the second, and the probe's canaries go over all of them.

    A link of the lab hands every frame to its other end, so what leaves a port by its address arrives where it should.
    """
    health = ring.health()
    met = set()
    for rail in health["rails"]:
        zero, one = sorted(rail["ends"], key=lambda end: str(end["device"])[-1])
        assert (zero["device"][-3:], one["device"][-3:]) == ("np0", "np1")
        assert IPv4Interface(f"{zero['address']}/24").network == IPv4Interface(f"{one['address']}/24").network
        met.add((zero["node"], one["node"], rail["pci_domain"]))
        for near, far in ((zero, one), (one, zero)):
            way = ring.lab.exec(near["node"], "ip", "route", "get", far["address"]).stdout
            assert f"{far['address']} dev {near['device']} src {near['address']} " in way
    assert met == {(*cable, domain) for cable in cables for domain in ("0000", "0002")}
    sent = {node: _sent(ring, node) for node in NODES}
    ring.until_health(lambda later: later["canaries"] > health["canaries"] + 1)
    for node in NODES:
        assert all(_sent(ring, node)[device] > count for device, count in sent[node].items())
        _routes_face_their_peers(ring, node, cables)


def _sent(ring: Ring, node: str) -> dict[str, int]:
    shown = ring.lab.exec(node, "sh", "-c", "cd /sys/class/net; grep . en*np*/statistics/tx_bytes").stdout
    return {line.partition("/")[0]: int(line.rpartition(":")[2]) for line in shown.splitlines()}


def _routes_face_their_peers(ring: Ring, node: str, cables: set[tuple[str, str]]) -> None:
    """The four addresses that a node's neighbours have on their common cable are behind the port that faces each."""
    plan: dict[str, Any] = ring.ask(node, "GET", "/v1/plan").body
    owner = {end["address"].partition("/")[0]: end["node"] for end in plan["ends"]}
    shown = ring.lab.exec(node, "ip", "route", "show", "proto", "173").stdout.splitlines()
    facing = {0: next(b for a, b in cables if a == node), 1: next(a for a, b in cables if b == node)}
    assert len(shown) == 4
    for line in shown:
        words = line.split()
        device = words[words.index("dev") + 1]
        assert owner[words[0]] == owner[words[words.index("via") + 1]] == facing[int(device[-1])]
