"""Random histories of two, three and four hosts. What must hold after every step is in tests.sim.invariants.

In the end all faults are over, and the ring gets to what is wanted within a bound: ready, or held, or free.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkd.core.intent import Request
from tests.sim.world import ALL_NODES, World

BOUND = 700
"""Rounds of a second: the longest back-off, after which a group forms, and one more death of what was about to."""
numbers = st.integers(0, 11)  # of a host, a pair or a cable, whatever the size
requests = st.sampled_from(["start", "start", "start", "stop", "clear", "hold", "resume", "resume"])


class Histories(RuleBasedStateMachine):
    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.world = World(names=ALL_NODES[: self.size])
        self.orders = dict.fromkeys(self.world.names, (0, 0))

    def _host(self, number: int) -> str:
        return self.world.names[number % self.size]

    def _pair(self, number: int) -> tuple[str, str]:
        pairs = [(a, b) for a in self.world.names for b in self.world.names if a != b]
        return pairs[number % len(pairs)]

    # What goes its way, in whatever order.

    @rule(host=numbers)
    def cycle(self, host: int) -> None:
        self.world.cycle(self._host(host))

    @rule(host=numbers, after=st.integers(0, 3))
    def cycle_cut_off(self, host: int, after: int) -> None:
        self.world.cycle(self._host(host), crash_after=after)

    @rule(host=numbers)
    def cycle_without_signals(self, host: int) -> None:
        self.world.cycle(self._host(host), signals=False)

    @rule(pair=numbers)
    def deliver(self, pair: int) -> None:
        self.world.deliver(*self._pair(pair))

    @rule(pair=numbers)
    def send(self, pair: int) -> None:
        self.world.send(*self._pair(pair))

    @rule()
    def arrive(self) -> None:
        self.world.arrive()

    @rule(rounds=st.integers(1, 12))
    def run_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.round()

    @rule(request=requests)
    def ask(self, request: Request) -> None:
        self.world.ask(request)

    @rule(seconds=st.sampled_from([5.0, 60.0, 3600.0]))
    def drain(self, seconds: float) -> None:
        self.world.ask("stop", drain=seconds)

    @rule(requests=st.integers(1, 20))
    def work(self, requests: int) -> None:
        self.world.hosts[self.world.names[0]].work(requests)

    @rule()
    def engine(self) -> None:
        self.world.engine()

    @rule(seconds=st.sampled_from([1.0, 4.0, 20.0, 400.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    # Faults of a rank, a daemon, a host.

    @rule(host=numbers)
    def kill_rank(self, host: int) -> None:
        self.world.kill_rank(self._host(host))

    @rule(host=numbers, sentence=st.sampled_from(["out of memory", "bad checkpoint"]))
    def fail_rank(self, host: int, sentence: str) -> None:
        self.world.fail_rank(self._host(host), sentence)

    @rule(host=numbers)
    def hang_rank(self, host: int) -> None:
        self.world.hang_rank(self._host(host))

    @rule(host=numbers)
    def crash_daemon(self, host: int) -> None:
        self.world.crash_daemon(self._host(host))

    @rule(host=numbers)
    def boot_daemon(self, host: int) -> None:
        self.world.boot_daemon(self._host(host))

    @rule(host=numbers, away=st.booleans())
    def systemd(self, host: int, away: bool) -> None:
        machine = self.world.hosts[self._host(host)]
        machine.systemd_away = away and machine.powered
        machine.down_since = None

    @rule(host=numbers)
    def cut_power(self, host: int) -> None:
        self.world.cut_power(self._host(host))

    @rule(host=numbers)
    def restore_power(self, host: int) -> None:
        self.world.restore_power(self._host(host))

    @rule(host=numbers)
    def lose_disk(self, host: int) -> None:
        self.world.lose_disk(self._host(host))
        self.orders[self._host(host)] = (0, 0)

    # Faults of the networks: of management between two hosts, of a cable, of all that a host has.

    @rule(pair=numbers)
    def cut_link(self, pair: int) -> None:
        self.world.cut.add(frozenset(self._pair(pair)))

    @rule(pair=numbers)
    def restore_link(self, pair: int) -> None:
        self.world.cut.discard(frozenset(self._pair(pair)))

    @rule(host=numbers)
    def cut_management(self, host: int) -> None:
        me = self._host(host)
        self.world.cut |= {frozenset((me, other)) for other in self.world.names if other != me}

    @rule(cable=numbers)
    def pull_cable(self, cable: int) -> None:
        cables = self.world.cables()
        self.world.pulled.add(cables[cable % len(cables)])

    @rule()
    def plug_cables(self) -> None:
        self.world.pulled.clear()

    @rule(host=numbers)
    def isolate(self, host: int) -> None:
        self.cut_management(host)
        me = self._host(host)
        self.world.pulled |= {cable for cable in self.world.cables() if any(end.node == me for end in cable)}

    @rule()
    def restore_networks(self) -> None:
        self.world.pulled.clear()
        self.world.cut.clear()

    @invariant()
    def what_must_always_hold(self) -> None:
        self.world.check()

    @invariant()
    def orders_grow(self) -> None:
        for name, host in self.world.hosts.items():
            assert host.disk.intent.order >= self.orders[name], f"{name} went back"
            self.orders[name] = host.disk.intent.order

    def teardown(self) -> None:
        self.world.heal()
        self.world.until(self._settled, rounds=BOUND)

    def _settled(self) -> bool:
        world = self.world
        intents = [host.disk.intent for host in world.hosts.values()]
        if len(set(intents)) > 1:
            return False
        if intents[0].paused:
            self.world.ask("resume")
            return False
        return world.free() if intents[0].want == "down" else world.ready()


class OfTwo(Histories):
    size = 2


class OfFour(Histories):
    size = 4


def _of(machine: type[Histories], examples: float) -> Any:
    case: Any = machine.TestCase
    case.settings = settings(max_examples=max(1, int(settings().max_examples * examples)), stateful_step_count=50)
    return case


# Three is what this is for.
TestOfTwo = _of(OfTwo, 0.4)
TestOfThree = _of(Histories, 1.0)
TestOfFour = _of(OfFour, 0.4)
