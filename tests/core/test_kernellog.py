"""Field reports memory-floor and pcie-fatal: what the kernel's log says."""

from __future__ import annotations

import pytest

from sparkd.core import checks, guard
from sparkd.core.checks.memory import GIB
from sparkd.core.hardware import HardwareFacts, PciFacts, PciFunction
from sparkd.core.kernellog import broken_function, out_of_memory, wants_memory
from tests.core.builders import attempt

OUT = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from"
    " _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)


def test_a_line_of_the_driver_about_memory_counts_only_when_little_is_left() -> None:
    assert wants_memory(OUT)
    assert out_of_memory(20 * GIB, 4 * GIB) == ""
    assert out_of_memory(12 * GIB, 4 * GIB) == ""
    said = out_of_memory(6 * GIB, 4 * GIB)
    assert said == "memory-floor: the driver is out of memory (NV_ERR_NO_MEMORY in the kernel's log), 6.0 GiB available"


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:000f:01:00): 31, pid=812",
        "some program: NV_ERR_NO_MEMORY",
        "Out of memory: Killed process 812 (python3)",
    ],
)
def test_other_lines_are_not_about_the_drivers_memory(text: str) -> None:
    assert not wants_memory(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mlx5_core 0000:01:00.0: poll_health:834:(pid 0): device's health compromised - reached miss count", "health"),
        ("mlx5_core 0000:01:00.0: poll_health:800:(pid 0): Fatal error 1 detected", "Fatal error 1"),
        ("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "Fatal"),
        ("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer", "Fatal"),
        ("mlx5_core 0000:01:00.0 enp1s0f0np0: mlx5_health_try_recover: health recovery failed", "recovery"),
    ],
)
def test_a_function_is_broken(text: str, said: str) -> None:
    found = broken_function(text)
    assert found is not None
    assert found[0] == "0000:01:00.0"
    assert said in found[1]


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
        "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down",
        "nvme 0004:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "mlx5_core 0000:01:00.0: firmware version: 28.45.4028",
    ],
)
def test_what_passes_or_is_of_another_device_breaks_nothing(text: str) -> None:
    assert broken_function(text) is None


BROKEN = HardwareFacts(
    pci=PciFacts((PciFunction("0000:01:00.0", "mlx5_core", "enp1s0f0np0", fatal=1), PciFunction("0000:01:00.1"))),
    broken={"0000:01:00.0": "Fatal error 1 detected"},
)


def test_a_broken_function_ends_the_epoch_and_holds_the_host_out_until_it_has_rebooted() -> None:
    incident = guard.function_lost(BROKEN, attempt("spark2"))
    assert incident == "pcie-fatal: the kernel's log says of 0000:01:00.0: Fatal error 1 detected"
    (result,) = [found for found in checks.run(checks.Seen("spark1", BROKEN)) if found.id == "pcie-fatal"]
    (finding,) = result.findings
    assert (finding.severity, finding.subject) == ("refuse", "enp1s0f0np0 (0000:01:00.0)")
    assert finding.observed == "the kernel's log: Fatal error 1 detected"


def test_a_broken_function_that_has_left_the_bus_still_refuses() -> None:
    seen = checks.Seen("spark1", HardwareFacts(broken=BROKEN.broken))
    (result,) = [found for found in checks.run(seen) if found.id == "pcie-fatal"]
    assert [finding.subject for finding in result.findings] == ["0000:01:00.0"]
