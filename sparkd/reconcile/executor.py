"""Carry a decision's actions out, in order. Each is complete on disk or in the kernel before the next begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from sparkd.core.actions import (
    Action,
    AddAddress,
    AddRoute,
    Adopt,
    ApplyFabric,
    FabricChange,
    ForgetRank,
    Measure,
    NoteBoot,
    Record,
    Remember,
    RemoveAddress,
    RemoveRoute,
    SetDown,
    SetMtu,
    SetSysctl,
    SetUp,
    StartRank,
    StopMeasuring,
    StopRank,
    TellRank,
)
from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, FabricMemory, Intent
from sparkd.ports import Clock, DoorError, Links, Rails, RankFiles, Store, Units
from sparkd.reconcile.events import EventLog

_TELL_AGAIN = 1.0  # seconds
Environment = Callable[[int, tuple[str, ...]], Awaitable[Mapping[str, str]]]
"""The environment file of this host's rank, from an epoch and the RDMA devices to use. Raises DoorError."""
RailEnvironment = Callable[[Measure], Awaitable[Mapping[str, str]]]
"""The environment file of the unit that measures rails. Raises DoorError."""


Gids = Callable[[tuple[str, ...]], Awaitable[Mapping[str, str]]]
"""Index and address of the GID of each of these RDMA devices, as in Attempt.gids. Raises DoorError if one has none."""


async def no_gids(_: tuple[str, ...]) -> Mapping[str, str]:
    """Of a host without RDMA."""
    return {}


@dataclass
class State:
    """What persists, as last saved."""

    intent: Intent
    attempt: Attempt | None
    memory: FabricMemory = field(default_factory=FabricMemory)
    boots: BootMemory = field(default_factory=BootMemory)


class Executor:
    def __init__(
        self,
        state: State,
        *,
        units: Units,
        links: Links,
        store: Store,
        files: RankFiles,
        clock: Clock,
        events: EventLog,
        environment: Environment,
        rails: Rails,
        rail_environment: RailEnvironment,
        gids: Gids = no_gids,
    ) -> None:
        self._state = state
        self._units = units
        self._links = links
        self._store = store
        self._files = files
        self._clock = clock
        self._events = events
        self._environment = environment
        self._gids = gids
        self._rails = rails
        self._rail_environment = rail_environment
        self._unfinished: Action | None = None
        self._told: tuple[TellRank, float] | None = None

    async def adopt(self, intent: Intent) -> None:
        before = self._state.intent
        await self._store.save_intent(intent)
        self._state.intent = intent
        self._events.add("intent", _order(before, intent), epoch=intent.epoch)

    async def remember(self, memory: FabricMemory) -> None:
        await self._store.save_memory(memory)
        self._state.memory = memory

    async def note_boot(self, boots: BootMemory) -> None:
        reset = boots.boot_id != self._state.boots.boot_id and len(boots.resets) > 0
        await self._store.save_boots(boots)
        self._state.boots = boots
        if reset and boots.resets[-1].at >= self._clock.now() - 60:
            self._events.error("node-hard-reset: this host has booted, and no shutdown came before")

    async def do(self, action: Action) -> str:
        """Returns the source that the action changed, or "". Raises DoorError."""
        # What failed is tried again with every tick, and need not be announced each time.
        announced, self._unfinished = action == self._unfinished, action
        source = await self._carry_out(action, announced)
        self._unfinished = None
        return source

    async def _carry_out(self, action: Action, announced: bool) -> str:
        match action:
            case Adopt(intent):
                await self.adopt(intent)
                return ""
            case Remember(memory):
                await self.remember(memory)
                return ""
            case NoteBoot(boots):
                await self.note_boot(boots)
                return ""
            case Record(attempt):
                # After an end the host is looked at again: whether it is free is not known from before.
                return "host" if await self._record(attempt) else ""
            case ApplyFabric(changes):
                if not announced:
                    self._events.add("action", f"fabric: {describe(changes)}")
                await self._links.apply(changes)
                return "network"
            case StartRank(attempt, hcas):
                await self._start(attempt, hcas)
                return "units"
            case Measure() | StopMeasuring():
                await self._measure(action, announced)
                return "rails"
            case StopRank() | TellRank() | ForgetRank():
                await self._to_the_unit(action, announced)
                return "units"
            case _:
                assert_never(action)

    async def _to_the_unit(self, action: StopRank | TellRank | ForgetRank, announced: bool) -> None:
        match action:
            case StopRank(epoch, why):
                if not announced:
                    self._events.add("action", f"stopping sparkd-rank@{epoch}.service: {why}")
                await self._units.stop(epoch)
            case TellRank():
                await self._tell(action, announced)
            case ForgetRank(epoch):
                await self._drop_environment(epoch)
                await self._units.forget(epoch)

    async def forget_rails(self) -> None:
        await self._rails.forget()

    async def _measure(self, action: Measure | StopMeasuring, announced: bool) -> None:
        name = f"sparkd-measure@{action.epoch}.service"
        if isinstance(action, StopMeasuring):
            if not announced:
                self._events.add("action", f"stopping {name}: {action.why}")
            await self._rails.stop(action.epoch)
            return
        if not announced:
            self._events.add("action", f"measuring {', '.join(action.devices)}: starting {name}")
        try:
            await self._rails.start(action.epoch, await self._rail_environment(action))
        except (DoorError, ValueError) as error:
            raise DoorError(f"{name} could not be started: {error}") from None

    async def _tell(self, action: TellRank, announced: bool) -> None:
        """Again and again until its status says that it heard, which takes it a moment."""
        now, told = self._clock.monotonic(), self._told
        again = told is not None and told[0] == action
        if again and told is not None and now - told[1] < _TELL_AGAIN:
            return
        if not again and not announced:
            what = "is to take no new requests" if action.drain else "is to take requests again"
            self._events.add("action", f"sparkd-rank@{action.epoch}.service {what}")
        await self._units.tell(action.epoch, action.drain)
        self._told = action, now

    async def _record(self, attempt: Attempt) -> bool:
        """Whether the rank was not known to have ended before."""
        before = self._state.attempt
        ends = attempt.ended_at is not None and (before is None or before.ended_at is None)
        if ends:
            # Before the end is on disk: an end that is there already is never looked at again.
            await self._drop_environment(attempt.epoch)
        await self._store.save_attempt(attempt)
        self._state.attempt = attempt
        if ends:
            self._events.add("action", f"sparkd-rank@{attempt.epoch}.service has ended: {attempt.sentence}")
        return ends

    async def _drop_environment(self, epoch: int) -> None:
        """It holds the key of a group that is gone, which is no reason to keep the next one from forming."""
        try:
            await self._files.remove(epoch)
        except DoorError as error:
            self._events.error(f"the environment file of epoch {epoch} stays: {error}")

    async def _start(self, attempt: Attempt, hcas: tuple[str, ...]) -> None:
        missing = ""
        try:
            # Looked up anew for each start, because they move.
            attempt = replace(attempt, gids=dict(await self._gids(hcas)))
        except DoorError as error:
            missing = str(error)
        await self._store.save_attempt(attempt)
        self._state.attempt = attempt
        self._events.add("action", f"starting sparkd-rank@{attempt.epoch}.service")
        try:
            if missing:
                raise DoorError(missing)
            await self._files.write(attempt.epoch, await self._environment(attempt.epoch, hcas))
            await self._units.start(attempt.epoch)
        except (DoorError, ValueError) as error:
            sentence = f"it could not be started: {error}"
            await self._record(
                replace(attempt, ended_at=self._clock.now(), signature="exit:not-started", sentence=sentence)
            )
            raise DoorError(f"sparkd-rank@{attempt.epoch}.service could not be started: {error}") from None


def _order(before: Intent, intent: Intent) -> str:
    ordered = intent.maintenance
    if ordered is not None and ordered != before.maintenance:
        what = f"maintenance, by {ordered.by}: {ordered.reason or 'no reason given'}"
        return f"epoch {intent.epoch}: {what if ordered.on else f'maintenance ended by {ordered.by}'}"
    if (drain := intent.drain) != before.drain and intent.epoch == before.epoch:
        what = "drain taken back" if drain is None else f"drain for {drain.seconds:.0f} s, by {drain.by}"
        return f"epoch {intent.epoch}: {what}"
    if intent.clears != before.clears and intent.epoch == before.epoch:
        return f"epoch {intent.epoch}: cleared"
    held = ", held" if intent.held else ""
    return f"epoch {intent.epoch}: {intent.want}{held}, by {intent.by}: {intent.reason}"


def describe(changes: Sequence[FabricChange]) -> str:
    """In one line: up to two changes of a kind by themselves, more by their number."""
    kinds: dict[type[FabricChange], list[str]] = {}
    for change in changes:
        kinds.setdefault(type(change), []).append(_describe(change))
    parts = []
    for kind, told in kinds.items():
        different = list(dict.fromkeys(told))
        parts.append(f"{len(different)} {_PLURAL[kind]}" if len(different) > 2 else ", ".join(different))
    return ", ".join(parts)


_PLURAL: dict[type[FabricChange], str] = {
    SetUp: "ports up",
    SetDown: "ports down",
    SetSysctl: "ports' sysctls set",
    SetMtu: "MTUs set",
    AddAddress: "addresses added",
    RemoveAddress: "addresses removed",
    AddRoute: "routes added",
    RemoveRoute: "routes removed",
}


def _describe(change: FabricChange) -> str:
    match change:
        case SetUp(device):
            return f"{device} up"
        case SetDown(device):
            return f"{device} down"
        case SetSysctl(device, _, _):
            return f"{device} sysctls"
        case SetMtu(device, mtu):
            return f"{device} mtu {mtu}"
        case AddAddress(device, address, _):
            return f"+{address} on {device}"
        case RemoveAddress(device, address):
            return f"-{address} on {device}"
        case AddRoute(destination, gateway, device, _):
            return f"+{destination} via {gateway} on {device}"
        case RemoveRoute(destination, gateway, device):
            return f"-{destination} via {gateway} on {device}"
        case _:
            assert_never(change)
