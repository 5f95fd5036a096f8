"""The scan of GID tables, against tables as kernels fill them and against random ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkd.core import checks
from sparkd.core.checks.gids import common_index
from sparkd.core.hardware import GidFact, HardwareFacts
from sparkd.core.model import AddressFact, Finding, NetworkFacts
from sparkd.host.gids import scan
from tests.checks.spark import ADDRESSES, NODE, Spark, Tree, mapped

HCA, NETDEV = "rocep1s0f0", "enp1s0f0np0"
DEVICE = f"sys/class/infiniband/{HCA}"
FE80 = "fe80:0000:0000:0000:4ebb:47ff:fe00:0001"


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def test_index_address_and_device_of_each_hca(spark: Spark) -> None:
    facts = spark.facts(addresses=ADDRESSES).gids
    assert facts is not None
    assert facts[2] == GidFact(HCA, NETDEV, 3, "10.77.0.1", "10.77.0.1", (), link_local=True)
    assert common_index(facts) == 3


def test_indices_that_differ_are_not_exported(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, None)
    spark.gid(HCA, 5, mapped("10.77.0.1"), "RoCE v2", NETDEV)
    facts = spark.facts().gids
    assert facts is not None
    assert {gid.hca: gid.index for gid in facts}[HCA] == 5
    assert common_index(facts) is None
    assert common_index(()) is None


def test_only_link_local(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, None)
    result = spark.check("gid-missing")
    assert result.findings == (
        Finding(
            "gid-missing",
            NODE,
            "refuse",
            HCA,
            "only link-local (fe80) GIDs in rocep1s0f0's table",
            "a RoCE v2 GID of 10.77.0.1",
            "set enp1s0f0np0 down and up (ip link set), or reload mlx5_ib; see "
            "/sys/class/infiniband/rocep1s0f0/ports/1/gids",
        ),
    )
    assert result.verdict == "fail"


def test_only_another_address(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, "192.168.100.7")
    (finding,) = spark.check("gid-missing").findings
    assert finding.observed == (
        "only link-local (fe80) GIDs, and of other addresses 192.168.100.7 in rocep1s0f0's table"
    )


def test_an_empty_table(spark: Spark) -> None:
    spark.remove(f"{DEVICE}/ports/1/gids")
    (finding,) = spark.check("gid-missing").findings
    assert finding.observed == "no GID in rocep1s0f0's table"


def test_before_the_address_is_set_its_gid_is_not_missing(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, None)
    seen = checks.Seen(NODE, spark.facts(), NetworkFacts(addresses=(AddressFact("enP7s7", "192.168.77.1/24"),)))
    result = checks.run(seen)[2]
    assert (result.id, result.verdict) == ("gid-missing", "unknown")
    assert result.why == "enp1s0f0np0 has no IPv4 address yet, so no GID can be expected"


def test_without_facts_of_the_network_the_gid_is_expected(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, None)
    (finding,) = checks.findings(checks.run(checks.Seen(NODE, spark.facts(), ranks_alive=False)))
    assert (finding.id, finding.expected) == ("gid-missing", "a RoCE v2 GID of an IPv4 address of enp1s0f0np0")


def test_a_gid_of_another_index_than_last_time(spark: Spark) -> None:
    seen = spark.seen()
    assert seen.hardware.gids is not None
    before = (GidFact(HCA, NETDEV, 1, "10.77.0.1"), *seen.hardware.gids[3:])
    moved = checks.run(checks.Seen(NODE, seen.hardware, seen.network, gids_before=before))[3]
    assert moved.findings == (
        Finding(
            "gid-moved",
            NODE,
            "warn",
            HCA,
            "GID of 10.77.0.1 at index 3",
            "index 1, as at the last start",
            "none needed before a start, which resolves GIDs anew; a serving ring has to be restarted",
        ),
    )
    same = checks.run(checks.Seen(NODE, seen.hardware, seen.network, gids_before=seen.hardware.gids))[3]
    assert (same.verdict, same.why) == ("pass", "4 GIDs where they were")


def test_soft_roce_has_only_version_2_and_no_device_link(tmp_path: Path) -> None:
    tree = Spark(tmp_path)
    tree.remove("sys/class/infiniband")
    tree.put(f"{DEVICE}/parent", NETDEV + "\n")
    tree.gid(HCA, 0, FE80, "RoCE v2", NETDEV)
    tree.gid(HCA, 1, mapped("10.77.0.1"), "RoCE v2", NETDEV)
    for _ in range(2):
        facts = tree.facts().gids
        assert facts is not None
        assert facts[0] == GidFact(HCA, NETDEV, 1, "10.77.0.1", link_local=True)
        if (tree.root / DEVICE / "parent").exists():
            tree.remove(f"{DEVICE}/parent")


def test_a_port_without_an_rdma_device_is_named_where_others_have_theirs(spark: Spark) -> None:
    """As when mlx5_ib did not take a function: a ring over the others alone would be slower, and say nothing."""
    spark.remove(DEVICE)
    facts = spark.facts(addresses=ADDRESSES).gids
    assert facts is not None
    assert facts[3:] == (GidFact(HCA, NETDEV, wanted="10.77.0.1", absent=True),)
    result = spark.check("gid-missing")
    assert [(finding.subject, finding.observed, finding.expected) for finding in result.findings] == [
        (
            HCA,
            "no RDMA device for enp1s0f0np0, though other ports have theirs",
            "rocep1s0f0, with a RoCE v2 GID of 10.77.0.1",
        )
    ]
    for other in ("rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"):
        spark.remove(f"sys/class/infiniband/{other}")
    assert spark.facts(addresses=ADDRESSES).gids == ()


def test_a_vlan_on_the_port_is_not_the_port(spark: Spark) -> None:
    spark.gid_table(HCA, NETDEV, None)
    spark.gid(HCA, 2, mapped("10.77.0.1"), "RoCE v2", f"{NETDEV}.7")
    spark.gid(HCA, 6, mapped("10.77.0.1"), "RoCE v2", NETDEV)
    assert scan(spark.root / DEVICE, {}).index == 6


def test_the_scan_ends_where_it_has_found_what_it_looks_for(spark: Spark) -> None:
    """A table has 1024 slots: past the hit nothing is read, here a pipe on which a read would never return."""
    spark.remove(f"{DEVICE}/ports/1/gids/4")
    os.mkfifo(spark.root / DEVICE / "ports/1/gids/4")
    facts = spark.facts(addresses=ADDRESSES, deadline=0.5)
    assert facts.unknown == {}
    assert facts.gids is not None
    assert facts.gids[2].index == 3


def test_a_gid_whose_type_is_not_told_is_in_doubt(spark: Spark) -> None:
    spark.link(f"{DEVICE}/ports/1/gid_attrs/types/2", "/sys/class/net/lo/speed")
    spark.link(f"{DEVICE}/ports/1/gid_attrs/types/3", "/sys/class/net/lo/speed")
    result = spark.check("gid-missing")
    assert (result.verdict, result.why) == ("unknown", f"{HCA}'s table has an IPv4 GID that does not tell its type")


def test_a_host_without_rdma_has_no_table(tmp_path: Path) -> None:
    assert Tree(tmp_path).facts().gids == ()


def test_a_table_that_cannot_be_read_is_unknown(spark: Spark) -> None:
    spark.seal(f"{DEVICE}/ports/1/gids/0")
    facts = spark.facts()
    assert facts.gids is None
    assert facts.unknown["gids"].startswith("GID tables: ")
    assert facts.unknown["gids"].endswith("Too many levels of symbolic links")
    assert checks.run(checks.Seen(NODE, facts))[2].verdict == "unknown"


ADDRESS = st.tuples(*[st.integers(1, 254)] * 4).map(lambda parts: ".".join(map(str, parts)))
SLOT = st.one_of(
    st.none(),
    st.tuples(st.just(FE80), st.sampled_from(["IB/RoCE v1", "RoCE v2"]), st.just(NETDEV)),
    st.tuples(ADDRESS.map(mapped), st.just("IB/RoCE v1"), st.just(NETDEV)),
    st.tuples(ADDRESS.map(mapped), st.just("RoCE v2"), st.just(f"{NETDEV}.100")),
    st.tuples(st.just("2001:0db8:0000:0000:0000:0000:0000:0001"), st.just("RoCE v2"), st.just(NETDEV)),
)


@given(slots=st.lists(SLOT, max_size=24), address=ADDRESS, at=st.integers(0, 24), present=st.booleans())
@settings(max_examples=60, deadline=None)
def test_exactly_the_ipv4_entry_of_roce_v2_is_found(
    slots: list[tuple[str, str, str] | None], address: str, at: int, present: bool
) -> None:
    at = min(at, len(slots))
    table = [*slots[:at], (mapped(address), "RoCE v2", NETDEV), *slots[at:]] if present else slots
    with tempfile.TemporaryDirectory() as directory:
        spark = Tree(Path(directory))
        spark.put(f"{DEVICE}/parent", NETDEV + "\n")
        for slot, entry in enumerate(table):
            if entry is None:
                spark.empty_gid(HCA, slot)
            else:
                spark.gid(HCA, slot, *entry)
        for wanted in ({}, {NETDEV: address}):
            found = scan(spark.root / DEVICE, wanted)
            assert (found.index, found.address) == ((at, address) if present else (None, ""))
            assert (found.netdev, found.unsure, found.others) == (NETDEV, False, ())
            if not present:
                assert found.link_local is any(entry is not None and entry[0] == FE80 for entry in slots)
        elsewhere = scan(spark.root / DEVICE, {NETDEV: "0.0.0.1"})
        assert (elsewhere.index, elsewhere.others) == (None, (address,) if present else ())


def test_common_index_needs_every_hca() -> None:
    facts = HardwareFacts(gids=(GidFact("a", index=3), GidFact("b")))
    assert facts.gids is not None
    assert common_index(facts.gids) is None
