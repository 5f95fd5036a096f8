"""The catalogue of what a measurement of the rails can show, continued from sparkd.core.findings."""

from __future__ import annotations

from collections.abc import Sequence

from sparkd.core.model import Finding

_AGAIN = "to measure again without a reboot, sparkctl fabric measure"


def rail_degraded(
    node: str, device: str, far_node: str, far_device: str, gbps: float, method: str, limit: float
) -> Finding:
    return Finding(
        "rail-degraded-13g",
        node,
        "refuse",
        device,
        f"the rail to {far_node} ({far_device}) has {gbps:.3g} Gb/s ({method})",
        f"at least {limit:g} Gb/s",
        f"reboot all nodes with cables attached; if still slow, unplug AC for a minute ({_AGAIN} on {node})",
    )


def node_slow(node: str, rates: Sequence[tuple[str, float]], others: float) -> Finding:
    told = ", ".join(f"{device} {gbps:.3g}" for device, gbps in rates)
    return Finding(
        "node-slow",
        node,
        "refuse",
        "all its rails",
        f"{told} Gb/s, while those between the other nodes have {others:.3g} Gb/s",
        "the rate of the others",
        f"reboot {node} with its cables attached; if still slow, shut it down and unplug its AC for a minute "
        f"({_AGAIN} on {node})",
    )


def mtu_blocked(node: str, device: str, far_node: str, far_device: str) -> Finding:
    return Finding(
        "mtu-wrong",
        node,
        "refuse",
        device,
        f"packets of 8972 bytes do not pass to {far_node} ({far_device}), small ones do, and both ends have MTU 9000",
        "MTU 9000 all the way",
        f"take whatever is between the two ports out of the cable, then sparkctl fabric measure on {node}; if there is "
        f"nothing, update the firmware of both ports and reboot {node} and {far_node}",
    )
