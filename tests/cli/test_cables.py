"""The cables in `sparkctl status`, and the picture of a ring."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ring_mesh import Cabling, by_order
from sparkd.cli import cables
from sparkd.cli.text import Style
from sparkd.core.cabling import names
from tests.cli.fakes import FakeRing, plan, wired

WIDE = Style(100)
BACKWARDS = by_order(("spark1", "spark3", "spark2"))


def shown(ring: FakeRing, planned: tuple[str, ...] = ()) -> list[str]:
    return [re.sub(r"\s+", " ", line.strip()) for line in cables.block(ring.look(), WIDE, planned)]


def test_the_order_is_that_of_the_cables_and_not_of_the_ranks() -> None:
    assert shown(FakeRing(wires=BACKWARDS, phase="ready")) == [
        "Cables port 0 port 1",
        "spark1 ok ==== ok spark3",
        "spark3 ok ==== ok spark2",
        "spark2 ok ==== ok spark1",
    ]


def test_a_ring_that_has_lost_a_cable_is_shown_as_it_is_planned() -> None:
    ring = FakeRing(wires=wired("10-31", "30-21"), ring_heard=False, phase="degraded", want="up")
    assert cables.planned(plan(BACKWARDS)) == ("spark1.0~spark3.1", "spark3.0~spark2.1", "spark2.0~spark1.1")
    assert shown(ring, cables.planned(plan(BACKWARDS)))[1:] == [
        "spark1 not set up ---- not set up spark3",
        "spark3 not set up ---- not set up spark2",
        "spark2 no carrier -X- no carrier spark1",
    ]


def test_a_planned_cable_that_goes_elsewhere_says_what_is_heard() -> None:
    exchanged = FakeRing(wires=wired("10-20", "21-31", "30-11"), ring_heard=False)
    assert shown(exchanged)[1:] == [
        "spark1 hears spark2 port 0 -X- hears spark3 port 1 spark2",
        "spark2 hears spark1 port 0 -X- hears spark2 port 1 spark3",
        "spark3 not set up ---- not set up spark1",
    ]
    # A ring that is heard is shown as it is, whatever had been planned.
    assert shown(FakeRing(wires=BACKWARDS), ("spark1.0~spark2.1", "spark2.0~spark3.1", "spark3.0~spark1.1"))[1:] == [
        "spark1 not set up ---- not set up spark3",
        "spark3 not set up ---- not set up spark2",
        "spark2 not set up ---- not set up spark1",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ours": False, "node": "box"}, "hears foreign box, spark2 port 1"),
        ({"remote": "eth7"}, "hears spark2 eth7, spark2 port 1"),
        ({}, "not set up"),
    ],
)
def test_one_function_that_hears_another_port(changed: dict[str, Any], words: str) -> None:
    ring = FakeRing(ring_heard=False).look()
    ring["fabric"][0]["neighbours"][0] |= changed
    line = cables.block(ring, WIDE)[1]
    assert words in line
    assert ("-X-" in line) == bool(changed)
    # What carries nothing cannot be heard any more.
    ring["fabric"][0]["ends"] = [end | {"carrier": False} for end in ring["fabric"][0]["ends"]]
    assert "no carrier  -X-" in cables.block(ring, WIDE)[1]


@pytest.mark.parametrize(
    "odd", [[], None, "x", ["spark1.0"], ["spark1.0~spark2.1"], ["a.0~b.x"], ["spark1.0~spark9.1"], [3]]
)
def test_without_any_ring_the_order_is_that_of_the_ranks(odd: Any) -> None:
    ring = FakeRing().look() | {"cables": odd}
    assert [line.split()[0] for line in cables.block(ring, WIDE)] == ["Cables", "spark1", "spark2", "spark3"]
    assert cables.planned({"cables": odd}) == ()


@pytest.mark.parametrize(
    ("wires", "lines"),
    [
        (wired("10-20"), ["spark1 port 0 ok ==== ok spark2 port 0"]),
        (wired("11-20"), ["spark2 port 0 ok ==== ok spark1 port 1"]),
        (
            wired("10-20", "11-21"),
            ["spark1 port 0 ok ==== ok spark2 port 0", "spark1 port 1 ok ==== ok spark2 port 1"],
        ),
    ],
)
def test_a_pair_names_the_ports_at_both_ends(wires: Cabling, lines: list[str]) -> None:
    assert shown(FakeRing(nodes=("spark1", "spark2"), wires=wires, phase="ready")) == ["Cables", *lines]


def picture(wires: Cabling, nodes: tuple[str, ...], width: int = 100) -> str:
    order = cables.in_order(names(wires), nodes)
    assert order is not None
    return "\n".join(cables.picture(order, nodes, Style(width)))


FOUR = tuple(f"spark{rank}" for rank in (1, 2, 3, 4))


def test_picture_of_four() -> None:
    drawn = picture(by_order(("spark1", "spark4", "spark2", "spark3")), FOUR, 80)
    assert (
        "\n" + drawn
        == r"""
     .--------.      .--------.      .--------.      .--------.
  .-1| spark1 |0----1| spark4 |0----1| spark2 |0----1| spark3 |0-.
  |  | rank 0 |      | rank 3 |      | rank 1 |      | rank 2 |  |
  |  '--------'      '--------'      '--------'      '--------'  |
  '--------------------------------------------------------------'"""
    )


def test_picture_of_a_pair() -> None:
    assert (
        "\n" + picture(wired("10-21", "11-20"), FOUR[:2])
        == r"""
  .--------.          .--------.
  | spark1 |0--------1| spark2 |
  | rank 0 |1--------0| rank 1 |
  '--------'          '--------'"""
    )
    assert (
        "\n" + picture(wired("11-20"), FOUR[:2])
        == r"""
  .--------.          .--------.
  | spark1 |1--------0| spark2 |
  | rank 0 |          | rank 1 |
  '--------'          '--------'"""
    )


def test_a_ring_too_wide_for_the_terminal_is_a_list() -> None:
    nodes = ("a", "a-machine-in-the-cellar", "another-machine-in-the-cellar", "b")
    assert picture(by_order(nodes), nodes, 80).splitlines() == [
        "  a port 0                             ======== a-machine-in-the-cellar port 1",
        "  a-machine-in-the-cellar port 0       ======== another-machine-in-the-cellar port 1",
        "  another-machine-in-the-cellar port 0 ======== b port 1",
        "  b port 0                             ======== a port 1",
    ]
