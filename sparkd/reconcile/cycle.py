"""The cycle: observe, decide, execute, publish. Events wake it; a slow tick is the safety net."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from ring_mesh import Cluster
from sparkd.core import news
from sparkd.core.actions import Adopt, ApplyFabric, Measure, Remember, StartRank, StopMeasuring, StopRank, TellRank
from sparkd.core.decide import Decision, decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import PeerView, Report
from sparkd.core.rails import wanted
from sparkd.core.reach import ReachFact
from sparkd.core.snapshot import Policy, Snapshot
from sparkd.ports import Clock, DoorError, Notifier, Peers, Reach
from sparkd.reconcile import status
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.executor import Executor, State
from sparkd.reconcile.history import History
from sparkd.reconcile.incidents import Incidents
from sparkd.reconcile.journals import Journals
from sparkd.reconcile.observer import Observer
from sparkd.reconcile.samples import Samples
from sparkd.reconcile.tally import Tally, Timings
from sparkd.reconcile.trials import Trials

# A cycle that acted is followed by another at once, so that the next step needs no tick. This many in a row are
# enough for a whole start; more would mean that actions have no effect.
_CHAIN = 8


@dataclass(frozen=True)
class Site:
    """What does not change while the daemon runs. `tick`: seconds between safety-net cycles."""

    node: str
    cluster: Cluster
    policy: Policy
    digests: dict[str, str]
    identity: status.Identity
    tick: float


class Cycle:
    """What a daemon does; what it is asked is in sparkd.reconcile.loop."""

    def __init__(
        self,
        site: Site,
        state: State,
        *,
        observer: Observer,
        executor: Executor,
        peers: Peers,
        clock: Clock,
        notifier: Notifier,
        events: EventLog,
        reach: Reach | None = None,
        incidents: Incidents,
        engine: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`engine`: those of the digests that may change while the daemon runs."""
        self.site = site
        self._engine = engine
        self.state = state
        self.events = events
        self._incidents = incidents
        self._observer = observer
        self._executor = executor
        self._peers = peers
        self._clock = clock
        self._notifier = notifier
        self._reach = reach
        self._examine: Callable[[], Awaitable[None]] = _nothing
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._last: tuple[Snapshot, Decision] | None = None
        self._history = History()
        self._published: Report | None = None
        self.journals: Journals | None = None
        self.notice = ""
        self._sequence = 0
        self.hardware: HardwareFacts | None = None
        self._failure = ""
        self._over: dict[tuple[str, int], float] = {}
        self._befell: dict[int, str] = {}
        self._followers: list[Callable[[Snapshot], None]] = []
        self._trials = Trials()
        self.scrape: Callable[[], Awaitable[str]] | None = None
        """What the engine's /metrics says; raises DoorError. None where this host has no such engine."""
        self.cycles = 0
        self.timings = Timings()
        self.tally = Tally()
        self.samples = Samples()

    def wake(self, source: str) -> None:
        self._observer.stale(source)
        self._news.set()

    def befell(self, epoch: int, sentence: str) -> None:
        """What has befallen this host's rank of that epoch, which is being killed for it."""
        self._befell = {epoch: sentence}
        self.wake("units")

    def follow(self, told: Callable[[Snapshot], None]) -> None:
        """`told` is called with what each cycle has seen."""
        self._followers.append(told)

    def unfollow(self, told: Callable[[Snapshot], None]) -> None:
        self._followers.remove(told)

    async def run(self) -> None:
        """Cycles until cancelled."""
        time = asyncio.get_running_loop().time
        tick = time() + self.site.tick
        while True:
            self._news.clear()
            after = await self.cycle()
            if after is not None:
                self._observer.stale("host")  # what is waited for may be memory, which tells nobody when it is back
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(tick if after is None else min(tick, time() + after)):
                    await self._news.wait()
            # Also when there was news all the time: what one source has to tell says nothing of the others.
            if time() >= tick:
                self._observer.all_stale()
                tick = time() + self.site.tick

    async def cycle(self) -> float | None:
        """One finished cycle, which alone feeds the watchdog. Returns seconds after which another is worth it."""
        began = self._clock.monotonic()
        async with self._turn:
            decision = await self._settle()
        self._notifier.alive()
        self.cycles += 1
        self.timings.add(self._clock.monotonic() - began)
        return decision.after

    async def _settle(self) -> Decision:
        left = _CHAIN
        while True:
            await self._observer.refresh()
            snapshot = self._snapshot()
            decision = decide(snapshot)
            self.events.at(decision.intent, decision.phase)
            self._warn_peers(snapshot, decision)
            await self._incidents.before(snapshot, decision)
            acted = await self._execute(decision)
            if self._trials.in_vain and not wanted(snapshot):
                self._trials.again()
            left -= 1
            # Each report costs every host a request. What a step of a start has changed is seen in a moment.
            hurried = acted and left > 0 and not _moves_peers(snapshot, decision)
            self._publish(snapshot, decision, tell_peers=not hurried)
            self._incidents.consider(snapshot, decision)
            if not acted or left == 0:
                return decision

    async def _execute(self, decision: Decision) -> bool:
        """True if anything was done, and all of it worked. After a failure nothing more is done but stopping ranks:
        a full disk must not keep one alive."""
        failed = False
        self._failure = ""
        for action in decision.actions:
            if failed and not isinstance(action, StopRank | StopMeasuring):
                continue
            if isinstance(action, Measure):
                self._trials.began()
            try:
                self._observer.stale(await self._executor.do(action))
            except DoorError as error:
                if isinstance(action, Measure):
                    self._trials.failed(self._clock.monotonic())
                self.events.failed(str(error))
                self._observer.all_stale()
                self._failure = self._failure or str(error)
                failed = True
        if failed:
            return False
        self.events.worked()
        return bool(decision.actions)

    def _reached(self) -> tuple[ReachFact, ...]:
        return self._reach.facts() if self._reach is not None else ()

    def _ages(self, views: tuple[PeerView, ...]) -> dict[str, float]:
        """How long ago, by this clock, each attempt of the current epoch was first seen to be over."""
        reported = {view.name: view.report.attempt for view in views if view.report is not None}
        attempts = {self.site.node: self.state.attempt, **reported}
        over = {(node, a.epoch) for node, a in attempts.items() if a is not None and a.over}
        now = self._clock.monotonic()
        self._over = {key: self._over.get(key, now) for key in over}
        epoch = self.state.intent.epoch
        return {node: now - since for (node, of), since in self._over.items() if of == epoch}

    def _snapshot(self) -> Snapshot:
        o = self._observer
        views = self._peers.views()
        return Snapshot(
            now=self._clock.now(),
            node=self.site.node,
            cluster=self.site.cluster,
            policy=self.site.policy,
            intent=self.state.intent,
            host=o.host,
            units=o.units,
            network=o.network,
            roce=o.roce,
            hello=o.hello,
            hardware=self.hardware,
            memory=self.state.memory,
            boots=self.state.boots,
            attempt=self.state.attempt,
            rails=self._trials.seen(o.rails, self._clock.monotonic()),
            peers=views,
            digests={**self.site.digests, **self._engine()},
            ages=self._ages(views),
            befell=self._befell,
            reach=self._reached(),
        )

    def _warn_peers(self, snapshot: Snapshot, decision: Decision) -> None:
        """A rank's end is told before it is saved: the others have to stop, and whoever looks again sees it again."""
        told, seen = self.state.attempt, decision.attempt
        if seen is not None and seen.over and (told is None or not told.over or told.epoch != seen.epoch):
            self._tell_peers(snapshot, replace(decision, intent=self.state.intent))

    def _publish(self, snapshot: Snapshot, decision: Decision, *, tell_peers: bool = True) -> None:
        """Tell what holds now: what is saved, not what was decided, in case an action failed."""
        held = self._told(replace(decision, intent=self.state.intent, attempt=self.state.attempt))
        self._last = snapshot, held
        self._history.see(held)
        self.tally.see(held.intent)
        self.samples.see(snapshot, held, self._clock.monotonic())
        for told in self._followers:
            told(snapshot)
        self.events.findings(held.findings)
        self.events.summary(held)
        self._notifier.status(f"{held.summary}; {self.notice}" if self.notice else held.summary)
        if tell_peers or self._published is None:
            self._tell_peers(snapshot, held)

    def _tell_peers(self, snapshot: Snapshot, decision: Decision) -> None:
        fresh = status.report(snapshot, decision, self.site.identity, self._sequence + 1)
        told, self._published = self._published, fresh
        self._sequence += 1
        if told is None or news.of(fresh) != news.of(told):
            self._peers.publish(fresh)

    def _told(self, decision: Decision) -> Decision:
        """With what failed first: until that works, the decision is not what happens."""
        if not self._failure:
            return decision
        summary = f"{self._failure}; until then: {decision.summary}"
        return replace(decision, summary=summary, waits=(self._failure, *decision.waits))


def _moves_peers(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether peers have something to do because of these actions: stop, or adopt what the conductor has issued."""
    steps = (Remember, ApplyFabric, Measure, StartRank, TellRank, *(() if snapshot.conductor else (Adopt,)))
    return not all(isinstance(action, steps) for action in decision.actions)


async def _nothing() -> None:
    """Of a loop beside which nobody examines the host."""
