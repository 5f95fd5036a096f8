"""plan --discover, of what the daemon says of right and wrong cables."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ring_mesh import Cabling, by_order
from sparkd import wire
from sparkd.cli.discover import Cables, look
from sparkd.cli.text import Style
from sparkd.core.decide import decide
from sparkd.core.model import HelloFacts, Intent, Neighbour, NetworkFacts, PeerView, Unknown
from sparkd.core.snapshot import Snapshot
from sparkd.reconcile import status
from tests.cli.conftest import Ctl
from tests.cli.fakes import FINDING, FakeRing, wired
from tests.core.builders import NODES, NOW, configured_network, hears, snapshot

IDENTITY = status.Identity("one", "probe", "127.0.0.1:8888")
DOWN = Intent(6, "down", "operator", "stop asked for", NOW)
TRIANGLE = by_order(NODES)
DEVICES = ("enp1s0f0np0", "enP2p1s0f0np0")


def answer(wires: Cabling, own: dict[str, Any] | None = None, age: float = 0.4, error: str = "") -> dict[str, Any]:
    """GET /v1/ring at spark1, of nodes that hear those cables. own: what spark1 sees otherwise."""

    def seen(node: str, **changed: Any) -> Snapshot:
        return snapshot(node, **({"intent": DOWN, "hello": hears(node, wires), "peers": ()} | changed))

    def told(s: Snapshot) -> PeerView:
        return PeerView(s.node, status.report(s, decide(s), IDENTITY, 1), age, error)

    s = seen("spark1", **(own or {}))
    s = replace(s, peers=tuple(told(seen(node)) for node in NODES[1:]))
    ring: dict[str, Any] = json.loads(wire.dumps(status.ring(s, decide(s), IDENTITY)))
    return ring


def section(found: Cables, node: str) -> list[str]:
    lines = found.text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.partition(",")[0] == node) + 1
    return lines[start : lines.index("", start) if "" in lines[start:] else None]


def test_a_ring_is_a_picture() -> None:
    found = look(answer(by_order(("spark1", "spark3", "spark2"))), Style(100))
    assert found.good
    assert found.text.splitlines()[:4] == [
        "One ring of 3 nodes over 3 cables, each heard at both ends and on both PCI domains",
        "",
        "     .--------.      .--------.      .--------.",
        "  .-1| spark1 |0----1| spark3 |0----1| spark2 |0-.",
    ]


def test_a_wrong_cable_is_marked_with_its_finding_and_fix() -> None:
    found = look(answer(wired("10-20", "21-31", "30-11")), Style(100))
    assert not found.good
    assert found.text.startswith("No ring of all 3 nodes: what each port hears\n")
    assert section(found, "spark1") == [
        "  port 0  0000  enp1s0f0np0    spark2 port 0 (enp1s0f0np0)",
        "  port 0  0002  enP2p1s0f0np0  spark2 port 0 (enP2p1s0f0np0)",
        "    wrong  cable-same-port, port 0",
        "      found     the cable between spark1 and spark2 joins port 0 to port 0",
        "      expected  port 0 of one node to port 1 of the next",
        "      fix       at spark2, exchange the two cables",
        "  port 1  0000  enp1s0f1np1    spark3 port 0 (enp1s0f0np0)",
        "  port 1  0002  enP2p1s0f1np1  spark3 port 0 (enP2p1s0f0np0)",
    ]
    assert sum("wrong" in line for line in section(found, "spark3")) == 1


def hello(*own: Neighbour, deaf: tuple[str, ...] = (), settled: bool = True) -> HelloFacts:
    """What spark1 hears of the triangle, but on port 0 only this."""
    facts = hears("spark1", TRIANGLE)
    others = tuple(neighbour for neighbour in facts.neighbours if neighbour.device not in DEVICES)
    return HelloFacts(facts.node_id, (*own, *others), deaf, facts.settled if settled else ())


def dark() -> NetworkFacts:
    seen = configured_network("spark1")
    return replace(
        seen, links=tuple(replace(link, carrier=False) if link.device in DEVICES else link for link in seen.links)
    )


@pytest.mark.parametrize(
    ("own", "heard", "id_"),
    [
        ({"hello": hello()}, ["nobody"] * 2, "wrong  cable-missing, port 0"),
        ({"hello": hello(settled=False)}, ["not heard yet"] * 2, "wait  cable-unheard, port 0"),
        ({"hello": hello(), "network": dark()}, ["no carrier"] * 2, "wrong  cable-missing, port 0"),
        (
            {"hello": hello(deaf=DEVICES[1:])},
            ["nobody", "IPv6 off"],
            "wrong  ipv6-off, enP2p1s0f0np0",
        ),
        (
            {"hello": hello(*(Neighbour(device, "box", "x", device, "home", ours=False) for device in DEVICES))},
            ["foreign: box of home"] * 2,
            "wrong  cable-foreign, port 0",
        ),
        (
            {"hello": hello(*(Neighbour(device, "", "x", "eth0", "", ours=False) for device in DEVICES))},
            ["foreign: ? of ?"] * 2,
            "wrong  cable-foreign, port 0",
        ),
        (
            {"hello": hello(Neighbour(DEVICES[0], "spark2", "id-spark2", "eth7", "test"))},
            ["spark2 eth7", "nobody"],
            "wrong  cable-missing, port 0",
        ),
    ],
)
def test_what_a_port_hears(own: dict[str, Any], heard: list[str], id_: str) -> None:
    found = look(answer(TRIANGLE, own), Style(100))
    assert not found.good
    lines = section(found, "spark1")
    assert [line[31:] for line in lines[:2]] == heard
    assert lines[2].strip() == id_


def test_a_node_that_cannot_tell_is_unknown() -> None:
    found = look(answer(TRIANGLE, {"hello": Unknown("no answer within 2 s")}), Style(100))
    lines = section(found, "spark1")
    assert [line[31:] for line in lines[:4]] == ["unknown"] * 4
    assert lines[4:6] == ["    wrong  unknown-is-a-state, hello", "      found     no answer within 2 s"]
    assert not found.good


def test_a_node_that_has_never_answered() -> None:
    ring = answer(TRIANGLE)
    ring["peers"][1] |= {"age": None, "error": "connection refused"}
    ring["fabric"][2] |= {"ends": None, "neighbours": None}
    found = look(ring | {"cables": []}, Style(100))
    assert "spark3, not heard yet: connection refused" in found.text.splitlines()
    assert [line[31:] for line in section(found, "spark3")] == ["unknown"] * 4
    # Nobody has said that the cables to it are missing, nor those between two that have not answered.
    assert found.text.splitlines()[-2:] == ["To be one ring", "  - spark3: what its ports hear is not known"]
    ring["fabric"][1] |= {"ends": None, "neighbours": None}
    assert look(ring | {"cables": []}, Style(100)).text.splitlines()[-3:] == [
        "To be one ring",
        "  - spark2: what its ports hear is not known",
        "  - spark3: what its ports hear is not known",
    ]


def test_a_cable_that_is_heard_at_one_end_only() -> None:
    ring = FakeRing(ring_heard=False).look()
    deaf = ring["fabric"][1]
    deaf["neighbours"] = [neighbour for neighbour in deaf["neighbours"] if neighbour["node"] != "spark1"]
    lines = look(ring, Style(100)).text.splitlines()
    assert lines[-2:] == ["To be one ring", "  - spark1 port 0 hears spark2 port 1, which does not hear it"]
    ring["findings"] = [FINDING | {"subject": "port 1"}]
    assert "To be one ring" not in look(ring, Style(100)).text


def test_a_ring_of_which_a_node_has_fallen_silent_says_so() -> None:
    found = look(answer(TRIANGLE, age=75.0, error="timed out"), Style(100))
    assert "spark2 is shown as it was 75 s ago: timed out" in found.text.splitlines()


def test_two_rings_of_two_are_not_one_ring_of_four() -> None:
    """Each cable of them is right, so that no finding says it."""
    wires = wired("10-21", "20-11", "30-41", "40-31")
    ring = FakeRing(nodes=("spark1", "spark2", "spark3", "spark4"), wires=wires, ring_heard=False)
    found = look(ring.look(), Style(100))
    assert not found.good
    assert found.text.splitlines()[-3:] == [
        "To be one ring",
        "  - spark3 port 0: found a ring of its own, spark3 - spark4, expected one ring of all 4 nodes, with",
        "    spark1",
    ]


def test_a_stranger_on_a_port_of_the_ring_is_not_good() -> None:
    ring = FakeRing(findings=[FINDING | {"id": "cable-foreign", "subject": "port 0"}])
    found = look(ring.look(), Style(100))
    assert not found.good
    assert found.text.splitlines()[-4] == "  refuse  spark2: cable-foreign, port 0"
    # What is not about cables has its place elsewhere, and a warning refuses nothing.
    assert look(FakeRing(findings=[FINDING | {"id": "kho-kernel"}]).look(), Style(100)).good
    assert look(FakeRing(findings=[FINDING | {"severity": "warn"}]).look(), Style(100)).good


def test_the_command(ring: FakeRing, ctl: Ctl) -> None:
    code, out, err = ctl("plan", "--discover")
    assert (code, err) == (0, "")
    assert out.startswith("One ring of 3 nodes over 3 cables")
    assert json.loads(ctl("plan", "--discover", "--json").out)["ring"] is True

    ring.wires, ring.ring_heard, ring.findings = wired("10-21"), False, [FINDING]
    code, out, err = ctl("plan", "--discover")
    assert (code, err) == (3, "")
    assert "  port 0  0000  enp1s0f0np0    spark2 port 1 (enp1s0f1np1)" in out.splitlines()
    code, out, _ = ctl("plan", "--discover", "--json")
    told = json.loads(out)
    assert (code, told["ring"], told["cables"], told["findings"]) == (3, False, [], [FINDING])
    assert [part["node"] for part in told["fabric"]] == ["spark1", "spark2", "spark3"]
    assert {request.split()[1] for request in ring.asked} == {"/v1/ring"}


@pytest.mark.parametrize("odd", [{}, {"ranks": None, "fabric": [3], "findings": "x", "peers": [None]}])
def test_an_answer_with_little_in_it_is_no_ring(odd: dict[str, Any]) -> None:
    assert not look(odd, Style(80)).good
