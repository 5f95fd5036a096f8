"""Every wrong cable is named with its port, and all of them at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import Cabling, CablingError, Cluster, Socket, by_order, parse_cluster, plan, ring_order
from tests.ring_mesh.samples import cablings, lab, rings, wired

TRIANGLE = "a.0-b.1 b.0-c.1 c.0-a.1"

# nodes by rank, cables, then id, socket, and words of `found` and of `expected` of each fault.
FAULTS: list[tuple[str, str, list[tuple[str, str, str, str]]]] = [
    # Port 0 to port 0, the usual mistake: two cables of three have equal ports.
    (
        "abc",
        "a.0-b.0 b.1-c.1 c.0-a.1",
        [
            ("cable-same-port", "a port 0", "a cable to b port 0", "port 1 of another node"),
            ("cable-same-port", "b port 1", "a cable to c port 1", "port 0 of another node"),
        ],
    ),
    (
        "abcd",
        "a.0-b.1 b.0-c.1 c.0-d.0 d.1-a.1",
        [
            ("cable-same-port", "a port 1", "a cable to d port 1", "port 0 of another node"),
            ("cable-same-port", "c port 0", "a cable to d port 0", "port 1 of another node"),
        ],
    ),
    (
        "abc",
        "a.0-b.1 b.0-c.1",
        [
            ("cable-missing", "a port 1", "no cable", "port 0 of another node"),
            ("cable-missing", "c port 0", "no cable", "port 1 of another node"),
        ],
    ),
    ("ab", "", [("cable-missing", "a port 0", "no cable", "a cable to b")]),
    (
        "abc",
        "a.0-b.1 b.0-a.1 c.0-c.1",
        [("cable-loop", "c port 0", "port 1 of the same node", "another node")],
    ),
    ("ab", "a.0-a.1", [("cable-loop", "a port 0", "port 1 of the same node", "another node")]),
    ("ab", "a.0-b.0 b.1-b.1", [("cable-loop", "b port 1", "itself", "another node")]),
    (
        "abc",
        f"{TRIANGLE} a.0-c.1",
        [
            ("cable-port-twice", "a port 0", "cables to b port 1 and c port 1", "one cable"),
            ("cable-port-twice", "c port 1", "cables to a port 0 and b port 0", "one cable"),
        ],
    ),
    (
        "ab",
        "a.0-b.0 a.0-b.1",
        [("cable-port-twice", "a port 0", "cables to b port 0 and b port 1", "one cable")],
    ),
    (
        "abc",
        "a.0-b.1 b.0-c.1 c.0-x.0 a.1-y.1",
        [
            ("cable-foreign", "a port 1", "a cable to y port 1", "one of a, b, c"),
            ("cable-foreign", "c port 0", "a cable to x port 0", "one of a, b, c"),
        ],
    ),
    ("ab", "a.0-x.0", [("cable-foreign", "a port 0", "a cable to x port 0", "one of a, b")]),
    (
        "ab",
        "a.0-b.2",
        [("cable-no-such-port", "b port 2", "a cable to a port 0", "port 0 or 1")],
    ),
    (
        "abcd",
        "a.0-b.1 b.0-a.1 c.0-d.1 d.0-c.1",
        [("cable-two-rings", "c port 0", "a ring of its own, c - d", "one ring of all 4 nodes, with a")],
    ),
    (
        "fabcdeg",
        "a.0-b.1 b.0-a.1 c.0-e.1 e.0-d.1 d.0-c.1 f.0-g.1 g.0-f.1",
        [
            ("cable-two-rings", "a port 0", "a ring of its own, a - b", "one ring of all 7 nodes, with f"),
            ("cable-two-rings", "c port 0", "a ring of its own, c - e - d", "one ring of all 7 nodes, with f"),
        ],
    ),
    (
        "abc",
        "a.0-b.0 b.1-b.1 a.1-x.0",
        [
            ("cable-same-port", "a port 0", "a cable to b port 0", "port 1 of another node"),
            ("cable-foreign", "a port 1", "a cable to x port 0", "one of a, b, c"),
            ("cable-loop", "b port 1", "itself", "another node"),
            ("cable-missing", "c port 0", "no cable", "port 1 of another node"),
            ("cable-missing", "c port 1", "no cable", "port 0 of another node"),
        ],
    ),
]


@pytest.mark.parametrize(("nodes", "cables", "faults"), FAULTS)
def test_each_fault_is_named_with_node_and_port(
    nodes: str, cables: str, faults: list[tuple[str, str, str, str]]
) -> None:
    with pytest.raises(CablingError) as caught:
        ring_order(wired(cables), nodes)

    named = caught.value.cables
    assert [(problem.id, problem.key) for problem in named] == [(kind, key) for kind, key, _, _ in faults]
    for problem, (_, key, found, expected) in zip(named, faults, strict=True):
        assert found in problem.found
        assert expected in problem.expected
        assert str(problem.sockets[0]) == key
        assert set(problem.sockets[1:]) == set(wired(cables).far(problem.sockets[0]))
    assert caught.value.problems == named


def test_a_wrong_cabling_has_no_plan() -> None:
    with pytest.raises(CablingError) as caught:
        plan(parse_cluster(lab()), wired("spark1.0-spark2.0 spark2.1-spark3.0 spark3.1-spark1.1"))
    assert str(caught.value) == (
        "spark1 port 0: found a cable to spark2 port 0, expected a cable to port 1 of another node; "
        "spark1 port 1: found a cable to spark3 port 1, expected a cable to port 0 of another node"
    )


@pytest.mark.parametrize(
    ("nodes", "cables", "order"),
    [
        ("abc", TRIANGLE, "abc"),
        ("cab", TRIANGLE, "cab"),
        ("acb", TRIANGLE, "abc"),
        ("bac", "c.0-b.1 b.0-a.1 a.0-c.1", "bac"),
        ("abcd", "a.0-c.1 c.0-b.1 b.0-d.1 d.0-a.1", "acbd"),
        ("ba", "a.1-b.0", "ba"),
        ("ba", "a.1-b.0 b.1-a.0", "ba"),
    ],
)
def test_the_order_is_that_of_the_cables_from_rank_0_on(nodes: str, cables: str, order: str) -> None:
    assert ring_order(wired(cables), nodes) == tuple(order)


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "a"]])
def test_a_ring_is_of_two_different_nodes_at_least(names: list[str]) -> None:
    with pytest.raises(ValueError, match="two or more different nodes") as caught:
        ring_order(wired(TRIANGLE), names)
    assert not isinstance(caught.value, CablingError)


def test_cables_by_order_go_from_port_0_to_port_1_and_back_to_the_start() -> None:
    assert by_order(["a", "b", "c"]) == wired("c.0-a.1 a.0-b.1 b.0-c.1")
    assert by_order(["b", "a"]) == wired("a.0-b.0")


def test_equal_wirings_are_equal_however_they_are_described() -> None:
    assert wired("b.1-a.0 a.0-b.1") == wired("a.0-b.1")
    assert hash(wired("b.1-a.0 c.1-b.0")) == hash(wired("b.0-c.1 a.0-b.1"))
    assert wired("a.0-b.0") != wired("a.0-b.1")
    assert wired("a.0-b.1 a.0-a.0").far(Socket("a", 0)) == (Socket("a", 0), Socket("b", 1))


@given(rings(st.integers(3, 8)), st.data())
def test_a_ring_without_one_of_its_cables_names_both_of_its_ends(
    ring: tuple[Cluster, Cabling], data: st.DataObject
) -> None:
    cluster, cabling = ring
    lost = data.draw(st.sampled_from(cabling.cables))

    with pytest.raises(CablingError) as caught:
        plan(cluster, Cabling(tuple(cable for cable in cabling.cables if cable != lost)))

    assert {problem.sockets for problem in caught.value.cables} == {(socket,) for socket in lost}
    assert {problem.id for problem in caught.value.cables} == {"cable-missing"}


@given(st.lists(st.tuples(*[st.builds(Socket, st.sampled_from("abcx"), st.integers(0, 2))] * 2), max_size=6))
def test_whatever_is_seen_the_answer_is_an_order_or_the_faults(cables: list[tuple[Socket, Socket]]) -> None:
    cabling = Cabling(tuple(cables))
    try:
        order = ring_order(cabling, "abc")
    except CablingError as error:
        assert error.problems
        assert all(problem.key == str(problem.sockets[0]) for problem in error.cables)
    else:
        assert cabling == by_order(order)


@given(st.data())
def test_turning_a_ring_round_turns_its_order_round(data: st.DataObject) -> None:
    nodes = "abcdefg"
    cabling = data.draw(cablings(nodes))

    turned = Cabling(tuple((Socket(a.node, 1 - a.cage), Socket(b.node, 1 - b.cage)) for a, b in cabling.cables))
    first, *rest = ring_order(cabling, nodes)
    assert ring_order(turned, nodes) == (first, *reversed(rest))
