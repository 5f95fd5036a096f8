"""The four PCI functions of the ConnectX-7: all there, all at full speed."""

from __future__ import annotations

from collections.abc import Sequence

from sparkd.core.checks.outcome import Outcome, Seen, judged, no_spark, not_applicable, unknown
from sparkd.core.hardware import PciFunction
from sparkd.core.model import Finding

HOTPLUG_MARKER = "/etc/nvidia/cx7-hotplug-enabled"
SPEED = 32.0  # GT/s, PCIe 5
WIDTH = 4
# Each cage is wired to both PCI domains (Socket Direct).
FUNCTIONS = ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1")


def functions_missing(node: str, observed: str, *, hotplug: bool | None) -> Finding:
    if hotplug is None:
        cause = f"whether {HOTPLUG_MARKER} exists (then a neighbour's reboot takes functions off) cannot be told"
    elif hotplug:
        cause = (
            f"{HOTPLUG_MARKER} exists: a neighbour's reboot takes functions off the bus. "
            "That file is your choice (it saves 17-20 W) and sparkd leaves it alone"
        )
    else:
        cause = f"{HOTPLUG_MARKER} does not exist, so it was no hot-plug: look for mlx5_core in the kernel's log"
    return Finding(
        "cx7-functions-missing",
        node,
        "refuse",
        "ConnectX-7",
        observed,
        f"4 mlx5 functions ({', '.join(FUNCTIONS)})",
        f"rescan the PCI bus (echo 1 > /sys/bus/pci/rescan), or reboot with the cables attached; {cause}",
    )


def pcie_narrow(node: str, function: PciFunction) -> Finding:
    speed = "?" if function.speed is None else f"{function.speed:g}"
    return Finding(
        "pcie-narrow",
        node,
        "warn",
        name(function),
        f"{speed} GT/s x{function.width or '?'}",
        f"{SPEED:g} GT/s x{WIDTH}",
        "update the firmware (fwupdmgr refresh, fwupdmgr upgrade), shut down and take the power off for a minute",
    )


def mark(function: PciFunction) -> str:
    """Link and firmware in one text, to be compared later: e.g. "32 GT/s x4, firmware 28.45.4028"."""
    speed = "?" if function.speed is None else f"{function.speed:g}"
    return f"{speed} GT/s x{function.width or '?'}, firmware {function.firmware or '?'}"


def changed(node: str, id_: str, function: PciFunction, before: str, now: str) -> Finding:
    what = "link" if id_ == "pcie-changed" else "firmware"
    mend = (
        "take the power off for a minute while the ring is down; measure the rails before the next start"
        if id_ == "pcie-changed"
        else "restart the ring when it may be: what was measured and started was another firmware"
    )
    return Finding(id_, node, "warn", name(function), f"{now} now", f"the {what} at the start: {before}", mend)


def name(function: PciFunction) -> str:
    device = function.netdev or function.hca
    return f"{device} ({function.address})" if device else function.address


def check_functions(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    pci = seen.hardware.pci
    if pci is None:
        return unknown(seen.hardware.why("pci"))
    idle = [function for function in pci.functions if function.driver != "mlx5_core"]
    working = len(pci.functions) - len(idle)
    if working >= len(FUNCTIONS):
        return judged([], f"{working} mlx5 functions")
    observed = f"{working} of {len(FUNCTIONS)}" + _which(pci.functions, idle)
    return judged([functions_missing(seen.node, observed, hotplug=pci.hotplug)], "")


def _which(functions: Sequence[PciFunction], idle: Sequence[PciFunction]) -> str:
    there = {function.address for function in functions}
    # Addresses of another scheme would all look missing: then only the number is told.
    absent = [address for address in FUNCTIONS if address not in there] if there <= set(FUNCTIONS) else []
    told = [f"{', '.join(absent)} not on the bus"] if absent else []
    told += [f"{function.address} without its driver mlx5_core" for function in idle]
    return f": {'; '.join(told)}" if told else ""


def pcie_fatal(node: str, function: PciFunction, observed: str) -> Finding:
    return Finding(
        "pcie-fatal",
        node,
        "refuse",
        name(function),
        observed,
        "none: after one of them the device cannot be trusted until its host has rebooted",
        "reboot the node (journalctl -k | grep -i -e aer -e mlx5 tells the errors); if they come back, take the power "
        "off for a minute, then have the machine looked at",
    )


def check_fatal(seen: Seen) -> Outcome:
    pci, broken = seen.hardware.pci, seen.hardware.broken
    functions = () if pci is None else pci.functions
    # The log may be about a function that is gone by now.
    gone = [PciFunction(address) for address in broken if address not in {f.address for f in functions}]
    findings = [
        pcie_fatal(seen.node, f, f"the kernel's log: {broken[f.address]}")
        for f in (*functions, *gone)
        if f.address in broken
    ]
    counted = [function for function in functions if function.fatal is not None]
    findings += [
        pcie_fatal(seen.node, f, f"{f.fatal} fatal PCIe errors since the boot")
        for f in counted
        if f.fatal and f.address not in broken
    ]
    if findings:
        return judged(findings, "")
    if pci is None:
        return unknown(seen.hardware.why("pci"))
    if not counted:
        return not_applicable("no ConnectX-7 function whose errors the kernel counts")
    return judged([], f"no fatal error on {len(counted)} functions")


def check_changed(seen: Seen) -> Outcome:
    """Link and firmware of each function against those with which the rank was started. One that is gone is an
    incident (sparkd.core.guard); what does not tell now is no change."""
    pci = seen.hardware.pci
    if pci is None:
        return unknown(seen.hardware.why("pci"))
    if not seen.pci_before or not seen.ranks_alive:
        return not_applicable("no rank runs that was started with ConnectX-7 functions")
    findings = []
    for function in pci.functions:
        before, now = seen.pci_before.get(function.address, ""), mark(function)
        pairs = zip(("pcie-changed", "firmware-changed"), before.split(", "), now.split(", "), strict=False)
        findings += [
            changed(seen.node, id_, function, old, new)
            for id_, old, new in pairs
            if old != new and "?" not in old and "?" not in new
        ]
    return judged(findings, f"{len(pci.functions)} functions as at the start")


def check_speed(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    pci = seen.hardware.pci
    if pci is None:
        return unknown(seen.hardware.why("pci"))
    if not pci.functions:
        return unknown("no ConnectX-7 function on the bus")
    slow = [f for f in pci.functions if (f.speed or SPEED) < SPEED or (f.width or WIDTH) < WIDTH]
    silent = [f for f in pci.functions if f not in slow and (f.speed is None or f.width is None)]
    return judged(
        [pcie_narrow(seen.node, function) for function in slow],
        f"{len(pci.functions)} functions at {SPEED:g} GT/s x{WIDTH}",
        [f"{name(function)} does not tell its link" for function in silent],
    )
