"""Three hosts with disks, kernels, a systemd each, daemons that crash, and a network that drops: all of it virtual.

The daemons run the real core. A step of the world is one daemon's cycle (which may be cut off after any of its
actions), one report that arrives, one fault, or time that passes; tests choose the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from ring_mesh import End
from sparkd.core import intent as intents
from sparkd.core import links, rails
from sparkd.core.actions import (
    Action,
    Adopt,
    ApplyFabric,
    ForgetRank,
    Measure,
    NoteBoot,
    Record,
    Remember,
    StartRank,
    StopMeasuring,
    StopRank,
)
from sparkd.core.boots import BootMemory
from sparkd.core.decide import Decision, decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Attempt, FabricMemory, HostFacts, Intent, NetworkFacts, PeerView, RankUnit, Report
from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts, RailPolicy
from sparkd.core.snapshot import Policy, Snapshot
from sparkd.reconcile.trials import Trials
from tests.core.builders import CABLING, CLUSTER, NODES, NOW, PLAN, applied, bare_network, hears

Answer = intents.Accepted | intents.Refused


@dataclass
class Disk:
    intent: Intent = field(default_factory=Intent)
    attempt: Attempt | None = None
    memory: FabricMemory = field(default_factory=FabricMemory)
    boots: BootMemory = field(default_factory=BootMemory)


@dataclass
class Daemon:
    """What a daemon process holds in memory: gone when it crashes."""

    instance: str
    sequence: int = 0
    heard: dict[str, tuple[Report, float]] = field(default_factory=dict)
    own: Report | None = None
    trials: Trials = field(default_factory=Trials)


@dataclass
class Host:
    name: str
    network: NetworkFacts
    disk: Disk = field(default_factory=Disk)
    units: dict[int, RankUnit] = field(default_factory=dict)
    boot: int = 1
    powered: bool = True
    daemon: Daemon | None = None
    measuring: MeasureUnit | None = None
    meant: tuple[str, ...] = ()  # the devices that its unit is to measure, and
    since: float = 0.0  # when it began
    measured: dict[str, RailFact] = field(default_factory=dict)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def alive(self) -> list[RankUnit]:
        return [unit for unit in self.units.values() if unit.alive]


class World:
    def __init__(self, policy: Policy | None = None) -> None:
        self.now = NOW
        self.policy = policy or Policy(backoff=5.0, hard_reset_window=0.0, rails=RailPolicy())
        self.gbps: dict[str, float] = dict.fromkeys(NODES, 98.0)  # what each host can do
        self.runs = 0  # of the unit that measures
        self.walled: set[str] = set()  # hosts that nobody can meet to measure
        self.hosts = {name: Host(name, bare_network(name)) for name in NODES}
        self.cabling = CABLING
        self.cut: set[frozenset[str]] = set()
        self.started: list[tuple[str, int]] = []  # (host, epoch) of each unit that systemd was asked to start
        self._instances = count(1)
        for name in NODES:
            self.boot_daemon(name)

    # One host's daemon.

    def boot_daemon(self, name: str) -> None:
        host = self.hosts[name]
        if host.powered and host.daemon is None:
            host.daemon = Daemon(f"{name}-{next(self._instances)}")

    def crash_daemon(self, name: str) -> None:
        self.hosts[name].daemon = None

    def snapshot(self, name: str) -> Snapshot:
        host = self.hosts[name]
        assert host.daemon is not None
        return Snapshot(
            now=self.now,
            node=name,
            cluster=CLUSTER,
            policy=self.policy,
            intent=host.disk.intent,
            host=HostFacts(host.boot_id),
            units=tuple(host.units.values()),
            network=host.network,
            roce=(),
            hello=hears(name, self.cabling),
            hardware=HardwareFacts() if self.policy.hard_reset_window else None,
            memory=host.disk.memory,
            boots=host.disk.boots,
            attempt=host.disk.attempt,
            rails=self._rails(host, host.daemon),
            peers=tuple(self._view(host.daemon, other) for other in NODES if other != name),
            digests={"cluster": "same"},
        )

    def _rails(self, host: Host, daemon: Daemon) -> RailFacts:
        facts = daemon.trials.seen(RailFacts(tuple(host.measured.values()), host.measuring), self.now)
        assert isinstance(facts, RailFacts)
        return facts

    def _view(self, daemon: Daemon, other: str) -> PeerView:
        if other not in daemon.heard:
            return PeerView(other)
        report, at = daemon.heard[other]
        return PeerView(other, report, self.now - at)

    def cycle(self, name: str, crash_after: int | None = None) -> Decision | None:
        """One cycle of the daemon; with `crash_after`, it dies after that many actions, before it tells anyone."""
        host = self.hosts[name]
        if host.daemon is None:
            return None
        snapshot = self.snapshot(name)
        decision = decide(snapshot)
        for number, action in enumerate(decision.actions):
            if number == crash_after:
                self.crash_daemon(name)
                return None
            self._execute(host, action)
        if crash_after is not None:
            self.crash_daemon(name)
            return None
        if not rails.wanted(snapshot):
            host.daemon.trials.again()
        self.publish(host)
        return decision

    def publish(self, host: Host) -> None:
        assert host.daemon is not None
        snapshot = self.snapshot(host.name)
        after = decide(snapshot)
        host.daemon.sequence += 1
        host.daemon.own = Report(
            node=host.name,
            instance=host.daemon.instance,
            sequence=host.daemon.sequence,
            boot_id=host.boot_id,
            version="test",
            wire=1,
            intent=host.disk.intent,
            attempt=host.disk.attempt,
            units=tuple(host.units.values()),
            ends=links.ends(snapshot.plan, host.name, host.network),
            neighbours=hears(host.name, self.cabling).neighbours,
            findings=after.findings,
            digests={"cluster": "same"},
            rails=rails.valid(snapshot),
            measuring="measuring" if host.measuring is not None else "",
        )

    def _execute(self, host: Host, action: Action) -> None:
        match action:
            case Adopt(intent):
                assert intent.order > host.disk.intent.order, "what is adopted is above what was before"
                host.disk.intent = intent
            case Remember(memory):
                host.disk.memory = memory
            case NoteBoot(boots):
                host.disk.boots = boots
            case Record(attempt):
                host.disk.attempt = attempt
            case ApplyFabric(changes):
                assert not host.disk.intent.paused, "nothing is repaired in maintenance"
                assert not host.alive(), "the fabric is never changed under a running rank"
                for change in changes:
                    host.network = applied(host.network, change)
            case Measure(epoch, devices, _):
                assert not host.alive(), "rails are never measured beside a rank"
                assert host.measuring is None
                assert host.daemon is not None
                host.daemon.trials.began()
                host.measuring, host.meant, host.since = MeasureUnit(epoch), devices, self.now
                self.runs += 1
            case StopMeasuring(epoch, _):
                assert host.measuring == MeasureUnit(epoch)
                host.measuring, host.meant = None, ()
            case StartRank(attempt, _):
                assert host.measuring is None, "no rank starts beside a measurement"
                host.disk.attempt = attempt
                self._start_unit(host, attempt.epoch)
            case StopRank(epoch, _):
                assert not host.disk.intent.paused, "nothing is stopped in maintenance"
                if epoch in host.units:
                    self._stop_unit(host, epoch)
            case ForgetRank(epoch):
                assert not host.units[epoch].alive, "only a dead unit can be forgotten"
                del host.units[epoch]

    def _start_unit(self, host: Host, epoch: int) -> None:
        assert host.disk.intent.want == "up" and not host.disk.intent.held, "a rank starts only when the ring is wanted"
        assert not host.disk.intent.paused, "nothing is started in maintenance"
        assert host.disk.intent.epoch == epoch
        assert (host.name, epoch) not in self.started, "a host starts at most one rank per epoch"
        self.started.append((host.name, epoch))
        host.units[epoch] = RankUnit(epoch, "activating", "start", main_pid=1000 + epoch, text="init")

    @staticmethod
    def _stop_unit(host: Host, epoch: int) -> None:
        if host.units[epoch].alive:
            del host.units[epoch]  # it ended well, so systemd forgets it

    # The network between daemons.

    def deliver(self, sender: str, receiver: str) -> None:
        """The last report of `sender` reaches `receiver`, if it can."""
        source, target = self.hosts[sender].daemon, self.hosts[receiver].daemon
        if source is None or target is None or source.own is None or frozenset((sender, receiver)) in self.cut:
            return
        target.heard[sender] = (source.own, self.now)

    def gossip(self) -> None:
        for sender in NODES:
            for receiver in NODES:
                if sender != receiver:
                    self.deliver(sender, receiver)

    # The engine.

    def engine(self) -> None:
        """Ranks that can reach each other get one stage further; ranks that lost a member leave with status 70. Rails
        are measured by those hosts that meet to do so."""
        self._measure()
        for host in self.hosts.values():
            for unit in host.alive():
                members = [self._member(other, unit.epoch) for other in NODES]
                if all(members):
                    host.units[unit.epoch] = self._further(unit)
                elif unit.text.startswith(("formed", "ready")):
                    self._exit(host, unit.epoch, 70, "a member was lost")

    def _measure(self) -> None:
        """A unit waits for the others, for 10 s at most; what either end wants, both measure."""
        for link in PLAN.links:
            a, b = (self.hosts[end.node] for end in link.ends)
            wanted = any(end.device in self.hosts[end.node].meant for end in link.ends)
            meet = a.measuring == b.measuring and not self.walled & {a.name, b.name}
            if a.measuring is not None and wanted and meet and frozenset((a.name, b.name)) not in self.cut:
                for end, far in (link.ends, link.ends[::-1]):
                    host = self.hosts[end.node]
                    host.measured[end.device] = self._fact(end, far, True)
                    host.meant = tuple(device for device in host.meant if device != end.device)
        for host in self.hosts.values():
            late = self.now - host.since >= 10.0
            for end in PLAN.ends_of(host.name):
                if host.measuring is not None and late and end.device in host.meant:
                    host.measured[end.device] = self._fact(end, PLAN.far_end(end), False)
            if late or not host.meant:
                host.measuring, host.meant = None, ()

    def _fact(self, end: End, far: End, met: bool) -> RailFact:
        host = self.hosts[end.node]
        link = host.network.link(end.device)
        assert link is not None
        fact = RailFact(end.device, far.node, far.device, boot_id=host.boot_id, at=self.now)
        if not met:
            return replace(fact, error=f"{far.node} did not come")
        rate = min(self.gbps[end.node], self.gbps[far.node])
        return replace(fact, gbps=rate, method="rdma", mtu_passed=True, carrier_changes=link.carrier_changes)

    def measure_all(self) -> None:
        """Every rail has been measured, as after an earlier start."""
        for link in PLAN.links:
            for end, far in (link.ends, link.ends[::-1]):
                self.hosts[end.node].measured[end.device] = self._fact(end, far, True)

    def _member(self, name: str, epoch: int) -> bool:
        host = self.hosts[name]
        return host.powered and epoch in host.units and host.units[epoch].alive

    @staticmethod
    def _further(unit: RankUnit) -> RankUnit:
        if unit.text.startswith("init"):
            return replace(unit, text="formed")
        return replace(unit, active="active", sub="running", text="ready canary 1")

    def _exit(self, host: Host, epoch: int, status: int, sentence: str) -> None:
        host.units[epoch] = RankUnit(
            epoch, "failed", "failed", result="exit-code", exit_code=1, exit_status=status, text=f"failed {sentence}"
        )

    # Faults.

    def kill_rank(self, name: str) -> None:
        for unit in self.hosts[name].alive():
            self.hosts[name].units[unit.epoch] = RankUnit(
                unit.epoch, "failed", "failed", result="signal", exit_code=2, exit_status=9, text=unit.text
            )

    def fail_rank(self, name: str, sentence: str) -> None:
        for unit in self.hosts[name].alive():
            self._exit(self.hosts[name], unit.epoch, 1, sentence)

    def cut_power(self, name: str) -> None:
        host = self.hosts[name]
        host.powered, host.daemon, host.units, host.network = False, None, {}, bare_network(name)
        host.measuring, host.meant, host.measured = None, (), {}

    def shut_down(self, name: str) -> None:
        """In order: the daemon is stopped before the power goes."""
        disk = self.hosts[name].disk
        disk.boots = replace(disk.boots, clean=True)
        self.cut_power(name)

    def restore_power(self, name: str) -> None:
        host = self.hosts[name]
        if not host.powered:
            host.powered = True
            host.boot += 1
            self.boot_daemon(name)

    def lose_disk(self, name: str) -> None:
        """The daemon is gone with it, as after a reinstallation; ranks go on."""
        self.crash_daemon(name)
        self.hosts[name].disk = Disk()
        self.started = [(host, epoch) for host, epoch in self.started if host != name]

    # Operators.

    def ask(self, request: intents.Request, reason: str = "", *, force: bool = False) -> Answer | None:
        conductor = self.hosts[NODES[0]]
        if conductor.daemon is None:
            return None
        answer = intents.accept(self.snapshot(conductor.name), request, "operator", reason, force=force)
        if isinstance(answer, intents.Accepted) and answer.new:
            conductor.disk.intent = answer.intent
            self.publish(conductor)
        return answer

    # Running on.

    def round(self, seconds: float = 1.0) -> None:
        """Everything happens once: reports, cycles, reports, the engine, time."""
        self.gossip()
        for name in NODES:
            self.cycle(name)
        self.gossip()
        self.engine()
        self.now += seconds

    def until(self, reached: Callable[[], bool], rounds: int = 60) -> int:
        """Rounds it took. Raises AssertionError when `rounds` were not enough."""
        for number in range(rounds):
            if reached():
                return number
            self.round()
        assert reached(), f"not reached within {rounds} rounds: {self.phases()}"
        return rounds

    def heal(self) -> None:
        self.cut.clear()
        for name in NODES:
            self.restore_power(name)
            self.boot_daemon(name)

    def phases(self) -> dict[str, str]:
        return {name: decide(self.snapshot(name)).summary for name in NODES if self.hosts[name].daemon is not None}

    def ready(self) -> bool:
        return all(
            host.daemon is not None and decide(self.snapshot(name)).phase == "ready"
            for name, host in self.hosts.items()
        )

    def free(self) -> bool:
        return not any(host.alive() for host in self.hosts.values())

    def alive_epochs(self) -> Iterator[tuple[str, int]]:
        for host in self.hosts.values():
            for unit in host.alive():
                yield host.name, unit.epoch
