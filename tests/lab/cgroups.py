"""Control groups of the hosts, in every hierarchy of the machine: v1, hybrid or unified."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.lab.shell import LabError, wait_for

# A new cpuset group has neither CPUs nor memory nodes and accepts no process until it is given some.
SKIPPED = "cpuset"
DELEGATED: tuple[str, ...] = ("cpu", "io", "memory", "pids")


def hierarchies() -> tuple[Path, ...]:
    """Mount points of the cgroup hierarchies that hosts get a group of their own in."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        device, root, point = (before.split(" ")[index] for index in (2, 3, 4))
        if kind in ("cgroup", "cgroup2") and root == "/" and SKIPPED not in options.split(","):
            found.setdefault(device, Path(point))
    return tuple(found.values())


def _is_unified(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.controllers").exists()


def create(group: str) -> None:
    """Make a group ("a/b", below the root) everywhere. On the unified hierarchy, hand controllers down to it."""
    for hierarchy in hierarchies():
        path = hierarchy
        for part in Path(group).parts:
            if _is_unified(hierarchy):
                _hand_down(path)
            path /= part
            path.mkdir(exist_ok=True)


def _hand_down(path: Path) -> None:
    """Let the children of a unified group use the controllers; one that is taken by v1 is not there."""
    available = (path / "cgroup.controllers").read_text().split()
    for controller in DELEGATED:
        if controller in available:
            with contextlib.suppress(OSError):
                (path / "cgroup.subtree_control").write_text(f"+{controller}")


def enter(group: str) -> None:
    """Move the calling process into a group that exists."""
    for hierarchy in hierarchies():
        (hierarchy / group / "cgroup.procs").write_text(str(os.getpid()))


def _tree(top: Path) -> list[Path]:
    """A group and all below it, the deepest first."""
    return [Path(directory) for directory, _, _ in os.walk(top, topdown=False)] if top.is_dir() else []


def members(group: str) -> set[int]:
    """Process ids in a group and below it, in any hierarchy."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for directory in _tree(hierarchy / group):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (directory / "cgroup.procs").read_text().split())
    return found


def kill(group: str, seconds: float = 10) -> None:
    """SIGKILL everything in a group until nothing is left.

    Raises LabError if something survives `seconds`, as a process in an uninterruptible sleep does.
    """

    def empty() -> bool:
        left = members(group) - {os.getpid()}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if not wait_for(empty, seconds):
        raise LabError(f"lab: kill {group}: still alive after {seconds:.0f} s: {sorted(members(group))}")


def remove(group: str, seconds: float = 5) -> None:
    """Remove a group and those below it, killing what is in them. Raises LabError if one stays busy."""

    def gone() -> bool:
        kill(group)
        for hierarchy in hierarchies():
            for directory in _tree(hierarchy / group):
                with contextlib.suppress(OSError):
                    directory.rmdir()
        return not any((hierarchy / group).exists() for hierarchy in hierarchies())

    if not wait_for(gone, seconds):
        raise LabError(f"lab: remove cgroup {group}: it stays busy")
