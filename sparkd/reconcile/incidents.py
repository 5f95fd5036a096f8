"""Evidence: what is kept of a failure, before the restart that follows can cover it up, and shown from any node.

Each daemon keeps that of its own host, in the background: no stop and no start waits for it, and whatever goes wrong
with it is told and nothing else. Processes are looked at while they are being stopped: one that hangs has ten seconds
left, and one that leaves at once has no more to tell than its journal. So there is a moment's time for either, in which
the whole ring stops and journald writes down what was said last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sparkd import wire
from sparkd.core import incidents
from sparkd.core.actions import StopRank
from sparkd.core.decide import Decision
from sparkd.core.incidents import Incident
from sparkd.core.snapshot import Snapshot
from sparkd.ports import Archive, DoorError, Peers, Witness
from sparkd.reconcile.events import EventLog

_GATHERING = 6.0  # seconds for the answers of all peers
_LOOKING = 1.0  # seconds that the stop of a rank that hangs may wait
MOMENT = 0.5  # seconds
_BEFORE = 60.0  # seconds before a death elsewhere that the kernel's messages are kept of
Doors = tuple[Witness, Archive]
Work = Callable[[Incident], Coroutine[Any, Any, None]]


class Incidents:
    """`doors` are made when they are first needed: most daemons never see an incident. `moment`: seconds before what is
    not urgent."""

    def __init__(
        self, node: str, names: tuple[str, ...], doors: Callable[[], Doors], events: EventLog, moment: float = MOMENT
    ) -> None:
        self._node = node
        self._names = names
        self._make = doors
        self._events = events
        self._moment = moment
        self._doors: Doors | None = None
        self._seen: set[tuple[int, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def before(self, s: Snapshot, d: Decision) -> None:
        """A rank that seems to hang is looked at before it is stopped: systemd continues a process that it ends.

        No other rank waits for this one, and this one waits no longer than a second.
        """
        attempt = d.attempt
        stopping = attempt is not None and _stops(d, attempt.epoch)
        if attempt is None or not stopping or (attempt.epoch, "living") in self._seen:
            return
        s = replace(s, intent=d.intent, attempt=attempt)
        death = incidents.ended(s, attempt)
        if death is None or not incidents.hung(s, d.ranks):
            return
        self._once(incidents.begun(s, attempt, death), "living", self._living)
        await asyncio.wait(self._tasks, timeout=_LOOKING)

    def consider(self, s: Snapshot, d: Decision) -> None:
        """Called after each cycle with what was decided in it, and with what was saved since."""
        attempt = d.attempt
        # In the epoch that was in force: a hold follows in the same cycle, and is one of its own.
        if (elsewhere := incidents.witnessed(replace(s, attempt=attempt))) is not None:
            since = elsewhere.at - _BEFORE
            self._once(incidents.seen_from(self._node, elsewhere), "past", partial(self._past, since))
        if attempt is None:
            return
        s = replace(s, intent=d.intent, attempt=attempt)
        stopping = _stops(d, attempt.epoch)
        if not (stopping or attempt.over):
            return
        death = incidents.ended(s, attempt)
        if death is None:
            return
        begun = incidents.begun(s, attempt, death)
        if stopping:
            self._once(begun, "living", self._dying)
        if attempt.ended_at is not None:
            self._once(begun, "past", partial(self._past, attempt.started_at))

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for door in self._doors or ():
            door.close()

    def _once(self, incident: Incident, part: str, work: Work) -> None:
        key = (incident.epoch, part)
        if key not in self._seen:
            self._seen.add(key)
            task = asyncio.create_task(self._guarded(incident, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _guarded(self, incident: Incident, work: Work) -> None:
        try:
            await work(incident)
        except Exception as error:  # noqa: BLE001 - evidence is never a reason for anything else to fail
            self._events.error(f"the evidence of epoch {incident.epoch} is not complete: {error}")

    def _both(self) -> Doors:
        if self._doors is None:
            self._doors = self._make()
        return self._doors

    async def _dying(self, incident: Incident) -> None:
        await asyncio.sleep(self._moment)
        await self._living(incident)

    async def _living(self, incident: Incident) -> None:
        witness, archive = self._both()
        files = await witness.living(incident.epoch)
        if files:
            await archive.keep(incident, files)

    async def _past(self, since: float, incident: Incident) -> None:
        await asyncio.sleep(self._moment)
        witness, archive = self._both()
        known = next((kept for kept in await archive.kept() if kept.epoch == incident.epoch), None)
        if known is not None and known.complete and (known.root, known.sentence) == (incident.root, incident.sentence):
            return  # by the daemon before this one
        files = dict(await witness.past(incident.epoch, since))
        first = files.pop("first.txt", "").strip()
        missing = tuple(f"{name} {text.strip()}" for name, text in files.items() if text.startswith("cannot be had"))
        done = replace(incident, first=first, missing=missing, complete=True)
        await archive.keep(done, files)
        self._events.add("action", f"evidence of epoch {done.epoch} is kept: sparkctl incidents show {done.epoch}")

    # What the API asks for.

    async def own(self) -> wire.NodeIncidents:
        """Never raises: what cannot be read is said."""
        try:
            return wire.NodeIncidents(self._node, await self._both()[1].kept())
        except DoorError as error:
            return wire.NodeIncidents(self._node, (), str(error))

    async def own_details(self, epoch: int) -> wire.NodeIncident:
        try:
            archive = self._both()[1]
            found = next((kept for kept in await archive.kept() if kept.epoch == epoch), None)
            files: Mapping[str, str] = await archive.files(epoch) if found is not None else {}
            return wire.NodeIncident(self._node, found, dict(files))
        except DoorError as error:
            return wire.NodeIncident(self._node, None, {}, str(error))

    async def everywhere(self, peers: Peers) -> wire.Incidents:
        """Of all nodes by rank, at most as long as the slowest may take."""

        async def ask(name: str) -> wire.NodeIncidents:
            if name == self._node:
                return await self.own()
            try:
                async with asyncio.timeout(_GATHERING):
                    return wire.loads(wire.NodeIncidents, await peers.fetch(name, "incidents"))
            except (DoorError, TimeoutError, wire.WireError) as error:
                return wire.NodeIncidents(name, (), _plain(name, error))

        return wire.Incidents(tuple(await asyncio.gather(*map(ask, self._names))))

    async def details(self, epoch: int, peers: Peers) -> wire.IncidentDetails:
        async def ask(name: str) -> wire.NodeIncident:
            if name == self._node:
                return await self.own_details(epoch)
            try:
                async with asyncio.timeout(_GATHERING):
                    return wire.loads(wire.NodeIncident, await peers.fetch(name, f"incident?epoch={epoch}"))
            except (DoorError, TimeoutError, wire.WireError) as error:
                return wire.NodeIncident(name, None, {}, _plain(name, error))

        return wire.IncidentDetails(epoch, tuple(await asyncio.gather(*map(ask, self._names))))


def _stops(d: Decision, epoch: int) -> bool:
    return any(isinstance(action, StopRank) and action.epoch == epoch for action in d.actions)


def _plain(name: str, error: Exception) -> str:
    return f"{name} did not answer within {_GATHERING:g} s" if isinstance(error, TimeoutError) else str(error)
