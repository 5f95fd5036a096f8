"""The plan of a triangle written out by hand, those of two and four nodes, and what holds for every ring."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import (
    PORTS,
    Cabling,
    Cluster,
    ClusterError,
    End,
    Plan,
    Socket,
    by_order,
    parse_cluster,
    plan,
    planned_subnets,
    unreachable,
)
from tests.ring_mesh.samples import lab, rings, tables, wired

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

# The same nodes cabled the other way round: spark1 - spark3 - spark2.
BACKWARDS = """
0 0 10.77.0.0/24 spark1 enp1s0f0np0   rocep1s0f0   10.77.0.1 spark3 enp1s0f1np1   rocep1s0f1   10.77.0.3
0 1 10.77.1.0/24 spark1 enP2p1s0f0np0 roceP2p1s0f0 10.77.1.1 spark3 enP2p1s0f1np1 roceP2p1s0f1 10.77.1.3
1 2 10.77.2.0/24 spark3 enp1s0f0np0   rocep1s0f0   10.77.2.3 spark2 enp1s0f1np1   rocep1s0f1   10.77.2.2
1 3 10.77.3.0/24 spark3 enP2p1s0f0np0 roceP2p1s0f0 10.77.3.3 spark2 enP2p1s0f1np1 roceP2p1s0f1 10.77.3.2
2 4 10.77.4.0/24 spark2 enp1s0f0np0   rocep1s0f0   10.77.4.2 spark1 enp1s0f1np1   rocep1s0f1   10.77.4.1
2 5 10.77.5.0/24 spark2 enP2p1s0f0np0 roceP2p1s0f0 10.77.5.2 spark1 enP2p1s0f1np1 roceP2p1s0f1 10.77.5.1
"""

# spark2's routes in a ring of four.
ROUTES_OF_FOUR = """
spark2 10.77.4.3 10.77.2.3 enp1s0f0np0   10.77.2.2
spark2 10.77.5.3 10.77.3.3 enP2p1s0f0np0 10.77.3.2
spark2 10.77.6.1 10.77.0.1 enp1s0f1np1   10.77.0.2
spark2 10.77.7.1 10.77.1.1 enP2p1s0f1np1 10.77.1.2
"""


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def links_of(planned: Plan) -> list[list[str]]:
    return [
        [
            str(cable.index),
            str(link.index),
            str(link.subnet),
            *(text for end in link.ends for text in (end.node, end.device, end.hca, str(end.address.ip))),
        ]
        for cable in planned.cables
        for link in cable.links
    ]


def routes_of(planned: Plan) -> list[list[str]]:
    return [
        [route.node, str(route.destination), str(route.gateway), route.device, str(route.source)]
        for route in planned.routes
    ]


def test_the_plan_of_the_lab_is_the_one_written_by_hand() -> None:
    planned = plan(parse_cluster(lab()))

    assert links_of(planned) == rows(LINKS)
    assert routes_of(planned) == rows(ROUTES)
    assert [(cable.a, cable.b) for cable in planned.cables] == [
        ("spark1", "spark2"),
        ("spark2", "spark3"),
        ("spark3", "spark1"),
    ]
    assert {end.mtu for link in planned.links for end in link.ends} == {9000}


def test_a_triangle_cabled_the_other_way_round_is_planned_along_its_cables() -> None:
    planned = plan(parse_cluster(lab()), wired("spark1.0-spark3.1 spark2.0-spark1.1 spark3.0-spark2.1"))

    assert links_of(planned) == rows(BACKWARDS)
    assert planned.order == ("spark1", "spark3", "spark2")


def test_in_a_ring_of_four_each_node_reaches_its_neighbours_and_not_the_opposite_node() -> None:
    planned = plan(parse_cluster(lab(4)))

    assert [row for row in routes_of(planned) if row[0] == "spark2"] == rows(ROUTES_OF_FOUR)
    assert len(planned.routes) == 16
    assert [unreachable(planned, f"spark{node}") for node in (1, 2, 3, 4)] == [
        ("spark3",),
        ("spark4",),
        ("spark1",),
        ("spark2",),
    ]
    with pytest.raises(ClusterError):
        unreachable(planned, "spark9")


@pytest.mark.parametrize(
    ("cabling", "sockets"),
    [
        (None, [("spark1", 0, "spark2", 0)]),
        ("spark2.0-spark1.0", [("spark1", 0, "spark2", 0)]),
        ("spark2.1-spark1.1", [("spark1", 1, "spark2", 1)]),
        ("spark1.0-spark2.1", [("spark1", 0, "spark2", 1)]),
        ("spark1.1-spark2.0", [("spark2", 0, "spark1", 1)]),
        ("spark2.1-spark1.1 spark2.0-spark1.0", [("spark1", 0, "spark2", 0), ("spark1", 1, "spark2", 1)]),
        ("spark1.1-spark2.0 spark2.1-spark1.0", [("spark1", 0, "spark2", 1), ("spark2", 0, "spark1", 1)]),
    ],
)
def test_two_nodes_are_planned_with_one_cable_or_two_between_any_ports(
    cabling: str | None, sockets: list[tuple[str, int, str, int]]
) -> None:
    planned = plan(parse_cluster(lab(2)), wired(cabling) if cabling else None)

    assert [(a.node, a.cage, b.node, b.cage) for a, b in (cable.sockets for cable in planned.cables)] == sockets
    assert [str(link.subnet) for link in planned.links] == [f"10.77.{index}.0/24" for index in range(2 * len(sockets))]
    assert planned.routes == ()
    assert planned.order == ("spark1", "spark2")
    assert unreachable(planned, "spark1") == ()
    cabled = {socket.cage for cable in planned.cables for socket in cable.sockets if socket.node == "spark1"}
    assert [end.port for end in planned.ends_of("spark1")] == [port for port in PORTS if port.cage in cabled]


def test_a_cage_without_a_cable_is_said_so() -> None:
    planned = plan(parse_cluster(lab(2)))

    with pytest.raises(ValueError, match="no cable is planned at spark2 port 1"):
        planned.cable_at("spark2", 1)


def test_two_cables_between_two_nodes_need_a_range_with_room_for_both() -> None:
    cluster = parse_cluster(lab(2) | {"base_range": "10.77.0.0/23"})

    assert len(plan(cluster).links) == 2
    with pytest.raises(ClusterError) as caught:
        plan(cluster, wired("spark1.0-spark2.0 spark1.1-spark2.1"))
    assert str(caught.value) == (
        "cluster.base_range: found 10.77.0.0/23, expected room for 4 /24 subnets (a /22 or larger)"
    )


@given(rings())
def test_each_link_is_one_subnet_of_its_own(ring: tuple[Cluster, Cabling]) -> None:
    cluster, cabling = ring
    planned = plan(cluster, cabling)

    assert planned.cabling == cabling
    assert len(planned.links) == 2 * len(cabling.cables)
    taken: set[IPv4Network] = set()
    for index, link in enumerate(planned.links):
        assert link.index == index
        assert link.subnet.prefixlen == 24
        assert link.subnet.subnet_of(cluster.base_range)
        assert {end.address.network for end in link.ends} == {link.subnet}
        assert [int(end.address.ip) & 255 for end in link.ends] == [end.rank + 1 for end in link.ends]
        assert link.subnet not in taken
        taken.add(link.subnet)


@given(rings())
def test_each_cable_is_planned_between_the_ports_it_is_plugged_in(ring: tuple[Cluster, Cabling]) -> None:
    planned = plan(*ring)

    for index, cable in enumerate(planned.cables):
        assert cable.index == index
        assert cable.a != cable.b
        one, other = cable.sockets
        assert (one.node, other.node) == (cable.a, cable.b)
        for link, domain in zip(cable.links, ("0000", "0002"), strict=True):
            a, b = link.ends
            assert (a.node, a.port.cage, a.port.domain) == (one.node, one.cage, domain)
            assert (b.node, b.port.cage, b.port.domain) == (other.node, other.cage, domain)
        assert planned.cable_at(cable.a, one.cage) == planned.cable_at(cable.b, other.cage) == cable
        if planned.cluster.world_size > 2:
            assert (one.cage, other.cage) == (0, 1)
            assert other.node == planned.cables[(index + 1) % len(planned.cables)].a
    assert {socket for cable in planned.cables for socket in cable.sockets} == {
        socket for cable in ring[1].cables for socket in cable
    }


@given(rings())
def test_the_order_of_the_ring_starts_at_rank_0_and_follows_the_ports_0(ring: tuple[Cluster, Cabling]) -> None:
    cluster, cabling = ring
    planned = plan(cluster, cabling)

    assert planned.order[0] == cluster.conductor.name
    assert sorted(planned.order) == sorted(node.name for node in cluster.nodes)
    if cluster.world_size > 2:
        for node, following in zip(planned.order, (*planned.order[1:], planned.order[0]), strict=True):
            assert cabling.far(Socket(node, 0)) == (Socket(following, 1),)
        assert plan(cluster, by_order(planned.order)) == planned


@given(rings())
def test_every_cabled_port_of_every_node_is_planned_once(ring: tuple[Cluster, Cabling]) -> None:
    planned = plan(*ring)

    for node in planned.cluster.nodes:
        ends = planned.ends_of(node.name)
        assert tuple(end.port for end in ends) == tuple(p for p in PORTS if ring[1].far(Socket(node.name, p.cage)))
        assert {(end.node, end.rank) for end in ends} == {(node.name, node.rank)}
        for end in ends:
            far = planned.far_end(end)
            assert far.node != end.node
            assert far.address.network == end.address.network
            assert planned.far_end(far) == end


@given(rings())
def test_each_route_leaves_by_the_device_that_faces_the_peer(ring: tuple[Cluster, Cabling]) -> None:
    planned = plan(*ring)

    owners = {end.address.ip: end for link in planned.links for end in link.ends}
    for route in planned.routes:
        (near,) = [end for end in planned.ends_of(route.node) if end.device == route.device]
        target = owners[route.destination]
        assert route.source == near.address.ip
        assert route.gateway == planned.far_end(near).address.ip
        assert route.gateway in near.address.network
        assert planned.far_end(near).node == target.node
        assert near.port.domain == target.port.domain
    assert len({(route.node, route.destination) for route in planned.routes}) == len(planned.routes)


@given(rings())
def test_each_node_reaches_every_address_of_its_neighbours_over_a_link_or_a_route(
    ring: tuple[Cluster, Cabling],
) -> None:
    planned = plan(*ring)

    for node in planned.cluster.nodes:
        direct = {planned.far_end(end) for end in planned.ends_of(node.name)}
        neighbours = {end.node for end in direct}
        on_links = {end.address.ip for end in direct}
        routed = [route.destination for route in planned.routes_of(node.name)]
        assert on_links | set(routed) == {end.address.ip for name in neighbours for end in planned.ends_of(name)}
        assert not on_links & set(routed)
        assert len(routed) == (4 if planned.cluster.world_size > 2 else 0)
        everyone = [other.name for other in planned.cluster.nodes]
        assert list(unreachable(planned, node.name)) == [
            name for name in everyone if name != node.name and name not in neighbours
        ]


@given(tables(), st.data())
def test_the_order_of_the_nodes_in_the_file_means_nothing(table: dict[str, Any], data: st.DataObject) -> None:
    planned = plan(parse_cluster(table))

    shuffled = table | {"node": data.draw(st.permutations(table["node"]))}
    assert plan(parse_cluster(shuffled)) == planned
    assert plan(planned.cluster) == planned


@given(rings(), st.data())
def test_the_order_in_which_the_cables_are_described_means_nothing(
    ring: tuple[Cluster, Cabling], data: st.DataObject
) -> None:
    cluster, cabling = ring

    shuffled = data.draw(st.permutations(cabling.cables))
    again = Cabling(tuple((b, a) if data.draw(st.booleans()) else (a, b) for a, b in [*shuffled, shuffled[0]]))
    assert plan(cluster, again) == plan(cluster, cabling)


@given(tables())
def test_without_a_cabling_the_cables_follow_the_ranks(table: Mapping[str, Any]) -> None:
    cluster = parse_cluster(table)

    names = [node.name for node in cluster.nodes]
    assert plan(cluster) == plan(cluster, by_order(names))
    assert plan(cluster).order == tuple(names)


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
    assert len(planned_subnets(IPv4Network("10.0.0.0/21"), 8)) == 8
    for small, subnets in (("10.0.0.0/22", 6), ("10.0.0.0/24", 6), ("10.0.0.0/25", 1), ("10.0.0.0/21", 9)):
        with pytest.raises(ValueError, match="no room"):
            planned_subnets(IPv4Network(small), subnets)


def test_the_conductor_is_rank_0_wherever_it_stands_in_the_file() -> None:
    table = lab()
    table["node"][0]["rank"], table["node"][2]["rank"] = 2, 0

    cluster = parse_cluster(table)

    assert cluster.conductor.name == "spark3"
    assert cluster.conductor.address == IPv4Address("192.168.77.3")
    assert cluster.world_size == 3
    assert cluster.node("spark2").rank == 1
