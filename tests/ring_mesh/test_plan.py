"""The plan of a triangle: one written out by hand, and what holds for every cluster."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import PORTS, Cluster, ClusterError, End, parse_cluster, plan, planned_subnets
from tests.ring_mesh.samples import lab, tables

# cable, link, subnet, then node, device and address of the port-0 end and of the port-1 end.
LINKS = """
0 0 10.77.0.0/24 spark1 enp1s0f0np0   rocep1s0f0   10.77.0.1 spark2 enp1s0f1np1   rocep1s0f1   10.77.0.2
0 1 10.77.1.0/24 spark1 enP2p1s0f0np0 roceP2p1s0f0 10.77.1.1 spark2 enP2p1s0f1np1 roceP2p1s0f1 10.77.1.2
1 2 10.77.2.0/24 spark2 enp1s0f0np0   rocep1s0f0   10.77.2.2 spark3 enp1s0f1np1   rocep1s0f1   10.77.2.3
1 3 10.77.3.0/24 spark2 enP2p1s0f0np0 roceP2p1s0f0 10.77.3.2 spark3 enP2p1s0f1np1 roceP2p1s0f1 10.77.3.3
2 4 10.77.4.0/24 spark3 enp1s0f0np0   rocep1s0f0   10.77.4.3 spark1 enp1s0f1np1   rocep1s0f1   10.77.4.1
2 5 10.77.5.0/24 spark3 enP2p1s0f0np0 roceP2p1s0f0 10.77.5.3 spark1 enP2p1s0f1np1 roceP2p1s0f1 10.77.5.1
"""

# node, destination, gateway, device, source.
ROUTES = """
spark1 10.77.2.2 10.77.0.2 enp1s0f0np0   10.77.0.1
spark1 10.77.3.2 10.77.1.2 enP2p1s0f0np0 10.77.1.1
spark1 10.77.2.3 10.77.4.3 enp1s0f1np1   10.77.4.1
spark1 10.77.3.3 10.77.5.3 enP2p1s0f1np1 10.77.5.1
spark2 10.77.4.3 10.77.2.3 enp1s0f0np0   10.77.2.2
spark2 10.77.5.3 10.77.3.3 enP2p1s0f0np0 10.77.3.2
spark2 10.77.4.1 10.77.0.1 enp1s0f1np1   10.77.0.2
spark2 10.77.5.1 10.77.1.1 enP2p1s0f1np1 10.77.1.2
spark3 10.77.0.1 10.77.4.1 enp1s0f0np0   10.77.4.3
spark3 10.77.1.1 10.77.5.1 enP2p1s0f0np0 10.77.5.3
spark3 10.77.0.2 10.77.2.2 enp1s0f1np1   10.77.2.3
spark3 10.77.1.2 10.77.3.2 enP2p1s0f1np1 10.77.3.3
"""


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def test_the_plan_of_the_lab_is_the_one_written_by_hand() -> None:
    planned = plan(parse_cluster(lab()))

    assert [
        [
            str(cable.index),
            str(link.index),
            str(link.subnet),
            *(text for end in link.ends for text in (end.node, end.device, end.hca, str(end.address.ip))),
        ]
        for cable in planned.cables
        for link in cable.links
    ] == rows(LINKS)
    assert [
        [route.node, str(route.destination), str(route.gateway), route.device, str(route.source)]
        for route in planned.routes
    ] == rows(ROUTES)
    assert [(cable.a, cable.b) for cable in planned.cables] == [
        ("spark1", "spark2"),
        ("spark2", "spark3"),
        ("spark3", "spark1"),
    ]
    assert {end.mtu for link in planned.links for end in link.ends} == {9000}


@given(tables())
def test_each_link_is_one_subnet_of_its_own(table: Mapping[str, Any]) -> None:
    cluster = parse_cluster(table)
    planned = plan(cluster)

    subnets = [link.subnet for link in planned.links]
    assert len(subnets) == 6
    for index, link in enumerate(planned.links):
        assert link.index == index
        assert link.subnet.prefixlen == 24
        assert link.subnet.subnet_of(cluster.base_range)
        assert {end.address.network for end in link.ends} == {link.subnet}
        assert link.ends[0].address != link.ends[1].address
        assert not any(link.subnet.overlaps(other) for other in subnets if other is not link.subnet)


@given(tables())
def test_each_cable_joins_a_port_0_with_the_port_1_of_another_node(table: Mapping[str, Any]) -> None:
    planned = plan(parse_cluster(table))

    for cable in planned.cables:
        assert cable.a != cable.b
        for link, domain in zip(cable.links, ("0000", "0002"), strict=True):
            a, b = link.ends
            assert (a.node, a.port.cage, a.port.domain) == (cable.a, 0, domain)
            assert (b.node, b.port.cage, b.port.domain) == (cable.b, 1, domain)
        assert planned.cable_at(cable.a, 0) == planned.cable_at(cable.b, 1) == cable
    pairs = [frozenset((cable.a, cable.b)) for cable in planned.cables]
    assert len(set(pairs)) == 3


@given(tables())
def test_every_port_of_every_node_is_planned_once(table: Mapping[str, Any]) -> None:
    planned = plan(parse_cluster(table))

    for node in planned.cluster.nodes:
        ends = planned.ends_of(node.name)
        assert tuple(end.port for end in ends) == PORTS
        assert {(end.node, end.rank) for end in ends} == {(node.name, node.rank)}
        for end in ends:
            far = planned.far_end(end)
            assert far.node != end.node
            assert far.address.network == end.address.network
            assert planned.far_end(far) == end


@given(tables())
def test_each_route_leaves_by_the_device_that_faces_the_peer(table: Mapping[str, Any]) -> None:
    planned = plan(parse_cluster(table))

    owners = {end.address.ip: end for link in planned.links for end in link.ends}
    for route in planned.routes:
        (near,) = [end for end in planned.ends_of(route.node) if end.device == route.device]
        target = owners[route.destination]
        assert route.source == near.address.ip
        assert route.gateway == planned.far_end(near).address.ip
        assert route.gateway in near.address.network
        assert planned.far_end(near).node == target.node
        assert near.port.domain == target.port.domain


@given(tables())
def test_each_node_reaches_every_fabric_address_over_a_link_or_a_route(table: Mapping[str, Any]) -> None:
    planned = plan(parse_cluster(table))

    everywhere = {end.address.ip for link in planned.links for end in link.ends}
    for node in planned.cluster.nodes:
        own = {end.address.ip for end in planned.ends_of(node.name)}
        direct = {planned.far_end(end).address.ip for end in planned.ends_of(node.name)}
        routed = [route.destination for route in planned.routes_of(node.name)]
        assert len(routed) == 4
        assert own | direct | set(routed) == everywhere
        assert not direct & set(routed)


@given(tables(), st.data())
def test_the_order_of_the_nodes_in_the_file_means_nothing(table: dict[str, Any], data: st.DataObject) -> None:
    planned = plan(parse_cluster(table))

    shuffled = table | {"node": data.draw(st.permutations(table["node"]))}
    assert plan(parse_cluster(shuffled)) == planned
    assert plan(planned.cluster) == planned


def test_a_cluster_whose_ranks_are_no_ring_has_no_plan() -> None:
    whole = parse_cluster(lab())

    for nodes in (whole.nodes[:1], whole.nodes[1:], whole.nodes[::-1], ()):
        with pytest.raises(ClusterError) as caught:
            plan(Cluster(whole.name, whole.base_range, nodes))
        assert [problem.key for problem in caught.value.problems] == ["cluster.node"]


def test_questions_about_what_is_not_planned_are_errors() -> None:
    planned = plan(parse_cluster(lab()))
    stranger = End("spark9", 0, PORTS[0], planned.links[0].ends[0].address)

    for ask in (planned.ends_of, planned.routes_of, lambda node: planned.cable_at(node, 0)):
        with pytest.raises(ClusterError) as caught:
            ask("spark9")
        assert str(caught.value) == 'node.name: found "spark9", expected one of spark1, spark2, spark3'
    with pytest.raises(ValueError, match="cages 0 and 1, not 2"):
        planned.cable_at("spark1", 2)
    with pytest.raises(ValueError, match=r"enp1s0f0np0 of spark9 with .* is not in the plan"):
        planned.far_end(stranger)


def test_subnets_come_from_the_start_of_a_range_that_has_room() -> None:
    assert planned_subnets(IPv4Network("10.0.0.0/8"))[5] == IPv4Network("10.0.5.0/24")
    for small in ("10.0.0.0/22", "10.0.0.0/24", "10.0.0.0/25"):
        with pytest.raises(ValueError, match="no room"):
            planned_subnets(IPv4Network(small))


def test_the_conductor_is_rank_0_wherever_it_stands_in_the_file() -> None:
    table = lab()
    table["node"][0]["rank"], table["node"][2]["rank"] = 2, 0

    cluster = parse_cluster(table)

    assert cluster.conductor.name == "spark3"
    assert cluster.conductor.address == IPv4Address("192.168.77.3")
    assert cluster.world_size == 3
    assert cluster.node("spark2").rank == 1
