"""Every fault of a description is refused with its key, and all faults of one at once."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import FABRIC_DEVICES, ClusterError, Problem, parse_cluster
from tests.ring_mesh.samples import lab, tables

Change = Callable[[dict[str, Any]], object]


def problems(table: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(ClusterError) as caught:
        parse_cluster(table)
    return caught.value.problems


def put(key: str, value: object) -> Change:
    return lambda table: table.update({key: value})


def put_node(index: int, key: str, value: object) -> Change:
    return lambda table: table["node"][index].update({key: value})


def drop(key: str) -> Change:
    return lambda table: table.pop(key)


def drop_node(index: int, key: str) -> Change:
    return lambda table: table["node"][index].pop(key)


def put_nodes(count: int, base_range: str = "10.77.0.0/16") -> Change:
    return lambda table: table.update(lab(count) | {"base_range": base_range})


# What is changed in the lab's description, the key that is named, and words of `found` and of `expected`.
FAULTS: list[tuple[Change, str, str, str]] = [
    (drop("name"), "cluster.name", "nothing", "a name of a-z"),
    (put("name", 3), "cluster.name", "3", "a name of a-z"),
    (put("name", "Lab"), "cluster.name", '"Lab"', "a name of a-z"),
    (put("name", "-lab"), "cluster.name", '"-lab"', "not starting with -"),
    (put("name", "x" * 64), "cluster.name", '"xxx', "at most 63"),
    (put("nmae", "lab"), "cluster.nmae", "an unknown key", '"name"?'),
    (put("colour", 1), "cluster.colour", "an unknown key", "one of name, base_range"),
    (put("a\nb", 1), 'cluster."a\\nb"', "an unknown key", "one of"),
    (drop("base_range"), "cluster.base_range", "nothing", "6 /24"),
    (put("base_range", 21), "cluster.base_range", "21", "an IPv4 network"),
    (put("base_range", "fabric"), "cluster.base_range", '"fabric"', "an IPv4 network"),
    (put("base_range", "fd00::/48"), "cluster.base_range", '"fd00::/48"', "an IPv4 network"),
    (put("base_range", "10.77.1.0/21"), "cluster.base_range", "host bits", '"10.77.0.0/21"'),
    (put("base_range", "10.77.0.0/22"), "cluster.base_range", "too small", "a /21 or larger"),
    (put("base_range", "10.77.0.0"), "cluster.base_range", "too small", "a /21 or larger"),
    (put("base_range", "224.0.0.0/8"), "cluster.base_range", "multicast", "unicast"),
    (put("base_range", "127.0.0.0/16"), "cluster.base_range", "loopback", "unicast"),
    (put("base_range", "240.0.0.0/8"), "cluster.base_range", "reserved", "unicast"),
    (put("base_range", "0.0.0.0/8"), "cluster.base_range", "unspecified", "unicast"),
    (put("management_interface", 7), "cluster.management_interface", "7", "a network device"),
    (put("management_interface", "lo"), "cluster.management_interface", '"lo"', "not on the fabric"),
    (put("management_interface", ""), "cluster.management_interface", '""', "a network device"),
    (put("management_interface", "e" * 16), "cluster.management_interface", "eee", "a network device"),
    (put("management_interface", "enp1s0f1np1"), "cluster.management_interface", "socket-ifname-fabric", "enP7s7"),
    (drop("node"), "cluster.node", "nothing", "2 to 64 [[cluster.node]]"),
    (put("node", "spark1"), "cluster.node", '"spark1"', "2 to 64 [[cluster.node]]"),
    (put("node", {"name": "spark1"}), "cluster.node", "a table", "2 to 64 [[cluster.node]]"),
    (put("node", []), "cluster.node", "0", "2 to 64 [[cluster.node]]"),
    (put_nodes(1), "cluster.node", "1", "2 to 64 [[cluster.node]]"),
    (put_nodes(65), "cluster.node", "65", "2 to 64 [[cluster.node]]"),
    # A size for each number of nodes: two /24 for each cable, of which two nodes may have only one.
    (put_nodes(2, "10.77.0.0/24"), "cluster.base_range", "too small", "2 /24 subnets (a /23 or larger)"),
    (put_nodes(4, "10.77.0.0/22"), "cluster.base_range", "too small", "8 /24 subnets (a /21 or larger)"),
    (put_nodes(5, "10.77.0.0/21"), "cluster.base_range", "too small", "10 /24 subnets (a /20 or larger)"),
    (put_nodes(64, "10.77.0.0/18"), "cluster.base_range", "too small", '"10.77.0.0/17"'),
    (lambda table: table["node"].__setitem__(1, "spark2"), "cluster.node[1]", '"spark2"', "a table"),
    (drop_node(0, "name"), "cluster.node[0].name", "nothing", "a name of a-z"),
    (put_node(0, "name", "spark1\n"), "cluster.node[0].name", '"spark1\\n"', "a name of a-z"),
    (put_node(0, "name", ["spark1"]), "cluster.node[0].name", "a list of 1", "a name of a-z"),
    (put_node(1, "name", "spark1"), "cluster.node[1].name", "as in cluster.node[0].name", "no other node has"),
    (put_node(1, "adress", "192.168.77.2"), "cluster.node[1].adress", "an unknown key", '"address"?'),
    (drop_node(1, "rank"), "cluster.node[1].rank", "nothing", "from 0 to 2"),
    (put_node(1, "rank", True), "cluster.node[1].rank", "true", "an integer from 0 to 2"),
    (put_node(1, "rank", 1.0), "cluster.node[1].rank", "1.0", "an integer from 0 to 2"),
    (put_node(1, "rank", "1"), "cluster.node[1].rank", '"1"', "an integer from 0 to 2"),
    (put_node(1, "rank", date(2024, 1, 2)), "cluster.node[1].rank", "2024-01-02", "an integer"),
    (put_node(1, "rank", -1), "cluster.node[1].rank", "-1", "from 0 to 2"),
    (put_node(1, "rank", 3), "cluster.node[1].rank", "3", "from 0 to 2"),
    (put_node(1, "rank", 1 << 20000), "cluster.node[1].rank", "a very large integer", "from 0 to 2"),
    (put_node(2, "rank", 0), "cluster.node[2].rank", "0, as in cluster.node[0].rank", "no other node has"),
    (drop_node(2, "address"), "cluster.node[2].address", "nothing", "IPv4 address"),
    (put_node(2, "address", 3232255745), "cluster.node[2].address", "3232255745", "IPv4 address"),
    (put_node(2, "address", "192.168.77.3/24"), "cluster.node[2].address", "/24", "IPv4 address"),
    (put_node(2, "address", "fe80::1"), "cluster.node[2].address", '"fe80::1"', "IPv4 address"),
    (put_node(2, "address", "spark3"), "cluster.node[2].address", '"spark3"', "IPv4 address"),
    (put_node(2, "address", "224.0.0.1"), "cluster.node[2].address", "multicast", "IPv4 address"),
    (put_node(2, "address", "127.0.0.1"), "cluster.node[2].address", "loopback", "IPv4 address"),
    (put_node(2, "address", "0.0.0.0"), "cluster.node[2].address", "unspecified", "IPv4 address"),
    (put_node(2, "address", "255.255.255.255"), "cluster.node[2].address", "reserved", "IPv4 address"),
    (put_node(2, "address", "192.168.77.1"), "cluster.node[2].address", "as in cluster.node[0].address", "no other"),
    (put_node(2, "address", "10.77.7.9"), "cluster.node[2].address", "inside cluster.base_range", "outside"),
    (
        put_node(0, "management_interface", "enP2p1s0f0np0"),
        "cluster.node[0].management_interface",
        "socket-ifname-fabric",
        "not on the fabric",
    ),
    (put_node(0, "management_interface", "a b"), "cluster.node[0].management_interface", '"a b"', "a network device"),
]


@pytest.mark.parametrize(("change", "key", "found", "expected"), FAULTS)
def test_a_fault_is_refused_with_its_key(change: Change, key: str, found: str, expected: str) -> None:
    table = lab()
    change(table)

    (problem,) = problems(table)

    assert problem.key == key
    assert found in problem.found
    assert expected in problem.expected
    assert len(str(problem).splitlines()) == 1


def test_all_faults_of_a_description_are_reported_at_once() -> None:
    table = {
        "nam": "lab",
        "base_range": "10.77.0.0/23",
        "node": [
            {"name": "spark1", "rank": 0, "address": "192.168.77.1"},
            {"name": "spark1", "rank": False, "address": "192.168.77.1", "port": 1},
            {"rank": 2, "address": "nowhere"},
        ],
    }

    assert {problem.key for problem in problems(table)} == {
        "cluster.nam",
        "cluster.name",
        "cluster.base_range",
        "cluster.node[1].name",
        "cluster.node[1].rank",
        "cluster.node[1].address",
        "cluster.node[1].port",
        "cluster.node[2].name",
        "cluster.node[2].address",
    }


def test_an_error_names_every_problem_in_its_text() -> None:
    table = lab() | {"name": "", "base_range": ""}

    with pytest.raises(ClusterError, match=r"cluster\.name: found .*; cluster\.base_range: found "):
        parse_cluster(table)


@given(tables())
def test_a_valid_description_is_read_as_it_was_written(table: dict[str, Any]) -> None:
    cluster = parse_cluster(table)

    default = table.get("management_interface", "enP7s7")
    assert (cluster.name, str(cluster.base_range)) == (table["name"], table["base_range"])
    assert {(node.name, node.rank, str(node.address), node.management_interface) for node in cluster.nodes} == {
        (row["name"], row["rank"], row["address"], row.get("management_interface", default)) for row in table["node"]
    }
    assert [node.rank for node in cluster.nodes] == list(range(len(table["node"])))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
nearly = st.dictionaries(st.sampled_from(["name", "rank", "address", "management_interface", "x"]), anything)


@given(
    st.dictionaries(
        st.sampled_from(["name", "base_range", "management_interface", "node", "x"]),
        anything | st.lists(nearly, max_size=4),
    )
)
def test_whatever_the_table_holds_the_answer_is_a_cluster_or_its_problems(table: dict[str, object]) -> None:
    try:
        cluster = parse_cluster(table)
    except ClusterError as error:
        assert error.problems
        assert all(len(str(problem).splitlines()) == 1 for problem in error.problems)
    else:
        assert 2 <= len(cluster.nodes) <= 64


@pytest.mark.parametrize(
    ("nodes", "base_range"), [(2, "10.77.0.0/23"), (3, "10.77.0.0/21"), (4, "10.77.0.0/21"), (64, "10.77.0.0/17")]
)
def test_two_to_64_nodes_are_a_cluster_with_the_smallest_range_that_has_room(nodes: int, base_range: str) -> None:
    cluster = parse_cluster(lab(nodes) | {"base_range": base_range})

    assert cluster.world_size == nodes
    assert str(cluster.base_range) == base_range


@pytest.mark.parametrize("device", sorted(FABRIC_DEVICES))
def test_no_fabric_device_can_be_the_management_interface(device: str) -> None:
    assert [problem.key for problem in problems(lab() | {"management_interface": device})] == [
        "cluster.management_interface"
    ]
