"""What a daemon is asked by operators, peers and its own look at the host; answers are from the last cycle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ring_mesh import plan_as_json
from sparkd import wire
from sparkd.core import boots, gates
from sparkd.core import intent as intents
from sparkd.core.cabling import plan_of
from sparkd.core.decide import Decision, decide
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Intent, Report, Unknown
from sparkd.core.snapshot import Snapshot
from sparkd.ports import DoorError
from sparkd.reconcile import samples, status
from sparkd.reconcile.kept import Kept
from sparkd.reconcile.refusal import Refusal

# Seconds that a start waits for the hosts to look at themselves.
EXAMINATION = 5.0
_OK = 200
# What is said of a request that finds the ring as it asks for.
_ALREADY: Mapping[intents.Request, str] = {
    "start": "already wanted up",
    "stop": "already wanted down",
    "clear": "nothing to clear",
    "hold": "already in maintenance",
    "resume": "not in maintenance",
}
_OVERTAKEN = "a stop was asked for while the hosts were looking at themselves for this start"
_LEAVING = 3.0  # seconds; the unit's TimeoutStopSec= is 10


@dataclass(frozen=True)
class Forwarded:
    """The conductor's answer to a request that was handed to it: HTTP status and JSON body."""

    status: int
    body: Mapping[str, object]


class Loop(Kept):
    _known: tuple[object, tuple[Snapshot, Decision]] | None = None
    _told_ring: tuple[object, wire.RingStatus] | None = None
    _stops = 0  # asked for and accepted, whether they changed anything or not

    async def request(
        self,
        request: intents.Request,
        by: str,
        reason: str = "",
        *,
        force: bool = False,
        drain: float = 0.0,
        expect: int | None = None,
        trial: bool = False,
    ) -> wire.Operation | wire.Trial | Forwarded:
        """An operator's request, with `reason`, `force` and `drain` as in `core.intent.accept`. Raises Refusal.

        expect: the epoch that has to be in force. trial: say what would come of it, and change nothing.
        """
        conductor = self.site.cluster.conductor.name
        asked = wire.PeerRequest(request, by, reason, force, drain, expect, trial)
        if self.site.node == conductor:
            return await self.conduct(asked)
        try:
            code, body = await self._peers.request(conductor, wire.encode(asked))
        except DoorError as error:
            raise Refusal("conductor-unreachable", f"only {conductor} issues epochs, and {error}") from None
        if not trial:
            self.wake("peers")
        return Forwarded(code, body)

    async def _rehearse(self, request: intents.Request, asked: wire.PeerRequest) -> wire.Trial:
        """What the conductor would answer, with everything that there is to say about a start. Raises Refusal if it
        cannot tell."""
        await self._prepare(request)
        async with self._turn:
            await self._observer.refresh()
            snapshot = self._snapshot()
            now = intents.newest(snapshot)
            answer = _judged(snapshot, request, asked)
        found = gates.ring_findings(replace(snapshot, intent=now)) if request == "start" else ()
        if asked.expect is not None and asked.expect != now.epoch:
            sentence = _unexpected(asked.expect, now)
            return wire.Trial(request, False, False, "epoch-changed", sentence, now.epoch, tuple(found))
        if isinstance(answer, intents.Refused):
            own = tuple(finding for finding in answer.findings if finding not in found)
            return wire.Trial(request, False, False, answer.code, answer.sentence, now.epoch, (*own, *found))
        sentence = "this would be carried out" if answer.new else "it is so already, and nothing would change"
        return wire.Trial(request, True, answer.new, "", sentence, now.epoch, tuple(found))

    async def _prepare(self, request: intents.Request) -> None:
        """Only the conductor may go on, and a start is judged by a fresh look at all hosts. Raises Refusal."""
        if not self._snapshot().conductor:
            name = self.site.cluster.conductor.name
            raise Refusal("not-conductor", f"{self.site.node} is not the conductor, {name} is")
        if request == "start" and self.state.intent.want == "down":
            await self._examine_all()

    async def conduct(self, asked: wire.PeerRequest) -> wire.Operation | wire.Trial:
        """The conductor's own answer: the intent is on disk when this returns. Raises Refusal."""
        request, by = cast(intents.Request, asked.request), asked.by
        if asked.trial:
            return await self._rehearse(request, asked)
        stops = self._stops
        await self._prepare(request)
        async with self._turn:
            await self._observer.refresh()
            snapshot = self._snapshot()
            now = intents.newest(snapshot)
            if asked.expect is not None and asked.expect != now.epoch:
                raise Refusal("epoch-changed", _unexpected(asked.expect, now), epoch=now.epoch)
            answer = _judged(snapshot, request, asked)
            if isinstance(answer, intents.Refused):
                self.events.add("intent", f"{request} by {by} refused: {answer.sentence}")
                raise Refusal(answer.code, answer.sentence, answer.findings)
            if request == "start" and answer.new and stops != self._stops:
                self.events.add("intent", f"start by {by} refused: {_OVERTAKEN}")
                raise Refusal("overtaken", _OVERTAKEN)
            self._stops += request == "stop"
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
        summary = self._now()[1].summary
        if not answer.new:
            summary = f"{_ALREADY[request]}: {summary}"
        want = "down" if answer.intent.drain else answer.intent.want
        return wire.Operation(f"/v1/operations/{epoch}", epoch, want, summary)

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
            async with asyncio.timeout(EXAMINATION):
                await asyncio.gather(self._examine(), *(self._examine_peer(name) for name in names))

    async def _examine_peer(self, name: str) -> None:
        with contextlib.suppress(DoorError, wire.WireError):
            code, body = await self._peers.request(name, {"request": "examine", "by": self.site.node})
            report = wire.decode(Report, body) if code == _OK else None
            if report is not None and report.node == name:
                self._peers.receive(report)

    async def leave(self) -> None:
        """The daemon is being stopped in order, which tells a shutdown of the host from a reset."""
        try:
            async with asyncio.timeout(_LEAVING), self._turn:
                known = boots.arrived(self._snapshot()) or self.state.boots
                if known.boot_id:
                    await self._executor.note_boot(replace(known, clean=True))
        except (DoorError, TimeoutError) as error:
            why = str(error) or f"not saved within {_LEAVING:g} s"
            self.events.error(f"if the host goes down now, it passes for reset: {why}")

    async def release(self, released: bool, by: str) -> None:
        """Take the fabric ports of this host from sparkd, or give them back. Raises Refusal."""
        self.ring()  # not before the first cycle
        async with self._turn:
            snapshot = self._snapshot()
            if self.state.intent.paused:
                raise Refusal("maintenance", "the ports stay as they are: the ring is in maintenance")
            free = not isinstance(snapshot.units, Unknown) and not any(unit.alive for unit in snapshot.units)
            if released and (self.state.intent.want == "up" or not free):
                raise Refusal("fabric-in-use", "the ring is wanted up, and its ranks need the fabric")
            try:
                await self._executor.remember(replace(self.state.memory, released=released))
            except DoorError as error:
                raise Refusal("not-saved", f"the request could not be saved: {error}") from None
            self.events.add("action", f"fabric ports {'released' if released else 'taken back'} by {by}")
        self.wake("network")

    async def remeasure(self, by: str) -> None:
        """Forget what was measured of this host's rails, so that the next start measures them anew. Raises Refusal."""
        self.ring()  # not before the first cycle
        async with self._turn:
            snapshot = self._snapshot()
            if isinstance(snapshot.units, Unknown) or any(unit.alive for unit in snapshot.units):
                raise Refusal("fabric-in-use", "a rank runs here, and rails are measured only while none does")
            try:
                await self._executor.forget_rails()
            except DoorError as error:
                raise Refusal("not-saved", f"the request could not be saved: {error}") from None
            self._trials.again()
            self.events.add("action", f"measurements of the rails forgotten by {by}")
            # Nobody who asks right after this may be told of what is forgotten.
            self._observer.stale("rails")
            await self._observer.refresh()
            snapshot = self._snapshot()
            self._publish(snapshot, decide(snapshot))
        self.wake("rails")

    def receive(self, report: Report) -> Report:
        """A peer's report, pushed; the answer is this host's."""
        self._peers.receive(report)
        return self.report()

    def report(self) -> Report:
        if self._published is None:
            raise Refusal("starting", "sparkd has not finished its first cycle")
        return self._published

    def ring(self) -> wire.RingStatus:
        """The same object as long as nothing of it can have changed."""
        now = self._now()
        if self._told_ring is None or self._told_ring[0] is not now:
            self._told_ring = now, status.ring(*now, self.site.identity)
        return self._told_ring[1]

    def ages(self) -> dict[str, float | None]:
        """Seconds since each peer last answered, None if it never has."""
        return {view.name: view.age for view in self._peers.views()}

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

    def gates(self) -> dict[str, bool]:
        """Whether each gate of a start is open, as this host sees it."""
        snapshot, _ = self._now()
        return {gate.__name__: not gate(snapshot) for gate in gates.GATES}

    def history(self, after: int) -> samples.History:
        return self.samples.after(after, self.site.node)

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
        return status.operation(epoch, self._now()[1], self._history)

    def _now(self) -> tuple[Snapshot, Decision]:
        """The last cycle, seen again with what is known of the peers by now: their silence grows between cycles."""
        if self._last is None:
            raise Refusal("starting", "sparkd has not finished its first cycle")
        now, views, reached = self._clock.now(), self._peers.views(), self._reached()
        heard = tuple((view.report, view.error, view.age is None) for view in views)
        # A page and a probe may ask hundreds of times a second, and ages are told to a tenth of one.
        tried = tuple((fact.peer, fact.port, fact.answer, fact.why) for fact in reached)
        seen = (self._last, self.state.intent, self.state.attempt, self._failure, round(now, 1), heard, tried)
        if self._known is not None and self._known[0] == seen:
            return self._known[1]
        # The attempt stays the one that was there when the units were looked at: one that has been started since has
        # no unit among them yet, and would look as if its rank had left.
        snapshot, _ = self._last
        snapshot = replace(snapshot, now=now, peers=views, intent=self.state.intent, reach=reached)
        fresh = replace(decide(snapshot), intent=self.state.intent, attempt=self.state.attempt)
        self._known = seen, (snapshot, self._told(fresh))
        return self._known[1]


def _judged(s: Snapshot, request: intents.Request, asked: wire.PeerRequest) -> intents.Accepted | intents.Refused:
    return intents.accept(s, request, asked.by, asked.reason, force=asked.force, drain=asked.drain)


def _unexpected(expect: int, now: Intent) -> str:
    return f"epoch {expect} was expected, and epoch {now.epoch} is in force ({now.want}, by {now.by or 'nobody yet'})"
