"""Memory before a start: host RAM is GPU memory on a DGX Spark, so what holds it is missing to the model."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, no_spark, unknown
from sparkd.core.hardware import MemoryFacts
from sparkd.core.model import Finding

GIB = 1024 * 1024  # in KiB
# A rank whose memory is not back leaves about 100 GiB of 121 held; a desktop and its programs, far less.
HELD_SHARE = 0.5
# Page cache beyond what MemFree shows. The engine's own reserve is about 6 GiB.
CACHE_KIB = 8 * GIB


def swap_off(node: str, subject: str, observed: str) -> Finding:
    return Finding(
        "swap-off",
        node,
        "warn",
        subject,
        observed,
        "swap, and a swappiness above 0",
        "without swap the machine wedges when memory runs out, instead of slowing down: swapon a file or partition, "
        "sysctl -w vm.swappiness=60",
    )


def memory_not_back(node: str, memory: MemoryFacts, available: int) -> Finding:
    return Finding(
        "memory-not-back",
        node,
        "refuse",
        "memory",
        f"{gib(available)} of {gib(memory.total)} available though no rank runs; processes hold "
        f"{gib(memory.anonymous + memory.shmem)}",
        f"at least {gib(int(memory.total * HELD_SHARE))} available",
        "stop what holds the memory (ps aux --sort=-rss); if no process does, the driver does: reboot the node",
    )


def page_cache_counts(node: str, memory: MemoryFacts) -> Finding:
    return Finding(
        "page-cache-counts",
        node,
        "warn",
        "page cache",
        f"{gib(hidden(memory))} of the page cache count as used to CUDA (MemFree {gib(memory.free)}, MemAvailable "
        f"{gib(memory.available)})",
        f"less than {gib(CACHE_KIB)} of page cache before a start",
        "none needed for a rank, before which sparkd-drop-caches@.service drops it; by hand, as root: sync; "
        "echo 1 > /proc/sys/vm/drop_caches",
    )


def gib(kib: int) -> str:
    return f"{kib / GIB:.1f} GiB"


def hidden(memory: MemoryFacts) -> int:
    """KiB that the kernel would give back on demand and that the driver counts as used."""
    return min(memory.available - memory.free, memory.cached - memory.shmem)


def check_swap(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    memory = seen.hardware.memory
    if memory is None:
        return unknown(seen.hardware.why("memory"))
    findings = [swap_off(seen.node, "swap", "no swap (SwapTotal 0 kB)")] if memory.swap_total == 0 else []
    if memory.swappiness == 0:
        findings.append(swap_off(seen.node, "vm.swappiness", "0"))
    doubts = ["vm.swappiness cannot be read"] if memory.swappiness is None else []
    return judged(findings, f"{gib(memory.swap_total)} of swap, swappiness {memory.swappiness}", doubts)


def check_memory_back(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    memory = seen.hardware.memory
    if memory is None:
        return unknown(seen.hardware.why("memory"))
    # The hardware is looked at seldom: a rank may have given its memory back since.
    available = memory.available if seen.available is None else seen.available
    if available >= memory.total * HELD_SHARE:
        return judged([], f"{gib(available)} of {gib(memory.total)} available")
    if seen.ranks_alive is None:
        return unknown(f"{gib(available)} available, and it is not known whether a rank is alive")
    if seen.ranks_alive:
        return judged([], f"{gib(available)} available while a rank runs")
    return judged([memory_not_back(seen.node, memory, available)], "")


def check_page_cache(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    memory = seen.hardware.memory
    if memory is None:
        return unknown(seen.hardware.why("memory"))
    told = f"{gib(max(hidden(memory), 0))} of page cache"
    if hidden(memory) < CACHE_KIB:
        return judged([], told)
    # A serving engine has sized itself already, and reads what it keeps on disk through the cache.
    if seen.ranks_alive is None:
        return unknown(f"{told}, and it is not known whether a rank is alive")
    return judged([] if seen.ranks_alive else [page_cache_counts(seen.node, memory)], f"{told} while a rank runs")
