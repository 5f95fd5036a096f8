"""One simulated host: its disk, its kernel's ports, its systemd, and what its daemon holds in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, FabricMemory, HelloFacts, Intent, NetworkFacts, RankUnit, Report
from sparkd.core.railfacts import MeasureUnit, RailFact
from sparkd.reconcile.trials import Trials

STOP_DEADLINE = 10.0
"""TimeoutStopSec of the rank's unit: after so many seconds systemd kills what SIGTERM did not end."""


class SystemdAway(Exception):
    """systemd does not answer."""


@dataclass
class Disk:
    intent: Intent = field(default_factory=Intent)
    attempt: Attempt | None = None
    memory: FabricMemory = field(default_factory=FabricMemory)
    boots: BootMemory = field(default_factory=BootMemory)


@dataclass
class Seen:
    """What the daemon's sources said when they were last asked. A lost signal leaves it as it was."""

    units: tuple[RankUnit, ...] | None
    network: NetworkFacts
    hello: HelloFacts


@dataclass
class Daemon:
    """What a daemon process holds in memory: gone when it crashes."""

    instance: str
    sequence: int = 0
    heard: dict[str, tuple[Report, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    own: Report | None = None
    seen: Seen | None = None
    trials: Trials = field(default_factory=Trials)


@dataclass
class Host:
    """`stopping`: since when systemd has waited for a rank to end, by epoch. `hung`: ranks that do nothing any more.

    `down_since`: when the daemon had last looked at everything, wanted no rank, and was not interrupted. `meant`: the
    devices that its unit, there `since`, is to measure. `requests` run on its rank; `draining`: it takes no more.
    """

    name: str
    network: NetworkFacts
    disk: Disk = field(default_factory=Disk)
    units: dict[int, RankUnit] = field(default_factory=dict)
    stopping: dict[int, float] = field(default_factory=dict)
    hung: set[int] = field(default_factory=set)
    boot: int = 1
    powered: bool = True
    systemd_away: bool = False
    daemon: Daemon | None = None
    down_since: float | None = None
    measuring: MeasureUnit | None = None
    meant: tuple[str, ...] = ()
    since: float = 0.0
    measured: dict[str, RailFact] = field(default_factory=dict)
    requests: int = 0
    draining: bool = False

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def alive(self) -> list[RankUnit]:
        return [unit for unit in self.units.values() if unit.alive]

    # What systemd does.

    def start_unit(self, epoch: int) -> None:
        self._answer()
        self.units[epoch] = RankUnit(epoch, "activating", "start", main_pid=1000 + epoch, text="init")
        self.requests, self.draining = 0, False

    def stop_unit(self, epoch: int, now: float) -> None:
        self._answer()
        unit = self.units.get(epoch)
        if unit is not None and unit.alive and epoch not in self.stopping:
            self.units[epoch] = replace(unit, active="deactivating", sub="stop-sigterm", job="stop")
            self.stopping[epoch] = now

    def forget_unit(self, epoch: int) -> None:
        self._answer()
        if epoch in self.units:
            assert not self.units[epoch].alive, "only a dead unit can be forgotten"
            del self.units[epoch]

    def end_stopping(self, now: float) -> None:
        """Ranks that are stopped leave, and are forgotten; those that hang are killed at the deadline."""
        for epoch, since in list(self.stopping.items()):
            if epoch not in self.hung:
                del self.units[epoch], self.stopping[epoch]
            elif now - since >= STOP_DEADLINE:
                self.end(epoch, RankUnit(epoch, "failed", "failed", result="timeout", exit_code=2, exit_status=9))

    def end(self, epoch: int, dead: RankUnit) -> None:
        self.units[epoch] = dead
        self.stopping.pop(epoch, None)
        self.hung.discard(epoch)

    def _answer(self) -> None:
        if self.systemd_away:
            raise SystemdAway

    # What a rank does.

    def go_on(self, unit: RankUnit) -> None:
        """One stage further."""
        if unit.text.startswith("init"):
            self.units[unit.epoch] = replace(unit, text="formed")
        else:
            self.requests = max(0, self.requests - 1)
            text = f"draining {self.requests}" if self.draining else "canary 1"
            self.units[unit.epoch] = replace(unit, active="active", sub="running", text=f"ready {text}")

    def tell(self, epoch: int, drain: bool) -> None:
        self._answer()
        assert self.units[epoch].active == "active", "a rank that is not ready is not asked to drain"
        self.draining = drain

    def work(self, requests: int) -> None:
        """Somebody asks for something; a rank that drains refuses."""
        if not self.draining and any(unit.active == "active" for unit in self.units.values()):
            self.requests = requests

    def exit(self, epoch: int, status: int, sentence: str) -> None:
        text = f"failed {sentence}"
        dead = RankUnit(epoch, "failed", "failed", result="exit-code", exit_code=1, exit_status=status, text=text)
        self.end(epoch, dead)

    # Faults.

    def lose_power(self, bare: NetworkFacts) -> None:
        self.powered, self.daemon, self.network, self.down_since = False, None, bare, None
        self.units, self.stopping, self.hung = {}, {}, set()
        self.systemd_away = False
        self.measuring, self.meant, self.measured = None, (), {}

    def get_power(self) -> None:
        self.powered = True
        self.boot += 1
