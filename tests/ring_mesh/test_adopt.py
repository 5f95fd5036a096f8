"""Addresses that are there are taken if they can serve, and otherwise each fault is named with its port."""

from collections.abc import Callable
from ipaddress import IPv4Interface, IPv4Network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ring_mesh import AdoptError, Cabling, CablingError, Cluster, adopt, parse_cluster, plan
from tests.ring_mesh.samples import addresses, lab, rings, wired

Found = dict[tuple[str, str], list[IPv4Interface]]

P0, P2P0, P1, P2P1 = "enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1"

# The lab's links have 10.77.0.0/24 (spark1 P0 - spark2 P1), .1 (their twins), .2 and .3 (spark2 - spark3), .4 and .5.


def put(node: str, device: str, *found: str) -> Callable[[Found], object]:
    return lambda addresses: addresses.update({(node, device): [IPv4Interface(text) for text in found]})


def all_with(length: int) -> Callable[[Found], object]:
    return lambda addresses: addresses.update(
        {key: [IPv4Interface(f"{one.ip}/{length}")] for key, (one,) in addresses.items()}
    )


# What is changed in the lab's addresses, then node, device, and words of `found` and of `expected` of each fault.
FAULTS: list[tuple[list[Callable[[Found], object]], list[tuple[str, str, str, str]]]] = [
    ([put("spark1", P0)], [("spark1", P0, "no address", "one address with a prefix length of 24 to 31")]),
    ([lambda found: found.pop(("spark3", P2P1))], [("spark3", P2P1, "no address", "one address")]),
    (
        [put("spark1", P0, "10.77.0.1/24", "10.0.9.1/24")],
        [("spark1", P0, "10.77.0.1/24, 10.0.9.1/24", "one address")],
    ),
    ([put("spark1", P0, "169.254.7.8/16")], [("spark1", P0, "169.254.7.8/16", "one address")]),
    ([put("spark1", P0, "10.77.0.1/32")], [("spark1", P0, "10.77.0.1/32", "one address")]),
    ([put("spark1", P0, "127.0.0.9/24")], [("spark1", P0, "127.0.0.9/24", "one address")]),
    ([put("spark1", P0, "10.77.0.0/24")], [("spark1", P0, "the network address of 10.77.0.0/24", "of a host")]),
    ([put("spark1", P0, "10.77.0.255/24")], [("spark1", P0, "the broadcast address of 10.77.0.0/24", "of a host")]),
    # Lengths.
    ([put("spark2", P0, "10.77.2.2/23")], [("spark2", P0, "10.77.2.2/23", "a prefix length of 24 to 31")]),
    ([put("spark2", P0, "10.77.2.2/25")], [("spark2", P0, "10.77.2.2/25", "/24, the prefix length of most ports")]),
    (
        [put("spark2", P0, "10.77.2.2/28"), put("spark3", P1, "10.77.2.3/28")],
        [("spark2", P0, "10.77.2.2/28", "/24, the prefix"), ("spark3", P1, "10.77.2.3/28", "/24, the prefix")],
    ),
    # The ends of a link.
    (
        [put("spark3", P1, "10.77.99.3/24")],
        [("spark3", P1, "10.77.99.3/24", f"in 10.77.2.0/24, like 10.77.2.2 at the far end, spark2 {P0}")],
    ),
    (
        [put("spark3", P1, "10.77.2.2/24")],
        [("spark3", P1, f"10.77.2.2/24, which spark2 {P0} has as well", "that no other port has")],
    ),
    # One subnet on two links.
    (
        [put("spark1", P2P0, "10.77.0.11/24"), put("spark2", P2P1, "10.77.0.12/24")],
        [("spark1", P2P0, f"overlaps 10.77.0.0/24 of {P0} and {P1} between the same nodes", "a subnet of its own")],
    ),
    (
        [put("spark3", P0, "10.77.0.3/24"), put("spark1", P1, "10.77.0.11/24")],
        [("spark3", P0, f"10.77.0.3/24, which overlaps 10.77.0.0/24 of spark1 {P0} and spark2 {P1}", "of its own")],
    ),
    (
        [put("spark3", P0, "10.77.0.130/25"), put("spark1", P1, "10.77.0.129/25")],
        [
            ("spark3", P0, "10.77.0.130/25", "/24, the prefix length of most ports"),
            ("spark1", P1, "10.77.0.129/25", "/24, the prefix length of most ports"),
            ("spark3", P0, "overlaps 10.77.0.0/24", "a subnet of its own"),
        ],
    ),
    (
        [put("spark3", P0, "10.77.0.3/24"), put("spark1", P1, "10.77.0.1/24")],
        [
            ("spark3", P0, "overlaps 10.77.0.0/24", "a subnet of its own"),
            ("spark1", P1, f"10.77.0.1/24, which spark1 {P0} has as well", "that no other port has"),
        ],
    ),
    # The management network.
    (
        [put("spark1", P0, "192.168.77.101/24"), put("spark2", P1, "192.168.77.102/24")],
        [
            ("spark1", P0, "spark1 has its management address 192.168.77.1", "a network of the fabric alone"),
            ("spark2", P1, "spark1 has its management address 192.168.77.1", "a network of the fabric alone"),
        ],
    ),
    # Several at once.
    (
        [put("spark1", P0), put("spark2", P0, "10.77.2.2/30"), put("spark3", P2P1, "10.78.3.3/24")],
        [
            ("spark1", P0, "no address", "one address"),
            ("spark2", P0, "10.77.2.2/30", "/24, the prefix length of most ports"),
            ("spark3", P2P1, "10.78.3.3/24", "in 10.77.3.0/24"),
        ],
    ),
]


@pytest.mark.parametrize(("changes", "faults"), FAULTS)
def test_each_fault_is_named_with_node_and_device(
    changes: list[Callable[[Found], object]], faults: list[tuple[str, str, str, str]]
) -> None:
    cluster = parse_cluster(lab())
    found = addresses(plan(cluster))
    for change in changes:
        change(found)

    with pytest.raises(AdoptError) as caught:
        adopt(cluster, None, found)

    named = caught.value.addresses
    assert caught.value.problems == named
    assert [(problem.node, problem.device) for problem in named] == [(node, device) for node, device, _, _ in faults]
    for problem, (node, device, words, expected) in zip(named, faults, strict=True):
        assert problem.key == f"{node} {device}"
        assert words in problem.found
        assert expected in problem.expected


@pytest.mark.parametrize("length", [24, 25, 28, 29])
def test_any_length_that_all_links_share_is_taken(length: int) -> None:
    cluster = parse_cluster(lab())
    found = addresses(plan(cluster))
    all_with(length)(found)

    planned = adopt(cluster, None, found)

    assert {link.subnet.prefixlen for link in planned.links} == {length}
    assert addresses(planned) == found


def test_links_of_two_addresses_are_taken() -> None:
    cluster = parse_cluster(lab(2))
    found: Found = {}
    put("spark1", P0, "10.0.0.0/31")(found)
    put("spark2", P1, "10.0.0.1/31")(found)
    put("spark1", P2P0, "10.0.0.2/31")(found)
    put("spark2", P2P1, "10.0.0.3/31")(found)

    planned = adopt(cluster, wired("spark1.0-spark2.1"), found)

    assert [str(link.subnet) for link in planned.links] == ["10.0.0.0/31", "10.0.0.2/31"]


def test_addresses_that_no_link_can_use_and_ports_without_a_cable_are_passed_over() -> None:
    cluster = parse_cluster(lab(2))
    found = addresses(plan(cluster))
    found["spark1", P0] += [IPv4Interface("169.254.3.4/16"), IPv4Interface("10.9.9.9/32"), *found["spark1", P0]]
    put("spark1", P1, "10.50.0.1/24")(found)
    put("spark9", P0, "10.77.0.1/24")(found)

    assert adopt(cluster, None, found) == plan(cluster)


def test_cables_that_are_no_ring_are_refused_before_any_address() -> None:
    with pytest.raises(CablingError):
        adopt(parse_cluster(lab()), wired("spark1.0-spark2.0"), {})


@given(rings())
def test_planning_what_was_applied_changes_nothing(ring: tuple[Cluster, Cabling]) -> None:
    planned = plan(*ring)

    assert adopt(*ring, addresses(planned)) == planned


@st.composite
def renumbered(draw: st.DrawFn) -> tuple[Cluster, Cabling, Found]:
    """Addresses by hand: of subnets in any order, of any length, with any hosts in them."""
    cluster, cabling = draw(rings(st.sampled_from([2, 3, 4])))
    length = draw(st.integers(24, 31))
    whole = IPv4Network((draw(st.integers(1, 126)) << 24, 8))
    assume(not any(node.address in whole for node in cluster.nodes))
    links = plan(cluster, cabling).links
    step = 1 << (32 - length)
    numbers = st.lists(st.integers(0, (1 << (length - 8)) - 1), min_size=len(links), max_size=len(links), unique=True)
    found: Found = {}
    for link, number in zip(links, draw(numbers), strict=True):
        start = whole.network_address + number * step
        hosts = st.integers(0, 1) if length == 31 else st.integers(1, step - 2)
        pair = draw(st.lists(hosts, min_size=2, max_size=2, unique=True))
        for end, host in zip(link.ends, pair, strict=True):
            found[end.node, end.device] = [IPv4Interface((start + host, length))]
    return cluster, cabling, found


@given(renumbered())
def test_addresses_that_satisfy_the_rules_are_taken_as_they_are(
    described: tuple[Cluster, Cabling, Found],
) -> None:
    cluster, cabling, found = described

    planned = adopt(cluster, cabling, found)

    assert addresses(planned) == found
    assert adopt(cluster, cabling, addresses(planned)) == planned
    fresh = plan(cluster, cabling)
    assert [cable.sockets for cable in planned.cables] == [cable.sockets for cable in fresh.cables]
    owners = {end.address.ip: (end.node, end.device) for link in planned.links for end in link.ends}
    planners = {end.address.ip: (end.node, end.device) for link in fresh.links for end in link.ends}
    assert [
        (route.node, route.device, owners[route.destination], owners[route.gateway], owners[route.source])
        for route in planned.routes
    ] == [
        (route.node, route.device, planners[route.destination], planners[route.gateway], planners[route.source])
        for route in fresh.routes
    ]


@given(renumbered(), st.data())
def test_one_end_out_of_its_subnet_is_found_on_that_link(
    described: tuple[Cluster, Cabling, Found], data: st.DataObject
) -> None:
    cluster, cabling, found = described
    moved = data.draw(st.sampled_from(sorted(found)))
    length = found[moved][0].network.prefixlen
    fresh = plan(cluster, cabling)
    (far,) = [fresh.far_end(end) for end in fresh.ends_of(moved[0]) if end.device == moved[1]]

    with pytest.raises(AdoptError) as caught:
        adopt(cluster, cabling, found | {moved: [IPv4Interface(f"223.255.255.1/{length}")]})

    (problem,) = caught.value.addresses
    assert (problem.node, problem.device) in {moved, (far.node, far.device)}
