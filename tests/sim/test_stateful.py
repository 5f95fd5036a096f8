"""Random histories of three hosts. What must hold after every step, in prose first:

* At no time do ranks of two epochs run.
* A rank starts only on a host whose intent wants it, at most once per host and epoch (the world itself refuses else).
* The fabric is never changed under a running rank (the world itself refuses).
* On a host that has adopted a hold nothing is started, stopped or repaired (the world itself refuses).
* An epoch, and the revision within it, on a disk never falls, unless the disk was lost.
* When faults end, the ring gets to what is wanted within a bound: ready, or held, or free.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkd.core.intent import Request
from tests.core.builders import NODES
from tests.sim.world import World

hosts = st.sampled_from(NODES)
pairs = st.sampled_from([(a, b) for a in NODES for b in NODES if a != b])
requests = st.sampled_from(["start", "start", "start", "stop", "clear", "hold", "resume", "resume"])


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.orders = dict.fromkeys(NODES, (0, 0))

    @rule(host=hosts)
    def cycle(self, host: str) -> None:
        self.world.cycle(host)

    @rule(host=hosts, after=st.integers(0, 3))
    def cycle_cut_off(self, host: str, after: int) -> None:
        self.world.cycle(host, crash_after=after)

    @rule(pair=pairs)
    def deliver(self, pair: tuple[str, str]) -> None:
        self.world.deliver(*pair)

    @rule(rounds=st.integers(1, 12))
    def run_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.round()

    @rule(request=requests)
    def ask(self, request: Request) -> None:
        self.world.ask(request)

    @rule()
    def engine(self) -> None:
        self.world.engine()

    @rule(host=hosts)
    def kill_rank(self, host: str) -> None:
        self.world.kill_rank(host)

    @rule(host=hosts, sentence=st.sampled_from(["out of memory", "bad checkpoint"]))
    def fail_rank(self, host: str, sentence: str) -> None:
        self.world.fail_rank(host, sentence)

    @rule(host=hosts)
    def crash_daemon(self, host: str) -> None:
        self.world.crash_daemon(host)

    @rule(host=hosts)
    def boot_daemon(self, host: str) -> None:
        self.world.boot_daemon(host)

    @rule(host=hosts)
    def cut_power(self, host: str) -> None:
        self.world.cut_power(host)

    @rule(host=hosts)
    def restore_power(self, host: str) -> None:
        self.world.restore_power(host)

    @rule(host=hosts)
    def lose_disk(self, host: str) -> None:
        self.world.lose_disk(host)
        self.orders[host] = (0, 0)

    @rule(pair=pairs)
    def cut_link(self, pair: tuple[str, str]) -> None:
        self.world.cut.add(frozenset(pair))

    @rule(pair=pairs)
    def restore_link(self, pair: tuple[str, str]) -> None:
        self.world.cut.discard(frozenset(pair))

    @rule(seconds=st.sampled_from([1.0, 20.0, 400.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @invariant()
    def one_epoch_runs(self) -> None:
        assert len({epoch for _, epoch in self.world.alive_epochs()}) <= 1, sorted(self.world.alive_epochs())

    @invariant()
    def orders_grow(self) -> None:
        for name, host in self.world.hosts.items():
            assert host.disk.intent.order >= self.orders[name], f"{name} went back"
            self.orders[name] = host.disk.intent.order

    def teardown(self) -> None:
        self.world.heal()
        self.world.until(self._settled, rounds=700)

    def _settled(self) -> bool:
        world = self.world
        intents = [host.disk.intent for host in world.hosts.values()]
        if len(set(intents)) > 1:
            return False
        if intents[0].paused:
            self.world.ask("resume")
            return False
        return world.free() if intents[0].want == "down" else world.ready()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40)
