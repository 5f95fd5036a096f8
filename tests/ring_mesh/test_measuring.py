"""The environment of measuring: what each node is told of its rails, and the order that all keep."""

from __future__ import annotations

from typing import Any

import pytest

from ring_mesh import measure_environment, parse_cluster, plan
from ring_mesh.measuring import in_order
from ring_mesh.plan import Plan
from runtime.measure.environment import read_environment


def ring(size: int) -> Plan:
    nodes = [{"name": f"spark{n}", "rank": n - 1, "address": f"192.168.77.{n}"} for n in range(1, size + 1)]
    return plan(parse_cluster({"name": "lab", "base_range": "10.77.0.0/20", "node": nodes}))


def variables(the_plan: Plan, node: str, *devices: str) -> dict[str, str]:
    return measure_environment(
        the_plan,
        node,
        7,
        devices=devices,
        gid_indices={"rocep1s0f0": 3},
        key="ab" * 32,
        boot_id="b0",
        seconds=1.0,
        expected_rdma=30.0,
        expected_tcp=16.0,
    )


def test_what_a_node_is_told() -> None:
    told = variables(ring(3), "spark1", "enp1s0f0np0")
    assert told["SPARKD_MEASURE_RAILS"].split(",") == [
        "0:enp1s0f0np0:10.77.0.1:1:enp1s0f1np1:10.77.0.2:rocep1s0f0:3:1",
        "1:enP2p1s0f0np0:10.77.1.1:1:enP2p1s0f1np1:10.77.1.2:-:-:0",
        "4:enp1s0f1np1:10.77.4.1:2:enp1s0f0np0:10.77.4.3:-:-:0",
        "5:enP2p1s0f1np1:10.77.5.1:2:enP2p1s0f0np0:10.77.5.3:-:-:0",
    ]
    assert told["SPARKD_MEASURE_ADDRESSES"] == "192.168.77.1,192.168.77.2,192.168.77.3"
    assert told["SPARKD_MEASURE_KEY"] == "ab" * 32


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_the_runtime_reads_it_and_both_ends_mean_the_same_link(size: int) -> None:
    the_plan = ring(size)
    links: dict[int, set[Any]] = {}
    for node in the_plan.cluster.nodes:
        environment = read_environment(variables(the_plan, node.name, *(e.device for e in the_plan.ends_of(node.name))))
        assert environment.total == len(environment.rails) == len(the_plan.ends_of(node.name))
        for rail in environment.rails:
            links.setdefault(rail.link.index, set()).add(rail.link)
    assert {index: len(seen) for index, seen in links.items()} == dict.fromkeys(range(len(the_plan.links)), 1)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_all_nodes_keep_one_order(size: int) -> None:
    the_plan = ring(size)
    order = [link.index for link in in_order(the_plan)]
    assert sorted(order) == list(range(len(the_plan.links)))
    for node in the_plan.cluster.nodes:
        rails = variables(the_plan, node.name)["SPARKD_MEASURE_RAILS"].split(",")
        places = [order.index(int(rail.partition(":")[0])) for rail in rails]
        assert places == sorted(places)


def test_in_a_ring_of_four_disjoint_cables_go_side_by_side() -> None:
    first = [{end.node for end in link.ends} for link in in_order(ring(4))][:4]
    assert first[0] == first[1]
    assert first[2] == first[3]
    assert not first[0] & first[2]
