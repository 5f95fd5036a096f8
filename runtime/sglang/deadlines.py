"""When a start is given up: deadlines that count from the last progress, and one that counts from the start. Pure."""

from dataclasses import dataclass

from runtime.exits import ExitCode, RankFailure
from runtime.notify import Stage
from runtime.sglang.config import Limits

# Less is what threads do that only wait, or a helper that looks at a clock.
BYTES_MIN = 65536
CPU_SHARE_MIN = 0.05


@dataclass(frozen=True)
class Work:
    """What the engine's processes have done so far: bytes read, and seconds of CPU."""

    read_bytes: int
    cpu_seconds: float


class Deadlines:
    """``now`` is seconds of a monotonic clock throughout.

    While the group forms, only lines of the log and connections of peers count: NCCL waits for a peer by spinning.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._started = now
        self._progress = now
        self._stage = Stage.INIT
        self._sampled = now
        self._work = Work(0, 0.0)

    @property
    def last_progress(self) -> float:
        return self._progress

    def said(self, now: float) -> None:
        """The engine logged a line, or a peer connected."""
        self._progress = now

    def entered(self, stage: Stage, now: float) -> None:
        self._stage = stage
        self._progress = now

    def worked(self, work: Work, now: float) -> None:
        """A sample of what the engine's processes have done; a process that ended takes its share away again."""
        read = work.read_bytes - self._work.read_bytes
        cpu = work.cpu_seconds - self._work.cpu_seconds
        passed = now - self._sampled
        self._work, self._sampled = work, now
        if self._stage is not Stage.RENDEZVOUS and (read >= BYTES_MIN or (cpu > 0 and cpu >= CPU_SHARE_MIN * passed)):
            self._progress = now

    def expired(self, now: float) -> RankFailure | None:
        """The deadline that has passed; None while none has."""
        silent = now - self._progress
        if self._stage is Stage.RENDEZVOUS and silent >= self._limits.init_stuck_seconds:
            return RankFailure(
                ExitCode.INIT_STUCK,
                f"rendezvous: the group has not formed and the engine said nothing for {silent:.0f} s",
            )
        if silent >= self._limits.stall_seconds:
            return RankFailure(
                ExitCode.LOAD_STALLED,
                f"{self._stage}: for {silent:.0f} s the engine logged nothing, read nothing and used no CPU",
            )
        if now - self._started >= self._limits.load_cap_seconds:
            return RankFailure(
                ExitCode.LOAD_STALLED, f"{self._stage}: not ready within {self._limits.load_cap_seconds:.0f} s"
            )
        return None
