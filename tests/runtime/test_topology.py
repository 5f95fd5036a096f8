"""Links and rings out of what each rank knows of its own ends."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import Rail
from runtime.probe.topology import Link, Ring, TopologyError, find_links, find_rings, pci_domain
from tests.runtime.triangle import triangle_rails

NET = "10.77.0"


@st.composite
def cabled_rings(draw: st.DrawFn) -> tuple[int, dict[int, list[Rail]]]:
    """Two to eight ranks cabled as one ring, in any order of ranks, each listing its ends in any order."""
    size = draw(st.integers(2, 8))
    seat = draw(st.permutations(range(size)))
    rails: dict[int, list[Rail]] = {}
    for place, ends in triangle_rails(NET, size).items():
        own = [replace(end, peer_rank=seat[end.peer_rank]) for end in ends]
        rails[seat[place]] = draw(st.permutations(own))
    return size, rails


def joins(link: Link, a: int, b: int) -> bool:
    return {link.low.rank, link.high.rank} == {a, b}


@given(cabled_rings())
def test_every_link_carries_data_each_way(cabling: tuple[int, dict[int, list[Rail]]]) -> None:
    size, rails = cabling
    links = find_links(rails, size)
    rings = find_rings(links, size)
    assert len(links) == 2 * size
    assert [link.index for link in links] == list(range(len(links)))
    sends: Counter[tuple[int, int]] = Counter()
    for ring in rings:
        assert sorted(ring.order) == list(range(size))
        for place, rank in enumerate(ring.order):
            link = links[ring.hops[place]]
            assert link.domain == ring.domain
            assert joins(link, rank, ring.order[(place + 1) % size])
            sends[rank, link.index] += 1
    # One cycle each way per domain: exactly one sender per end of every link, so no two share a direction.
    assert sends == Counter({(rank, link.index): 1 for link in links for rank in (link.low.rank, link.high.rank)})


@given(cabled_rings())
def test_the_lower_rank_listens_and_both_ends_agree(cabling: tuple[int, dict[int, list[Rail]]]) -> None:
    size, rails = cabling
    for link in find_links(rails, size):
        assert link.low.rank < link.high.rank
        own = [rail for rail in rails[link.low.rank] if rail.address == link.low.address]
        assert own == [Rail(link.low.device, link.low.address, link.high.rank, link.high.address)]
        assert link.end(link.low.rank) == link.far(link.high.rank) == link.low
        assert link.end(link.high.rank) == link.far(link.low.rank) == link.high


@given(cabled_rings(), st.data())
def test_any_end_missing_or_wrong_is_found(cabling: tuple[int, dict[int, list[Rail]]], data: st.DataObject) -> None:
    size, rails = cabling
    rank = data.draw(st.integers(0, size - 1))
    place = data.draw(st.integers(0, len(rails[rank]) - 1))
    end = rails[rank][place]
    change = data.draw(
        st.sampled_from(
            [
                [],
                [replace(end, address="10.99.0.1")],
                [replace(end, peer_address="10.99.0.1")],
                [replace(end, device="enP5p1s0f0np0")],
                [replace(end, peer_rank=(end.peer_rank + 1) % size)],
            ]
        )
    )
    rails[rank] = rails[rank][:place] + change + rails[rank][place + 1 :]
    with pytest.raises(TopologyError):
        find_links(rails, size)


def test_the_triangle_is_walked_along_its_cables() -> None:
    links = find_links(triangle_rails(NET, 3), 3)
    assert [(link.low.rank, link.high.rank, link.domain) for link in links] == [
        (0, 1, 0),
        (0, 1, 2),
        (0, 2, 0),
        (0, 2, 2),
        (1, 2, 0),
        (1, 2, 2),
    ]
    assert find_rings(links, 3) == (
        Ring(0, (0, 1, 2), (0, 4, 2)),
        Ring(0, (0, 2, 1), (2, 4, 0)),
        Ring(2, (0, 1, 2), (1, 5, 3)),
        Ring(2, (0, 2, 1), (3, 5, 1)),
    )


def test_two_ranks_on_one_cable_go_there_and_back() -> None:
    links = find_links(triangle_rails(NET, 2, cables=1), 2)
    assert find_rings(links, 2) == (Ring(0, (0, 1), (0, 0)), Ring(2, (0, 1), (1, 1)))


@pytest.mark.parametrize("cables", [1, 2])
def test_a_chain_is_no_ring(cables: int) -> None:
    links = find_links(triangle_rails(NET, 3, cables), 3)
    with pytest.raises(TopologyError, match=f"the {cables} links of PCI domain 0000 are not one ring through 3 ranks"):
        find_rings(links, 3)


def test_two_small_rings_are_no_ring() -> None:
    pairs = triangle_rails("10.1.0", 2)
    others = triangle_rails("10.2.0", 2)
    rails = {**pairs, **{r + 2: [replace(e, peer_rank=e.peer_rank + 2) for e in ends] for r, ends in others.items()}}
    with pytest.raises(TopologyError, match="not one ring through 4 ranks"):
        find_rings(find_links(rails, 4), 4)


def test_no_link_is_no_ring() -> None:
    with pytest.raises(TopologyError):
        find_rings((), 3)


@pytest.mark.parametrize(
    ("device", "position", "domain"),
    [
        ("enp1s0f0np0", 1, 0),
        ("enP2p1s0f1np1", 0, 2),
        ("enP10p1s0f1np1", 0, 10),
        ("eth0", 0, 0),
        ("eth1", 1, 2),
        ("eth2", 2, 0),
    ],
)
def test_the_domain_is_in_the_name_or_follows_the_plan(device: str, position: int, domain: int) -> None:
    assert pci_domain(device, position) == domain
