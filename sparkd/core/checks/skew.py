"""Versions that differ: within a host, and between the hosts of a ring."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from sparkd.core.checks.outcome import Outcome, Seen, judged, not_applicable, unknown
from sparkd.core.hardware import HardwareFacts, KernelFacts
from sparkd.core.model import Finding, Severity

Nodes = Mapping[str, HardwareFacts | None]


def driver_library(node: str, kernel: KernelFacts) -> Finding:
    return Finding(
        "driver-skew",
        node,
        "refuse",
        "NVIDIA driver",
        f"kernel module {kernel.module} is loaded, library {kernel.library} is installed (NVML: driver/library version "
        "mismatch)",
        "module and library of one version",
        "reboot the node; if it stays so, reinstall the driver's packages",
    )


def driver_absent(node: str, release: str) -> Finding:
    return Finding(
        "driver-skew",
        node,
        "refuse",
        "NVIDIA driver",
        "the GPU is on the bus, but no NVIDIA kernel module is loaded",
        "a loaded NVIDIA driver",
        f"see journalctl -kb | grep -i nvidia; install the driver's modules for kernel {release}, then reboot",
    )


def reboot_required(node: str, packages: tuple[str, ...]) -> Finding:
    asked = f" (for {', '.join(packages)})" if packages else ""
    return Finding(
        "driver-skew",
        node,
        "warn",
        "reboot",
        f"/run/reboot-required exists{asked}",
        "a node that runs what is installed on it",
        "reboot the node while the ring is down",
    )


def between(id_: str, severity: Severity, node: str, what: str, here: str, common: str, holders: list[str]) -> Finding:
    mend = "update the firmware (fwupdmgr upgrade)" if id_ == "firmware-skew" else f"install the same {what}"
    return Finding(
        id_,
        node,
        severity,
        what,
        here or f"no {what}",
        f"{common}, as on {', '.join(holders)}",
        f"{mend} on all nodes and reboot {node}",
    )


def check_host(seen: Seen) -> Outcome:
    kernel, pci = seen.hardware.kernel, seen.hardware.pci
    if kernel is None:
        return unknown(seen.hardware.why("kernel"))
    findings = [reboot_required(seen.node, kernel.reboot_packages)] if kernel.reboot_required else []
    if kernel.module and kernel.library and kernel.module != kernel.library:
        findings.append(driver_library(seen.node, kernel))
    if not kernel.module and pci is not None and pci.gb10:
        findings.append(driver_absent(seen.node, kernel.release))
    if not findings and not kernel.module:
        return unknown(seen.hardware.why("pci")) if pci is None else not_applicable("no NVIDIA driver here")
    doubts = ["the driver's library was not found"] if kernel.module and not kernel.library else []
    return judged(findings, f"driver {kernel.module}, kernel {kernel.release}", doubts)


def check_driver(nodes: Nodes) -> Outcome:
    """Driver and kernel of all nodes; a None is a node that was not heard."""
    modules = _told(nodes, lambda facts: None if facts.kernel is None else facts.kernel.module)
    if not any(modules.values()) and None not in modules.values():
        return not_applicable("no NVIDIA driver on any node")
    releases = _told(nodes, lambda facts: None if facts.kernel is None else facts.kernel.release)
    findings = [
        *_compare("driver-skew", "refuse", "NVIDIA driver", modules),
        *_compare("driver-skew", "warn", "kernel", releases),
    ]
    return judged(findings, f"driver {_common(modules)} and kernel {_common(releases)} on all nodes", _silent(modules))


def check_firmware(nodes: Nodes) -> Outcome:
    versions = _told(nodes, _firmware)
    if not any(versions.values()) and None not in versions.values():
        return not_applicable("no ConnectX-7 on any node")
    findings = _compare("firmware-skew", "warn", "ConnectX-7 firmware", versions)
    return judged(findings, f"firmware {_common(versions)} on all nodes", _silent(versions))


def _firmware(facts: HardwareFacts) -> str | None:
    if facts.pci is None or any(not function.firmware for function in facts.pci.functions):
        return None
    return ", ".join(sorted({function.firmware for function in facts.pci.functions}))


def _told(nodes: Nodes, read: Callable[[HardwareFacts], str | None]) -> dict[str, str | None]:
    return {name: None if facts is None else read(facts) for name, facts in nodes.items()}


def _silent(told: Mapping[str, str | None]) -> list[str]:
    names = [name for name, value in told.items() if value is None]
    return [f"{', '.join(names)} did not tell"] if names else []


def _common(told: Mapping[str, str | None]) -> str:
    """The version that most nodes have; the newest of those that are equally many."""
    counts = Counter(value for value in told.values() if value)
    return max(counts, key=lambda value: (counts[value], _numbers(value)), default="")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _compare(id_: str, severity: Severity, what: str, told: Mapping[str, str | None]) -> list[Finding]:
    common = _common(told)
    holders = [name for name, value in told.items() if value == common]
    return [
        between(id_, severity, name, what, value, common, holders)
        for name, value in told.items()
        if value is not None and value != common
    ]
