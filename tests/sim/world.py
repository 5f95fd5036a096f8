"""Two to four hosts with daemons that crash, on two networks that drop: all of it virtual.

The daemons run the real core. A step of the world is one daemon's cycle (which may be cut off after any of its
actions, or look at what it saw before because a signal was lost), one report that arrives, at once or late, one fault,
or time that passes; tests choose the order. After every step what must always hold is checked (tests.sim.invariants).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from ring_mesh import by_order, plan
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
    TellRank,
)
from sparkd.core.decide import Decision, decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import HelloFacts, HostFacts, Intent, NetworkFacts, PeerView, RankUnit, Report, Unknown
from sparkd.core.railfacts import RailPolicy
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import NODES, NOW, applied, bare_network, cluster_of
from tests.sim import invariants
from tests.sim.machine import Daemon, Disk, Host, Seen, SystemdAway
from tests.sim.measuring import Measuring
from tests.sim.networks import Cable, Networks

ALL_NODES = (*NODES, "spark4")
Answer = intents.Accepted | intents.Refused


class World(Networks):
    def __init__(self, policy: Policy | None = None, names: Sequence[str] = NODES) -> None:
        self.now = NOW
        self.policy = policy or Policy(backoff=5.0, hard_reset_window=0.0, rails=RailPolicy())
        self.names = tuple(names)
        self.cluster = cluster_of(names)
        self.hosts = {name: Host(name, bare_network(name, self.cluster)) for name in names}
        self.cabling = by_order(names)
        self.rails = Measuring(self.hosts, plan(self.cluster))
        self.cut: set[frozenset[str]] = set()  # pairs of hosts without management network between them
        self.pulled: set[Cable] = set()
        self.late: list[tuple[str, Report, float]] = []  # (receiver, report, sent at): under way
        self.started: list[tuple[str, int]] = []  # (host, epoch) of each unit that systemd was asked to start
        self.issued: dict[tuple[int, int], Intent] = {}  # every order that anybody may still know of
        self._instances = count(1)
        for name in names:
            self.boot_daemon(name)

    # One host's daemon.

    def boot_daemon(self, name: str) -> None:
        host = self.hosts[name]
        if host.powered and host.daemon is None:
            host.daemon = Daemon(f"{name}-{next(self._instances)}")

    def crash_daemon(self, name: str) -> None:
        self.hosts[name].daemon = None
        self.hosts[name].down_since = None

    def look(self, name: str) -> Seen:
        """What the sources of a daemon would say now."""
        host = self.hosts[name]
        units = None if host.systemd_away else tuple(host.units.values())
        return Seen(units, self._lit(host), self._hello(host))

    def snapshot(self, name: str, seen: Seen | None = None) -> Snapshot:
        host = self.hosts[name]
        assert host.daemon is not None
        seen = seen or self.look(name)
        return Snapshot(
            now=self.now,
            node=name,
            cluster=self.cluster,
            policy=self.policy,
            intent=host.disk.intent,
            host=HostFacts(host.boot_id),
            units=Unknown("systemd does not answer") if seen.units is None else seen.units,
            network=seen.network,
            roce=(),
            hello=seen.hello,
            hardware=HardwareFacts() if self.policy.hard_reset_window else None,
            memory=host.disk.memory,
            boots=host.disk.boots,
            attempt=host.disk.attempt,
            rails=self.rails.facts(host, host.daemon, self.now),
            peers=tuple(self._view(host.daemon, other) for other in self.names if other != name),
            digests={"cluster": "same"},
        )

    def _view(self, daemon: Daemon, other: str) -> PeerView:
        error = daemon.errors.get(other, "")
        if other not in daemon.heard:
            return PeerView(other, error=error)
        report, at = daemon.heard[other]
        return PeerView(other, report, self.now - at, error)

    def cycle(self, name: str, crash_after: int | None = None, *, signals: bool = True) -> Decision | None:
        """One cycle of the daemon; with `crash_after`, it dies after that many actions, before it tells anyone.

        Without `signals` nobody told it to look again: it goes by what it saw last.
        """
        host = self.hosts[name]
        daemon = host.daemon
        if daemon is None:
            return None
        if signals or daemon.seen is None:
            daemon.seen = self.look(name)
        snapshot = self.snapshot(name, daemon.seen)
        decision = decide(snapshot)
        invariants.of_a_decision(snapshot, decision)
        failed = False
        for number, action in enumerate(decision.actions):
            if number == crash_after:
                break
            failed = self._try(host, daemon.seen, action, failed)
        if crash_after is not None:
            self.crash_daemon(name)
            return None
        if not rails.wanted(snapshot):
            daemon.trials.again()
        looked = signals and not failed and not host.systemd_away
        if decision.intent.want == "up" or decision.intent.epoch == 0 or decision.intent.paused:
            host.down_since = None
        elif looked and host.down_since is None:
            host.down_since = self.now
        self.publish(host, daemon.seen)
        self.check()
        return decision

    def _try(self, host: Host, seen: Seen, action: Action, failed: bool) -> bool:
        """As the daemon's loop does it: after a failure only ranks are stopped. Returns whether anything failed."""
        if failed and not isinstance(action, StopRank):
            return True
        try:
            self._execute(host, action)
        except SystemdAway:
            return True
        # A daemon looks again at what it has changed itself.
        after = self.look(host.name)
        if isinstance(action, StartRank | StopRank | ForgetRank):
            seen.units = after.units
        if isinstance(action, ApplyFabric):
            seen.network = after.network
        return failed

    def publish(self, host: Host, seen: Seen | None = None) -> None:
        assert host.daemon is not None
        s = self.snapshot(host.name, seen)
        assert isinstance(s.network, NetworkFacts) and isinstance(s.hello, HelloFacts)
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
            units=None if isinstance(s.units, Unknown) else s.units,
            unknown=(s.units.why,) if isinstance(s.units, Unknown) else (),
            ends=links.ends(s.plan, host.name, s.network),
            neighbours=s.hello.neighbours,
            findings=decide(s).findings,
            digests={"cluster": "same"},
            rails=rails.valid(s),
            measuring="measuring" if host.measuring is not None else "",
        )

    def _execute(self, host: Host, action: Action) -> None:
        match action:
            case Adopt(intent):
                assert intent.order > host.disk.intent.order, "what is adopted is above what was before"
                self._issue(intent)
                host.disk.intent = intent
            case Remember(memory):
                host.disk.memory = memory
            case NoteBoot(boots):
                host.disk.boots = boots
            case Record(attempt):
                host.disk.attempt = attempt
            case Measure():
                self.rails.start(host, action, self.now)
            case StopMeasuring():
                self.rails.stop(host, action)
            case ApplyFabric(changes):
                assert not host.disk.intent.paused, "nothing is repaired in maintenance"
                assert not host.alive(), "the fabric is never changed under a running rank"
                for change in changes:
                    host.network = applied(host.network, change)
            case StartRank(attempt, _):
                assert host.measuring is None, "no rank starts beside a measurement"
                host.disk.attempt = attempt
                self._start_unit(host, attempt.epoch)
            case StopRank(epoch, _):
                assert not host.disk.intent.paused, "nothing is stopped in maintenance"
                host.stop_unit(epoch, self.now)
            case TellRank(epoch, drain):
                assert not host.disk.intent.paused, "no rank is told anything in maintenance"
                assert host.name == self.names[0], "only rank 0 takes requests"
                host.tell(epoch, drain)
            case ForgetRank(epoch):
                host.forget_unit(epoch)

    def _start_unit(self, host: Host, epoch: int) -> None:
        assert host.disk.intent.want == "up" and not host.disk.intent.held, "a rank starts only when the ring is wanted"
        assert not host.disk.intent.paused, "nothing is started in maintenance"
        assert host.disk.intent.epoch == epoch
        assert (host.name, epoch) not in self.started, "a host starts at most one rank per epoch"
        host.start_unit(epoch)
        self.started.append((host.name, epoch))

    def _issue(self, intent: Intent) -> None:
        invariants.an_epoch_is_one_order(self.issued, intent)
        self.issued[intent.order] = intent
        invariants.held_stays_held(self.issued)
        invariants.a_drain_ends_in_a_stop(self.issued)

    def check(self) -> None:
        invariants.of_the_world(self.hosts.values(), self.now)

    # The engine.

    def engine(self) -> None:
        """Ranks that can reach each other get one stage further; ranks that lost a member leave with status 70. Rails
        are measured by those hosts that meet to do so."""
        self.rails.go_on(self.now, self.cut)
        for host in self.hosts.values():
            for unit in host.alive():
                if unit.epoch in host.hung or unit.epoch in host.stopping:
                    continue
                members = [self._member(other, unit.epoch) for other in self.names]
                if all(members) and not self.pulled and not self.cut:
                    host.go_on(unit)
                elif unit.text.startswith(("formed", "ready")) and not (all(members) and not self.pulled):
                    host.exit(unit.epoch, 70, "a member was lost")
        for host in self.hosts.values():
            host.end_stopping(self.now)
        self.check()

    def _member(self, name: str, epoch: int) -> bool:
        host = self.hosts[name]
        return host.powered and epoch in host.units and host.units[epoch].alive and epoch not in host.hung

    # Faults.

    def kill_rank(self, name: str) -> None:
        for unit in self.hosts[name].alive():
            dead = RankUnit(unit.epoch, "failed", "failed", result="signal", exit_code=2, exit_status=9, text=unit.text)
            self.hosts[name].end(unit.epoch, dead)

    def fail_rank(self, name: str, sentence: str) -> None:
        for unit in self.hosts[name].alive():
            self.hosts[name].exit(unit.epoch, 1, sentence)

    def hang_rank(self, name: str) -> None:
        self.hosts[name].hung |= {unit.epoch for unit in self.hosts[name].alive()}

    def cut_power(self, name: str) -> None:
        self.hosts[name].lose_power(bare_network(name, self.cluster))

    def shut_down(self, name: str) -> None:
        """In order: the daemon is stopped before the power goes."""
        disk = self.hosts[name].disk
        disk.boots = replace(disk.boots, clean=True)
        self.cut_power(name)

    def restore_power(self, name: str) -> None:
        if not self.hosts[name].powered:
            self.hosts[name].get_power()
            self.boot_daemon(name)

    def lose_disk(self, name: str) -> None:
        """The daemon is gone with it, as after a reinstallation; ranks go on."""
        self.crash_daemon(name)
        self.hosts[name].disk = Disk()
        self.started = [(host, epoch) for host, epoch in self.started if host != name]
        # What nobody else has heard of is gone for good, and its number may be given again.
        known = max((intent.order for intent in self._known()), default=(0, 0))
        self.issued = {order: intent for order, intent in self.issued.items() if order <= known}

    def _known(self) -> Iterator[Intent]:
        yield from (report.intent for _, report, _ in self.late)
        for host in self.hosts.values():
            yield host.disk.intent
            if host.daemon is not None:
                yield from (report.intent for report, _ in host.daemon.heard.values())

    # Operators.

    def ask(
        self, request: intents.Request, reason: str = "", *, force: bool = False, drain: float = 0.0
    ) -> Answer | None:
        conductor = self.hosts[self.names[0]]
        if conductor.daemon is None:
            return None
        answer = intents.accept(self.snapshot(conductor.name), request, "operator", reason, force=force, drain=drain)
        if isinstance(answer, intents.Accepted) and answer.new:
            self._issue(answer.intent)
            conductor.disk.intent = answer.intent
            conductor.down_since = None
            self.publish(conductor)
        return answer

    # Running on.

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for host in self.hosts.values():
            host.end_stopping(self.now)
        self.check()

    def round(self, seconds: float = 1.0) -> None:
        """Everything happens once: reports, cycles, reports, the engine, time."""
        self.gossip()
        for name in self.names:
            self.cycle(name)
        self.gossip()
        self.engine()
        self.wait(seconds)

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
        self.pulled.clear()
        for name in self.names:
            self.hosts[name].systemd_away = False
            self.restore_power(name)
            self.boot_daemon(name)

    def phases(self) -> dict[str, str]:
        return {name: decide(self.snapshot(name)).summary for name in self.names if self.hosts[name].daemon is not None}

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
