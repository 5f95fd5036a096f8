"""Which networks of a host collide with the plan, and what range is free."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import Collision, collisions, free_range, overlaps, planned_subnets
from tests.ring_mesh.samples import base_ranges

BASE = IPv4Network("10.77.0.0/21")


@st.composite
def networks(draw: st.DrawFn) -> IPv4Network:
    return IPv4Network((draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 32))), strict=False)


@pytest.mark.parametrize(
    ("network", "hit"),
    [
        ("10.77.0.0/24", ["10.77.0.0/24"]),
        ("10.77.3.77/32", ["10.77.3.0/24"]),
        ("10.77.4.0/23", ["10.77.4.0/24", "10.77.5.0/24"]),
        ("10.0.0.0/8", [f"10.77.{index}.0/24" for index in range(6)]),
        ("10.77.6.0/24", []),
        ("10.78.0.0/24", []),
        ("0.0.0.0/0", []),
        ("0.0.0.0/1", []),
    ],
)
def test_a_network_collides_with_the_planned_subnets_that_it_shares_addresses_with(
    network: str, hit: list[str]
) -> None:
    other = IPv4Network(network)

    found = overlaps(BASE, [(IPv4Network("192.168.77.0/24"), "enP7s7"), (other, "route via wlP9s9")])

    assert found == tuple(Collision(IPv4Network(subnet), other, "route via wlP9s9") for subnet in hit)


def test_a_range_without_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room"):
        overlaps(IPv4Network("10.77.0.0/22"), [])
    with pytest.raises(ValueError, match="no room"):
        overlaps(BASE, [], subnets=9)


def test_only_the_subnets_that_the_cluster_takes_can_collide() -> None:
    other = [(IPv4Network("10.77.4.0/22"), "eno1")]

    for subnets, hits in ((2, []), (4, []), (5, [4]), (6, [4, 5]), (8, [4, 5, 6, 7])):
        found = overlaps(BASE, other, subnets)
        assert [str(collision.subnet) for collision in found] == [f"10.77.{index}.0/24" for index in hits]


def test_adopted_subnets_collide_wherever_they_are() -> None:
    subnet, other = IPv4Network("192.168.9.4/30"), IPv4Network("192.168.9.0/29")

    assert collisions([BASE, subnet], [(other, "eno1")]) == (Collision(subnet, other, "eno1"),)


@given(base_ranges(), st.lists(networks(), max_size=5))
def test_no_collision_is_missed_or_invented(base: IPv4Network, others: list[IPv4Network]) -> None:
    found = {(collision.subnet, collision.network) for collision in overlaps(base, [(net, "x") for net in others])}

    for subnet in planned_subnets(base):
        for other in others:
            shares = max(subnet[0], other[0]) <= min(subnet[-1], other[-1])
            assert ((subnet, other) in found) == (shares and other.prefixlen > 1)


@given(st.lists(networks(), max_size=8), st.sampled_from([2, 4, 6, 8, 128]))
def test_a_proposed_range_is_private_and_free(taken: list[IPv4Network], subnets: int) -> None:
    free = free_range(taken, subnets)

    if free is None:
        assert any(network.prefixlen <= 8 for network in taken if network.prefixlen > 1)
        return
    assert free.prefixlen == {2: 23, 4: 22, 6: 21, 8: 21, 128: 17}[subnets]
    assert free.is_private
    assert collisions([free], [(network, "taken") for network in taken]) == ()


def test_the_proposal_is_the_usual_range_or_the_next_one_and_none_when_all_is_taken() -> None:
    everything = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16")]

    assert free_range([IPv4Network("0.0.0.0/0")]) == BASE
    assert free_range([IPv4Network("10.77.2.0/30")]) == IPv4Network("10.77.8.0/21")
    assert free_range([IPv4Network("10.64.0.0/10"), IPv4Network("10.128.0.0/9")]) == IPv4Network("172.16.0.0/21")
    assert free_range([IPv4Network("10.64.0.0/10"), IPv4Network("10.128.0.0/9"), *everything[1:]]) == IPv4Network(
        "10.0.0.0/21"
    )
    assert free_range([IPv4Network("10.77.2.0/30")], 128) == IPv4Network("10.77.128.0/17")
    assert free_range(everything) is None
