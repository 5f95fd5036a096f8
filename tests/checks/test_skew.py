"""Versions that differ, within a node and between nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.core import checks
from sparkd.core.hardware import HardwareFacts, KernelFacts, PciFacts, PciFunction
from sparkd.core.model import Finding
from tests.checks.spark import NODE, Spark


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def test_a_driver_that_was_updated_below_the_running_kernel(spark: Spark) -> None:
    spark.driver("580.95.05", library="580.173.02")
    assert spark.check("driver-skew").findings == (
        Finding(
            "driver-skew",
            NODE,
            "refuse",
            "NVIDIA driver",
            "kernel module 580.95.05 is loaded, library 580.173.02 is installed "
            "(NVML: driver/library version mismatch)",
            "module and library of one version",
            "reboot the node; if it stays so, reinstall the driver's packages",
        ),
    )


def test_a_module_that_is_only_in_proc(spark: Spark) -> None:
    spark.remove("sys/module/nvidia")
    spark.driver("580.95.05", library="580.95.05")
    spark.remove("sys/module/nvidia")
    facts = spark.facts().kernel
    assert facts is not None
    assert facts.module == facts.library == "580.95.05"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release Build  (user@h)",
    ],
)
def test_both_kinds_of_the_module_name_their_version(spark: Spark, line: str) -> None:
    spark.remove("sys/module/nvidia")
    spark.put("proc/driver/nvidia/version", line + "\nGCC version:  gcc version 12.2.0\n")
    facts = spark.facts().kernel
    assert facts is not None
    assert facts.module == "535.54.03"


def test_a_gpu_without_a_driver(spark: Spark) -> None:
    spark.remove("sys/module/nvidia")
    spark.remove("proc/driver/nvidia")
    (finding,) = spark.check("driver-skew").findings
    assert (finding.severity, finding.observed) == (
        "refuse",
        "the GPU is on the bus, but no NVIDIA kernel module is loaded",
    )
    assert "for kernel 6.17.0-1031-nvidia" in finding.fix


def test_a_reboot_that_is_due(spark: Spark) -> None:
    spark.put("run/reboot-required", "*** System restart required ***\n")
    spark.put("run/reboot-required.pkgs", "linux-image-6.17.0-1032-nvidia\nlinux-base\nlinux-base\n")
    assert spark.check("driver-skew").findings == (
        Finding(
            "driver-skew",
            NODE,
            "warn",
            "reboot",
            "/run/reboot-required exists (for linux-image-6.17.0-1032-nvidia, linux-base)",
            "a node that runs what is installed on it",
            "reboot the node while the ring is down",
        ),
    )
    spark.remove("run/reboot-required.pkgs")
    assert spark.check("driver-skew").findings[0].observed == "/run/reboot-required exists"


def test_a_library_that_is_not_found_is_in_doubt(spark: Spark) -> None:
    spark.remove("usr/lib/aarch64-linux-gnu")
    result = spark.check("driver-skew")
    assert (result.verdict, result.why) == ("unknown", "the driver's library was not found")
    spark.link("usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1", "/opt/other.so")
    assert spark.check("driver-skew").verdict == "unknown"


def node(driver: str = "580.173.02", kernel: str = "6.17.0-1031-nvidia", firmware: str = "28.45.4028") -> HardwareFacts:
    function = PciFunction("0000:01:00.0", firmware=firmware)
    return HardwareFacts(kernel=KernelFacts(kernel, module=driver), pci=PciFacts((function,)))


def test_a_node_with_another_driver_is_named() -> None:
    drivers, firmware = checks.compare({"spark1": node(), "spark2": node(driver="580.95.05"), "spark3": node()})
    assert drivers.findings == (
        Finding(
            "driver-skew",
            "spark2",
            "refuse",
            "NVIDIA driver",
            "580.95.05",
            "580.173.02, as on spark1, spark3",
            "install the same NVIDIA driver on all nodes and reboot spark2",
        ),
    )
    assert (drivers.verdict, firmware.verdict) == ("fail", "pass")


def test_of_two_nodes_the_older_one_is_named() -> None:
    """By number and not by letter: 580.173 is newer than 580.95."""
    for nodes in (
        {"spark1": node(driver="580.95.05"), "spark2": node()},
        {"spark2": node(), "spark1": node(driver="580.95.05")},
    ):
        (finding,) = checks.compare(nodes)[0].findings
        assert (finding.node, finding.expected) == ("spark1", "580.173.02, as on spark2")


def test_another_kernel_is_a_warning() -> None:
    (finding,) = checks.compare({"spark1": node(kernel="6.17.0-1032-nvidia"), "spark2": node()})[0].findings
    assert finding == Finding(
        "driver-skew",
        "spark2",
        "warn",
        "kernel",
        "6.17.0-1031-nvidia",
        "6.17.0-1032-nvidia, as on spark1",
        "install the same kernel on all nodes and reboot spark2",
    )


def test_a_node_without_a_driver_among_others() -> None:
    (finding,) = checks.compare({"spark1": node(), "spark2": node(driver="")})[0].findings
    assert (finding.node, finding.severity, finding.observed) == ("spark2", "refuse", "no NVIDIA driver")


def test_another_firmware_is_a_warning() -> None:
    drivers, firmware = checks.compare({"spark1": node(), "spark2": node(), "spark3": node(firmware="28.44.1036")})
    assert drivers.verdict == "pass"
    assert firmware.findings == (
        Finding(
            "firmware-skew",
            "spark3",
            "warn",
            "ConnectX-7 firmware",
            "28.44.1036",
            "28.45.4028, as on spark1, spark2",
            "update the firmware (fwupdmgr upgrade) on all nodes and reboot spark3",
        ),
    )


def test_a_node_that_was_not_heard_is_not_like_the_others() -> None:
    results = checks.compare({"spark1": node(), "spark2": node(), "spark3": None})
    assert [(result.verdict, result.why) for result in results] == [("unknown", "spark3 did not tell")] * 2
    skewed = checks.compare({"spark1": node(), "spark2": node(driver="580.95.05"), "spark3": None})[0]
    assert skewed.verdict == "fail"
    assert skewed.why.endswith("spark3 did not tell")


def test_a_function_that_does_not_tell_its_firmware() -> None:
    silent = replace(node(), pci=PciFacts((PciFunction("0000:01:00.0"),)))
    assert checks.compare({"spark1": node(), "spark2": silent})[1].why == "spark2 did not tell"
