"""Where nothing is wrong nothing may be said to be; where nothing can be told nothing may be said to be fine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkd.core import checks
from sparkd.core.hardware import HardwareFacts
from tests.checks.spark import Spark, Tree

ALONE = ("gid-moved", "firewall-blocks", "pcie-changed", "rail-idle")  # a node without a past and without peers
ENGINE = ("profile-bad", "engine-missing", "engine-version", "engine-options")  # the probe has none of it


def verdicts(results: tuple[checks.CheckResult, ...]) -> dict[str, str]:
    return {result.id: result.verdict for result in results}


def test_a_healthy_spark_passes_everything(tmp_path: Path) -> None:
    results = checks.run(Spark(tmp_path).seen())
    assert [result.id for result in results] == [check.id for check in checks.CHECKS]
    expected = {check.id: "pass" for check in checks.CHECKS} | dict.fromkeys((*ALONE, *ENGINE), "not-applicable")
    assert verdicts(results) == expected, [r for r in results if r.verdict != expected[r.id]]
    assert checks.findings(results) == ()


def test_what_passed_says_what_was_seen(tmp_path: Path) -> None:
    said = {result.id: result.why for result in checks.run(Spark(tmp_path).seen())}
    assert said["cx7-functions-missing"] == "4 mlx5 functions"
    assert said["pcie-narrow"] == "4 functions at 32 GT/s x4"
    assert said["gid-missing"] == "roceP2p1s0f0 3, roceP2p1s0f1 3, rocep1s0f0 3, rocep1s0f1 3"
    assert said["driver-skew"] == "driver 580.173.02, kernel 6.17.0-1031-nvidia"
    assert said["kho-kernel"] == "kernel 6.17.0-1031-nvidia without KHO"
    assert said["swap-off"] == "16.0 GiB of swap, swappiness 60"
    assert said["memlock-low"] == "/usr/lib/systemd/system/sparkd-rank@.service asks for infinity"


def test_three_healthy_sparks_are_alike(tmp_path: Path) -> None:
    nodes = {name: Spark(tmp_path / name).facts() for name in ("spark1", "spark2", "spark3")}
    results = checks.compare(nodes)
    assert [(r.id, r.verdict, r.why) for r in results] == [
        ("driver-skew", "pass", "driver 580.173.02 and kernel 6.17.0-1031-nvidia on all nodes"),
        ("firmware-skew", "pass", "firmware 28.45.4028 on all nodes"),
    ]


def test_a_virtual_machine_of_the_lab_is_not_blamed_for_what_it_is(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.put("proc/sys/kernel/osrelease", "7.1.0-generic\n")  # no kho=off, no swap: the machine below it decides that
    tree.put("proc/sys/vm/swappiness", "0\n")
    tree.put("usr/lib/systemd/system/sparkd-rank@.service", "[Service]\n")
    results = checks.run(tree.seen())
    fine = {"dhcp-on-fabric", "profile-on-fabric", "nccl-conf-residue", "second-supervisor"}
    assert verdicts(results) == {check.id: "pass" if check.id in fine else "not-applicable" for check in checks.CHECKS}
    said = {result.id: result.why for result in results}
    assert said["kho-kernel"] == said["driver-skew"] == said["cx7-functions-missing"] == "no NVIDIA driver here"
    assert said["gid-missing"] == "no RDMA device here"
    assert [r.verdict for r in checks.compare({"spark1": tree.facts(), "spark2": tree.facts()})] == [
        "not-applicable"
    ] * 2


def test_another_machine_with_an_nvidia_gpu_is_no_spark(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    spark.function("000f:01:00.0", vendor="0x10de", device="0x2684", kind="0x030000")
    spark.put("sys/class/dmi/id/product_name", "Workstation\n")
    spark.remove("sys/bus/pci/devices/0000:01:00.0")
    result = spark.check("cx7-functions-missing")
    assert (result.verdict, result.why) == ("not-applicable", "no GB10 here: not a DGX Spark")


def test_another_makers_box_is_one(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    spark.put("sys/class/dmi/id/product_name", "GX10\n")
    spark.remove("sys/bus/pci/devices/0000:01:00.0")
    assert spark.check("cx7-functions-missing").verdict == "fail"


def test_a_spark_whose_gpu_is_off_the_bus_is_known_by_its_name(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    spark.remove("sys/bus/pci/devices/000f:01:00.0")
    spark.kernel("6.17.0-1008-nvidia")
    assert spark.check("kernel-known-bad").verdict == "fail"


def test_without_facts_nothing_is_fine() -> None:
    results = checks.run(checks.Seen("spark1"))
    assert {result.verdict for result in results} == {"unknown"}
    assert {result.why for result in results if result.id == "swap-off"} == {"pci was not looked at"}
    assert {r.verdict for r in checks.compare({"spark1": None, "spark2": HardwareFacts()})} == {"unknown"}


@pytest.mark.parametrize(
    ("source", "blinded"),
    [
        ("kernel", {"kho-kernel", "kernel-known-bad", "driver-skew"}),
        ("memory", {"kho-kernel", "memory-not-back", "page-cache-counts", "swap-off"}),
        ("gids", {"gid-missing", "gid-moved"}),
        ("owners", {"dhcp-on-fabric", "profile-on-fabric"}),
        ("rank", {"memlock-low", "nccl-conf-residue"}),
        ("supervisors", {"second-supervisor"}),
        ("pci", {"cx7-functions-missing", "pcie-narrow", "pcie-changed", "pcie-fatal"}),
        ("rails", {"rail-idle"}),
        ("engine", set(ENGINE)),
    ],
)
def test_one_source_that_does_not_answer_makes_its_checks_unknown_and_no_others(
    tmp_path: Path, source: str, blinded: set[str]
) -> None:
    seen = Spark(tmp_path).seen()
    silent: dict[str, Any] = {source: None, "unknown": {source: "it did not answer"}}
    broken = replace(seen.hardware, **silent)
    results = checks.run(replace(seen, hardware=broken))
    assert {result.id for result in results if result.verdict == "unknown"} == blinded
    assert {result.why for result in results if result.verdict == "unknown"} == {"it did not answer"}
