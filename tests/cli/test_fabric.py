"""fabric down, up and show: what one node has."""

from __future__ import annotations

import json
import re

from sparkd.cli.fabric import table
from sparkd.cli.text import Style
from tests.cli.conftest import Ctl
from tests.cli.fakes import RELEASED, FakeRing, wired


def test_show(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase = "ready"
    assert ctl("fabric", "show") == (
        0,
        """\
Fabric ports of spark1
  port  domain  device         carrier  MTU   state       neighbour
  0     0000    enp1s0f0np0    yes      9000  as planned  spark2 port 1 (enp1s0f1np1)
  0     0002    enP2p1s0f0np0  yes      9000  as planned  spark2 port 1 (enP2p1s0f1np1)
  1     0000    enp1s0f1np1    yes      9000  as planned  spark3 port 0 (enp1s0f0np0)
  1     0002    enP2p1s0f1np1  yes      9000  as planned  spark3 port 0 (enP2p1s0f0np0)
""",
        "",
    )
    told = json.loads(ctl("fabric", "show", "--json").out)
    assert (told["node"], told["released"], len(told["neighbours"])) == ("spark1", False, 4)
    assert [link["device"] for link in told["links"]] == [end["device"] for end in told["ends"]]


def shown(ring: FakeRing) -> list[list[str]]:
    lines = table(ring.look(), ring.host(), Style(100)).splitlines()[2:]
    return [re.split(r"\s{2,}", line.strip())[3:] for line in lines]


def test_ports_without_a_cable_and_not_yet_configured() -> None:
    bare = FakeRing(wires=wired("10-21"), ring_heard=False)
    assert shown(bare) == [
        ["yes", "9000", "not set up", "spark2 port 1 (enp1s0f1np1)"],
        ["yes", "9000", "not set up", "spark2 port 1 (enP2p1s0f1np1)"],
        ["no", "9000", "not set up", "no carrier"],
        ["no", "9000", "not set up", "no carrier"],
    ]


def test_a_host_that_cannot_see_its_network() -> None:
    ring = FakeRing(links_known=False)
    look = ring.look() | {"fabric": [{"node": "spark1", "ends": None, "neighbours": None}]}
    lines = table(look, ring.host(), Style(100)).splitlines()[2:]
    assert [line.split()[3:] for line in lines] == [["unknown", "-", "unknown", "unknown"]] * 4


def test_a_port_that_is_gone_and_one_that_is_not_planned() -> None:
    ring = FakeRing(nodes=("spark1", "spark2"), wires=wired("10-20"))
    look, host = ring.look(), ring.host()
    look["fabric"][0]["ends"] = look["fabric"][0]["ends"][:2]
    host["links"] = host["links"][:4]
    lines = table(look, host, Style(100)).splitlines()[2:]
    assert [re.split(r"\s{2,}", line.strip())[3:6] for line in lines] == [
        ["yes", "9000", "not set up"],
        ["yes", "9000", "not set up"],
        ["no", "9000", "not planned"],
        ["no device", "-", "unknown"],
    ]


def test_colour_is_on_what_is_not_as_planned() -> None:
    ring = FakeRing(phase="ready", wires=wired("10-21"))
    lines = table(ring.look(), ring.host(), Style(100, True)).splitlines()[2:]
    assert [line.startswith("\x1b[33m") for line in lines] == [False, False, True, True]


def test_down_and_up(ring: FakeRing, ctl: Ctl) -> None:
    code, out, err = ctl("fabric", "down")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "spark1: sparkd restores its fabric ports as it found them and leaves them alone; other nodes keep theirs",
        "spark1: no ring can start until, here: sparkctl fabric up",
    ]
    lines = ctl("fabric", "show").out.splitlines()
    assert lines[1] == "  taken from sparkd by an operator; to give them back: sparkctl fabric up"
    assert [line.split()[5] for line in lines[3:]] == ["down"] * 4
    assert json.loads(ctl("fabric", "show", "--json").out)["released"] is True
    code, _, err = ctl("up")
    assert code == 3
    assert "  refuse  spark1: fabric-released, the fabric ports" in err.splitlines()

    assert ctl("fabric", "up") == (
        0,
        "spark1: sparkd configures its fabric ports again; other nodes are as they were\n",
        "",
    )
    assert ctl("up").code == 0


def test_another_node_s_ports_are_its_own_affair(ring: FakeRing, ctl: Ctl) -> None:
    ring.findings = [RELEASED | {"node": "spark2"}]
    assert "taken from sparkd" not in ctl("fabric", "show").out


def test_down_is_refused_while_the_ring_needs_the_ports(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("up").code == 0
    text = "sparkctl: the ring is wanted up, and its ranks need the fabric\nhint: sparkctl down --wait\n"
    assert ctl("fabric", "down") == (3, "", text)
    assert not ring.released
