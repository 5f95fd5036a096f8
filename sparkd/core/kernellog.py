"""What a line of the kernel's log means for a rank of this host.

A line of NVIDIA's driver about memory is no proof by itself: engines that came up well have left dozens of them, as
the driver tries again in another way (reported from several DGX Sparks). With little memory left it is the last that
such a machine has said before it answered to nobody.
"""

from __future__ import annotations

import re

from sparkd.core import floor
from sparkd.core.checks.memory import gib

NEAR = 3  # times the memory floor, within which a line about memory counts
_MEMORY = re.compile(r"NVRM: .*\bNV_ERR_NO_MEMORY\b")
_MLX5 = re.compile(r"mlx5_core (?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):? (?P<text>.*)")
# Firmware that has stopped, in the driver's words, or a link whose errors cannot be corrected, in the kernel's: with
# either all RDMA connections of the function end.
_FATAL = re.compile(
    r"Fatal error \d+ detected|device's health compromised|health recovery failed|handling bad device"
    r"|severity=Uncorrect(?:ed|able) \(Fatal\)"
)


def wants_memory(text: str) -> bool:
    """NVIDIA's driver could not have the memory it wanted."""
    return _MEMORY.search(text) is not None


def out_of_memory(available_kib: int, floor_kib: int) -> str:
    """Why the rank has to go after a line that `wants_memory`, as "memory-floor: sentence"; empty if it need not."""
    if available_kib >= NEAR * floor_kib:
        return ""
    left = gib(available_kib)
    return f"{floor.INCIDENT}: the driver is out of memory (NV_ERR_NO_MEMORY in the kernel's log), {left} available"


def broken_function(text: str) -> tuple[str, str] | None:
    """PCI address of a ConnectX function that is broken until its host has rebooted, and what was said; else None."""
    match = _MLX5.search(text)
    if match is None or _FATAL.search(match["text"]) is None:
        return None
    return match["address"], match["text"].strip()
