"""How often the kernel has killed for memory in the launcher's own control group."""

from pathlib import Path

PROC_SELF = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


def oom_kills(self_cgroup: Path = PROC_SELF, root: Path = CGROUPS) -> int | None:
    """``oom_kill`` of ``memory.events`` (or of ``memory.oom_control`` with cgroup v1); None where it is not told."""
    try:
        lines = self_cgroup.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if "memory" in controllers.split(","):
            files = [root / "memory" / relative / "memory.oom_control"]
        elif not controllers:
            files = [root / relative / "memory.events", root / "unified" / relative / "memory.events"]
        else:
            continue
        for file in files:
            if (found := _counter(file)) is not None:
                return found
    return None


def _counter(file: Path) -> int | None:
    try:
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
