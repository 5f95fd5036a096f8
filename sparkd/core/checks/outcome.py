"""What a check looks at and what it may answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparkd.core.hardware import GidFact, HardwareFacts
from sparkd.core.model import Finding, NetworkFacts
from sparkd.core.reach import PeerPort

Verdict = Literal["pass", "fail", "unknown", "not-applicable"]


@dataclass(frozen=True)
class Seen:
    """The facts of one node. Without `network` or `ranks_alive` what depends on them is unknown, not fine.

    `ranks_alive`: whether a rank of any epoch is alive on the node. `gids_before` are the GIDs of the last start, if
    there was one. `adopt`: the operator's own network configuration is what sparkd goes by. `available`: KiB of memory,
    where that was seen later than `hardware`. `reach`: the port of each peer. `hcas`: the RDMA devices of the plan.
    `pci_before`: the functions at the last start, as in Attempt.pci.
    """

    node: str
    hardware: HardwareFacts = field(default_factory=HardwareFacts)
    network: NetworkFacts | None = None
    ranks_alive: bool | None = None
    gids_before: tuple[GidFact, ...] | None = None
    adopt: bool = False
    available: int | None = None
    reach: tuple[PeerPort, ...] | None = None
    hcas: tuple[str, ...] = ()
    pci_before: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """`why` is one clause for every verdict: what was seen, what is missing, or why the check does not apply."""

    verdict: Verdict
    why: str
    findings: tuple[Finding, ...] = ()


def passed(why: str) -> Outcome:
    return Outcome("pass", why)


def unknown(why: str) -> Outcome:
    return Outcome("unknown", why)


def not_applicable(why: str) -> Outcome:
    return Outcome("not-applicable", why)


def judged(findings: Iterable[Finding], fine: str, doubts: Iterable[str] = ()) -> Outcome:
    """Fails for any finding; otherwise any doubt makes it unknown. What is in doubt is told in either case."""
    found = tuple(findings)
    told = "; ".join(dict.fromkeys(doubts))
    if found:
        return Outcome("fail", "; ".join(f"{f.subject}: {f.observed}" for f in found) + (told and f"; {told}"), found)
    return unknown(told) if told else passed(fine)


def no_spark(seen: Seen) -> Outcome | None:
    """The answer of checks that are about a DGX Spark on a host that is none, or that does not tell; else None."""
    hardware = seen.hardware
    if hardware.spark:
        return None
    if hardware.spark is None:
        return unknown(hardware.why("pci"))
    if hardware.kernel is not None and not hardware.kernel.module:
        return not_applicable("no NVIDIA driver here")
    return not_applicable("no GB10 here: not a DGX Spark")
