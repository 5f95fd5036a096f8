"""How long this client itself waited for a CPU: what it sees late then is no fault of the engine."""

from pathlib import Path

SCHEDSTAT = Path("/proc/thread-self/schedstat")


def waited(path: Path = SCHEDSTAT) -> float | None:
    """Seconds that the calling thread was ready to run and did not; None where the kernel does not count them.

    The second of three numbers is nanoseconds on the run queue (Documentation/scheduler/sched-stats.rst).
    """
    try:
        return int(path.read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
