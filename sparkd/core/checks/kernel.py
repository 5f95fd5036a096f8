"""Kernels on which RDMA or the machine itself fails."""

from __future__ import annotations

import re

from sparkd.core.checks.outcome import Outcome, Seen, judged, no_spark, unknown
from sparkd.core.hardware import KernelFacts, MemoryFacts
from sparkd.core.model import Finding

GOOD_KERNEL = "6.17.0-1031 or 6.17.0-1032"
GOOD_DRIVER = "580.173.02"
# Pages that one CPU has freed and not yet counted make the two differ by a little.
CMA_SLACK_KIB = 64 * 1024
_OFF = re.compile(r"0|n|f|of", re.IGNORECASE)


def kho_kernel(node: str, observed: str) -> Finding:
    return Finding(
        "kho-kernel",
        node,
        "refuse",
        "kernel",
        observed,
        "a kernel without kexec handover (KHO): its scratch memory cannot be registered for RDMA (ibv_reg_mr_iova2 "
        "fails with ENOMEM)",
        "add kho=off to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub and reboot; or boot kernel "
        f"{GOOD_KERNEL} with driver {GOOD_DRIVER}",
    )


def kernel_known_bad(node: str, release: str) -> Finding:
    return Finding(
        "kernel-known-bad",
        node,
        "refuse",
        "kernel",
        f"{release} is known to fail",
        f"kernel {GOOD_KERNEL}",
        f"install kernel {GOOD_KERNEL} with driver {GOOD_DRIVER} and reboot",
    )


def version(release: str) -> tuple[int, int] | None:
    """(6, 17) of "6.17.0-1031-nvidia"."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else None


def kho_runs(kernel: KernelFacts) -> bool | None:
    """Whether the kernel has set scratch memory aside for KHO at boot; None when its release has no version."""
    number = version(kernel.release)
    if number is None:
        return None
    if number < (7, 0):
        return False
    if kernel.kho is not None:
        # The kernel reads a switch by its first letters.
        return _OFF.match(kernel.kho) is None
    # NVIDIA's kernels start it by themselves, so one whose configuration cannot be read counts as such.
    return kernel.kho_default is not False


def check_kho(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    kernel, memory = seen.hardware.kernel, seen.hardware.memory
    observed, doubts = [], []
    if kernel is None:
        doubts.append(seen.hardware.why("kernel"))
    elif (runs := kho_runs(kernel)) is None:
        doubts.append(f"kernel release {kernel.release!r} has no version")
    elif runs:
        word = "no kho=off" if kernel.kho is None else f"kho={kernel.kho}"
        observed.append(f"kernel {kernel.release} with {word} on its command line")
    if memory is None:
        doubts.append(seen.hardware.why("memory"))
    else:
        observed += _uncounted(memory)
    findings = [kho_kernel(seen.node, "; ".join(observed))] if observed else []
    return judged(findings, f"kernel {kernel.release if kernel else '?'} without KHO", doubts)


def _uncounted(memory: MemoryFacts) -> list[str]:
    """KHO's scratch areas are of the type CMA without being counted in CmaTotal. No CMA at all is no fault."""
    total, free = memory.cma_total or 0, memory.cma_free or 0
    return [f"CmaFree {free} kB far above CmaTotal {total} kB"] if free > total + CMA_SLACK_KIB else []


def check_known_bad(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    kernel = seen.hardware.kernel
    if kernel is None:
        return unknown(seen.hardware.why("kernel"))
    bad = re.match(r"6\.17\.0-1008(?!\d)", kernel.release) is not None
    return judged([kernel_known_bad(seen.node, kernel.release)] if bad else [], f"kernel {kernel.release}")
