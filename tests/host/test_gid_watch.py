"""GIDs of a running rank, looked at over and over on a recorded GID table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkd.host.gids import GidWatch
from sparkd.host.sysfs import SysfsRoce
from tests.checks.spark import Spark, mapped
from tests.reconcile.running import in_loop

HCA, NETDEV = "rocep1s0f0", "enp1s0f0np0"
MARK = "3 10.77.0.1"
TABLE = f"sys/class/infiniband/{HCA}/ports/1"


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


@pytest.fixture
def watch(spark: Spark) -> Iterator[GidWatch]:
    watching = GidWatch(spark.root / "sys/class/infiniband")
    yield watching
    watching.keep({})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_gid_that_stays_costs_one_read_of_its_own_slot(spark: Spark, watch: GidWatch) -> None:
    assert watch.look(HCA, MARK) == MARK
    for slot in (0, 1, 2, *range(4, 12)):
        spark.seal(f"{TABLE}/gids/{slot}")  # nobody can read these
    before = descriptors()
    assert [watch.look(HCA, MARK) for _ in range(3)] == [MARK] * 3
    assert descriptors() == before


def test_a_gid_that_moves_is_found_again(spark: Spark, watch: GidWatch) -> None:
    assert watch.look(HCA, MARK) == MARK
    spark.empty_gid(HCA, 3)
    (spark.root / TABLE / "gids/2").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    spark.gid(HCA, 9, mapped("10.77.0.1"), "RoCE v2", NETDEV)
    assert watch.look(HCA, MARK) == "9 10.77.0.1"


def test_a_gid_that_is_gone_while_another_address_has_its_slot(spark: Spark, watch: GidWatch) -> None:
    assert watch.look(HCA, MARK) == MARK
    spark.gid(HCA, 3, mapped("10.99.0.1"), "RoCE v2", NETDEV)
    assert watch.look(HCA, MARK) == ""


def test_a_table_that_does_not_tell_says_neither(spark: Spark, watch: GidWatch) -> None:
    spark.gid(HCA, 3, mapped("10.99.0.1"), "RoCE v2", NETDEV)
    spark.gid(HCA, 7, mapped("10.77.0.1"), "", NETDEV)
    assert watch.look(HCA, MARK) is None


def test_a_device_that_was_away_is_opened_anew(spark: Spark, watch: GidWatch) -> None:
    assert watch.look(HCA, MARK) == MARK
    spark.remove(TABLE)
    spark.gid_table(HCA, NETDEV, "10.77.0.9")
    watch.keep({})
    assert watch.look(HCA, MARK) == ""
    spark.gid_table(HCA, NETDEV, "10.77.0.1")
    watch.keep({})
    assert watch.look(HCA, MARK) == MARK


def test_what_is_no_longer_watched_is_closed(watch: GidWatch) -> None:
    before = descriptors()
    watch.look(HCA, MARK)
    assert descriptors() == before + 1
    watch.keep({HCA: MARK})
    assert descriptors() == before + 1
    watch.keep({HCA: "5 10.77.0.1"})
    assert descriptors() == before


@in_loop
async def test_only_the_devices_of_a_rank_are_watched(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    marks = {HCA: MARK}
    roce = SysfsRoce(spark.root / "sys", gids=lambda: marks)
    try:
        assert {fact.hca: fact.gid for fact in await roce.observe()} == dict.fromkeys(
            ("roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f1")
        ) | {HCA: MARK}
        spark.gid(HCA, 3, mapped("10.99.0.1"), "RoCE v2", NETDEV)
        assert {fact.hca: fact.gid for fact in await roce.observe()}[HCA] == ""
        marks = {}
        assert {fact.gid for fact in await roce.observe()} == {None}
    finally:
        roce.close()
