"""The checks behind `sparkctl doctor` that look at the host itself: pure functions from facts to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparkd.core.checks import (
    engine,
    firewall,
    gids,
    kernel,
    memory,
    network_owners,
    pci,
    rank,
    skew,
    supervisors,
    traffic,
)
from sparkd.core.checks.outcome import Outcome, Seen, Verdict
from sparkd.core.model import Finding, Severity


@dataclass(frozen=True)
class CheckResult:
    """One per check and node; `node` is "" for what compares nodes. Only a "fail" has findings."""

    id: str
    node: str
    verdict: Verdict
    why: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Check:
    """A check of one node's facts. `regime`: what its worst finding does to a start."""

    id: str
    about: str
    regime: Severity
    judge: Callable[[Seen], Outcome]


@dataclass(frozen=True)
class Comparison:
    """A check of all nodes' facts together."""

    id: str
    about: str
    regime: Severity
    judge: Callable[[skew.Nodes], Outcome]


CHECKS = (
    Check("cx7-functions-missing", "all four ConnectX-7 functions are on the bus", "refuse", pci.check_functions),
    Check("pcie-narrow", "each ConnectX-7 function has 32 GT/s x4", "warn", pci.check_speed),
    Check("gid-missing", "each RDMA device has a RoCE v2 GID of its IPv4 address", "refuse", gids.check_missing),
    Check("gid-moved", "GIDs are where they were at the last start", "warn", gids.check_moved),
    Check("dhcp-on-fabric", "nothing asks for DHCP on a fabric port", "warn", network_owners.check_dhcp),
    Check("profile-on-fabric", "nothing else configures a fabric port", "warn", network_owners.check_profiles),
    Check("kho-kernel", "the kernel keeps no memory back that RDMA cannot register", "refuse", kernel.check_kho),
    Check("kernel-known-bad", "the kernel is none of those known to fail", "refuse", kernel.check_known_bad),
    Check("driver-skew", "loaded and installed NVIDIA driver agree, no reboot is due", "refuse", skew.check_host),
    Check("memory-not-back", "memory is free while no rank runs", "refuse", memory.check_memory_back),
    Check("page-cache-counts", "the page cache leaves the GPU its memory", "warn", memory.check_page_cache),
    Check("swap-off", "there is swap, and the kernel may use it", "warn", memory.check_swap),
    Check("memlock-low", "ranks may lock all memory", "refuse", rank.check_memlock),
    Check("nccl-conf-residue", "no nccl.conf sets what freezes NCCL", "warn", rank.check_nccl_conf),
    Check("second-supervisor", "nobody else runs an engine or holds the ring's ports", "refuse", supervisors.check),
    Check("firewall-blocks", "every TCP port of every peer can be reached", "refuse", firewall.check),
    Check("pcie-fatal", "no ConnectX-7 function has reported a fatal error", "refuse", pci.check_fatal),
    Check("pcie-changed", "link and firmware of the functions are those of the start", "warn", pci.check_changed),
    Check("rail-idle", "every rail of a serving ring carries traffic", "warn", traffic.check),
    Check("profile-bad", "the engine's profile and the site's overrides can be used", "refuse", engine.check_profile),
    Check("engine-missing", "the engine is installed", "refuse", engine.check_missing),
    Check("engine-version", "its version is the profile's, or one that is allowed", "refuse", engine.check_version),
    Check("engine-options", "it has the options and variables of the profile", "refuse", engine.check_options),
)

COMPARISONS = (
    Comparison("driver-skew", "all nodes have one NVIDIA driver and one kernel", "refuse", skew.check_driver),
    Comparison("firmware-skew", "all nodes have one ConnectX-7 firmware", "warn", skew.check_firmware),
)


def run(seen: Seen) -> tuple[CheckResult, ...]:
    """Every check of CHECKS on one node, in their order."""
    return tuple(_result(check.id, seen.node, check.judge(seen)) for check in CHECKS)


def compare(nodes: skew.Nodes) -> tuple[CheckResult, ...]:
    """Every check of COMPARISONS; a node whose facts are not known is None, never left out."""
    return tuple(_result(check.id, "", check.judge(nodes)) for check in COMPARISONS)


def findings(results: Iterable[CheckResult]) -> tuple[Finding, ...]:
    return tuple(finding for result in results for finding in result.findings)


def _result(id_: str, node: str, outcome: Outcome) -> CheckResult:
    return CheckResult(id_, node, outcome.verdict, outcome.why, outcome.findings)


__all__ = [
    "CHECKS",
    "COMPARISONS",
    "Check",
    "CheckResult",
    "Comparison",
    "Outcome",
    "Seen",
    "Verdict",
    "compare",
    "findings",
    "run",
]
