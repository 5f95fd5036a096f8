"""The cycle: observe, decide, execute, publish. Events wake it; a slow tick is the safety net."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ring_mesh import Cluster, plan_as_json
from sparkd import wire
from sparkd.core import intent as intents
from sparkd.core.actions import Adopt, ApplyFabric, Remember, StartRank, StopRank
from sparkd.core.cabling import plan_of
from sparkd.core.decide import Decision, decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Finding, PeerView, Report, Unknown
from sparkd.core.reach import ReachFact
from sparkd.core.snapshot import Policy, Snapshot
from sparkd.ports import Clock, DoorError, Notifier, Peers, Reach
from sparkd.reconcile import status
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.executor import Executor, State
from sparkd.reconcile.observer import Observer

# A cycle that acted is followed by another at once, so that the next step needs no tick. This many in a row are
# enough for a whole start; more would mean that actions have no effect.
_CHAIN = 8
# Seconds that a start waits for the hosts to look at themselves.
_EXAMINATION = 5.0
_OK = 200


class Refusal(Exception):
    """An operator's request that is not carried out. `code` is the stable word that HTTP and exit codes follow."""

    def __init__(self, code: str, sentence: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.findings = findings


@dataclass(frozen=True)
class Forwarded:
    """The conductor's answer to a request that was handed to it: HTTP status and JSON body."""

    status: int
    body: Mapping[str, object]


@dataclass(frozen=True)
class Site:
    """What does not change while the daemon runs. `tick`: seconds between safety-net cycles."""

    node: str
    cluster: Cluster
    policy: Policy
    digests: dict[str, str]
    identity: status.Identity
    tick: float


class Loop:
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
    ) -> None:
        self.site = site
        self.state = state
        self.events = events
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
        self._published: Report | None = None
        self._sequence = 0
        self.hardware: HardwareFacts | None = None
        self._failure = ""
        self._over: dict[tuple[str, int], float] = {}
        self.cycles = 0
        self.cycle_seconds = 0.0

    def wake(self, source: str) -> None:
        self._observer.stale(source)
        self._news.set()

    async def run(self) -> None:
        """Cycles until cancelled."""
        time = asyncio.get_running_loop().time
        tick = time() + self.site.tick
        while True:
            self._news.clear()
            after = await self.cycle()
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
        self.cycle_seconds += self._clock.monotonic() - began
        return decision.after

    async def _settle(self) -> Decision:
        left = _CHAIN
        while True:
            await self._observer.refresh()
            snapshot = self._snapshot()
            decision = decide(snapshot)
            self.events.at(decision.intent, decision.phase)
            self._warn_peers(snapshot, decision)
            acted = await self._execute(decision)
            left -= 1
            # Each report costs every host a request. What a step of a start has changed is seen in a moment.
            hurried = acted and left > 0 and not _moves_peers(snapshot, decision)
            self._publish(snapshot, decision, tell_peers=not hurried)
            if not acted or left == 0:
                return decision

    async def _execute(self, decision: Decision) -> bool:
        """True if anything was done, and all of it worked. After a failure nothing more is done but stopping ranks:
        a full disk must not keep one alive."""
        failed = False
        self._failure = ""
        for action in decision.actions:
            if failed and not isinstance(action, StopRank):
                continue
            try:
                self._observer.stale(await self._executor.do(action))
            except DoorError as error:
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
            attempt=self.state.attempt,
            peers=views,
            digests=self.site.digests,
            ages=self._ages(views),
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
        self.events.findings(held.findings)
        self.events.summary(held)
        self._notifier.status(held.summary)
        if tell_peers or self._published is None:
            self._tell_peers(snapshot, held)

    def _tell_peers(self, snapshot: Snapshot, decision: Decision) -> None:
        fresh = status.report(snapshot, decision, self.site.identity, self._sequence + 1)
        if self._published is None or _news(fresh) != _news(self._published):
            self._sequence += 1
            self._published = fresh
            self._peers.publish(fresh)

    def _told(self, decision: Decision) -> Decision:
        """With what failed first: until that works, the decision is not what happens."""
        if not self._failure:
            return decision
        summary = f"{self._failure}; until then: {decision.summary}"
        return replace(decision, summary=summary, waits=(self._failure, *decision.waits))

    # What the API asks for; everything below answers from the last cycle.

    async def request(self, request: intents.Request, by: str) -> wire.Operation | Forwarded:
        """An operator's start, stop or clear. Raises Refusal."""
        conductor = self.site.cluster.conductor.name
        if self.site.node == conductor:
            return await self.conduct(request, by)
        try:
            code, body = await self._peers.request(conductor, {"request": request, "by": by})
        except DoorError as error:
            raise Refusal("conductor-unreachable", f"only {conductor} issues epochs, and {error}") from None
        self.wake("peers")
        return Forwarded(code, body)

    async def conduct(self, request: intents.Request, by: str) -> wire.Operation:
        """The conductor's own answer: the intent is on disk when this returns. Raises Refusal."""
        if not self._snapshot().conductor:
            name = self.site.cluster.conductor.name
            raise Refusal("not-conductor", f"{self.site.node} is not the conductor, {name} is")
        if request == "start" and self.state.intent.want == "down":
            await self._examine_all()
        async with self._turn:
            await self._observer.refresh()
            snapshot = self._snapshot()
            answer = intents.accept(snapshot, request, by)
            if isinstance(answer, intents.Refused):
                self.events.add("intent", f"{request} by {by} refused: {answer.sentence}")
                raise Refusal(answer.code, answer.sentence, answer.findings)
            if answer.new:
                try:
                    await self._executor.adopt(answer.intent)
                except DoorError as error:
                    self.events.error(f"{request} by {by} could not be saved: {error}")
                    if request != "stop":
                        raise Refusal("not-saved", f"the request could not be saved: {error}") from None
                    # A full disk must not keep a ring running. It holds in the peers' memories too, on their disks.
                    self.state.intent = answer.intent
                self._publish(snapshot, decide(replace(snapshot, intent=answer.intent)))
        self._news.set()
        epoch = answer.intent.epoch
        summary = self._now()[1].summary if answer.new else f"already so since epoch {epoch}: {self._now()[1].summary}"
        return wire.Operation(f"/v1/operations/{epoch}", epoch, answer.intent.want, summary)

    def before_start(self, examine: Callable[[], Awaitable[None]]) -> None:
        """`examine` looks at this host anew, in bounded time, whenever a start is asked for."""
        self._examine = examine

    async def examine(self) -> Report:
        """This host's report after a fresh look at it."""
        await self._examine()
        if self._news.is_set():
            await self.cycle()
        async with self._turn:  # or a cycle with the news is under way
            return self.report()

    async def _examine_all(self) -> None:
        """Have every host that answers look at itself, side by side; what one does not tell in time is as it last told.
        Silence has its own finding."""
        names = [view.name for view in self._peers.views() if view.report is not None and not view.error]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXAMINATION):
                await asyncio.gather(self._examine(), *(self._examine_peer(name) for name in names))

    async def _examine_peer(self, name: str) -> None:
        with contextlib.suppress(DoorError, wire.WireError):
            code, body = await self._peers.request(name, {"request": "examine", "by": self.site.node})
            report = wire.decode(Report, body) if code == _OK else None
            if report is not None and report.node == name:
                self._peers.receive(report)

    async def release(self, released: bool, by: str) -> None:
        """Take the fabric ports of this host from sparkd, or give them back. Raises Refusal."""
        self.ring()  # not before the first cycle
        async with self._turn:
            snapshot = self._snapshot()
            free = not isinstance(snapshot.units, Unknown) and not any(unit.alive for unit in snapshot.units)
            if released and (self.state.intent.want == "up" or not free):
                raise Refusal("fabric-in-use", "the ring is wanted up, and its ranks need the fabric")
            try:
                await self._executor.remember(replace(self.state.memory, released=released))
            except DoorError as error:
                raise Refusal("not-saved", f"the request could not be saved: {error}") from None
            self.events.add("action", f"fabric ports {'released' if released else 'taken back'} by {by}")
        self.wake("network")

    def receive(self, report: Report) -> Report:
        """A peer's report, pushed; the answer is this host's."""
        self._peers.receive(report)
        return self.report()

    def report(self) -> Report:
        if self._published is None:
            raise Refusal("starting", "sparkd has not finished its first cycle")
        return self._published

    def ring(self) -> wire.RingStatus:
        return status.ring(*self._now(), self.site.identity)

    def fabric(self) -> wire.FabricStatus:
        """This host's part of it."""
        return next(part for part in self.ring().fabric if part.node == self.site.node)

    def host(self) -> wire.HostStatus:
        return status.host(self._now()[0], self.report())

    def plan(self) -> dict[str, Any]:
        """Of the cables that are planned for or heard; before the first cycle, of those last planned for."""
        if self._last is not None:
            return dict(plan_as_json(self._now()[0].plan))
        intent = self.state.intent
        return dict(plan_as_json(plan_of(self.site.cluster, intent.cables, intent.addresses)))

    def doctor(self) -> wire.DoctorStatus:
        return status.doctors(*self._now())

    def examined(self, facts: HardwareFacts) -> None:
        """The host's hardware has been looked at."""
        if facts != self.hardware:
            self.hardware = facts
            self.wake("hardware")

    def seen(self) -> Snapshot | None:
        """What the last cycle saw; None before the first."""
        return self._last[0] if self._last is not None else None

    def refusals(self) -> bool:
        """Whether anything of this host is against a start."""
        return self._last is not None and any(f.severity == "refuse" for f in self._last[1].findings)

    def operation(self, epoch: int) -> wire.OperationStatus | None:
        return status.operation(epoch, *self._now())

    def _now(self) -> tuple[Snapshot, Decision]:
        """The last cycle, seen again with what is known of the peers by now: their silence grows between cycles."""
        if self._last is None:
            raise Refusal("starting", "sparkd has not finished its first cycle")
        # The attempt stays the one that was there when the units were looked at: one that has been started since has
        # no unit among them yet, and would look as if its rank had left.
        snapshot, _ = self._last
        snapshot = replace(snapshot, now=self._clock.now(), peers=self._peers.views(), intent=self.state.intent)
        snapshot = replace(snapshot, reach=self._reached())
        fresh = replace(decide(snapshot), intent=self.state.intent, attempt=self.state.attempt)
        return snapshot, self._told(fresh)


async def _nothing() -> None:
    """Of a loop beside which nobody examines the host."""


def _moves_peers(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether peers have something to do because of these actions: stop, or adopt what the conductor has issued."""
    steps = (Remember, ApplyFabric, StartRank) if snapshot.conductor else (Remember, ApplyFabric, StartRank, Adopt)
    return not all(isinstance(action, steps) for action in decision.actions)


def _news(report: Report) -> Report:
    """The report without what changes all the time and moves nobody."""
    return replace(report, sequence=0, memory_available_kib=0)
