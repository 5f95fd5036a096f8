"""Three hosts with real Loops on fake machines, and an engine that forms a group as soon as all its ranks run."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any, cast

from ring_mesh import FABRIC_DEVICES
from sparkd import wire
from sparkd.api.problems import problem
from sparkd.core.actions import Measure
from sparkd.core.intent import Request
from sparkd.core.model import RankUnit
from sparkd.core.snapshot import Policy
from sparkd.ports import DoorError, EngineDoor
from sparkd.reconcile.cycle import Site
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.executor import Executor, State
from sparkd.reconcile.incidents import Incidents
from sparkd.reconcile.loop import Forwarded, Loop
from sparkd.reconcile.observer import Observer
from sparkd.reconcile.refusal import Refusal
from sparkd.reconcile.status import Identity
from tests.core.builders import CLUSTER, NODES, PLAN
from tests.fakes import (
    FakeClock,
    FakeDisk,
    FakeHellos,
    FakeHost,
    FakeMesh,
    FakeNotifier,
    FakeRails,
    FakeRoce,
    FakeRoom,
)
from tests.fakes.evidence import FakeArchive, FakeWitness
from tests.fakes.peers import Fetcher
from tests.reconcile.doom import Crash, Doom, DoomedFiles, DoomedLinks, DoomedStore, DoomedUnits
from tests.reconcile.running import turns, until

TICK = 60.0  # never passes within a test: what happens, happens because something was told
POLICY = Policy(backoff=0.02)
_instances = count(1)


async def _rail_environment(measure: Measure) -> Mapping[str, str]:
    return {"SPARKD_EPOCH": str(measure.epoch), "DEVICES": ",".join(measure.devices)}


class Machine:
    """One host. Everything but `loop` outlives its daemon. `deaf`: what its doors have to tell gets lost."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.doom = Doom()
        self.disk = FakeDisk()
        self.units = DoomedUnits(self.doom)
        self.links = DoomedLinks(self.doom, "enP7s7", *sorted(FABRIC_DEVICES))
        self.links.set_up("enP7s7", True)
        self.links.add_foreign_address("enP7s7", f"{PLAN.cluster.node(name).address}/24")
        # It goes on saying hello while the daemon is away: the real one is forgotten only after some seconds.
        self.hello = FakeHellos(cluster.room, self.links, name)
        self.host = FakeHost()
        self.roce = FakeRoce()
        self.rails = FakeRails()
        self.files = DoomedFiles(self.doom)
        self.notifier = FakeNotifier()
        self.events = EventLog(name, cluster.clock)
        self.archive = FakeArchive()
        self.peers: Any = cluster.mesh[name]
        self.engine: EngineDoor | None = None  # of an engine that is not the probe
        self.deaf = False
        self.daemon: Loop | None = None
        self._cluster = cluster
        self._task: asyncio.Task[None] | None = None

    @property
    def loop(self) -> Loop:
        assert self.daemon is not None, f"no daemon runs on {self.name}"
        return self.daemon

    @property
    def phase(self) -> str:
        return self.daemon.ring().phase if self.daemon is not None and self.daemon.cycles else "no daemon"

    @property
    def running(self) -> list[RankUnit]:
        return [unit for unit in self.units.loaded() if unit.alive]

    @property
    def pids(self) -> list[int]:
        return [unit.main_pid for unit in self.running]

    def wake(self, source: str) -> None:
        """What the doors were subscribed with: it reaches the daemon that runs now, if any."""
        if self.daemon is not None and not (self.deaf and source != "peers"):
            self.daemon.wake(source)

    def build(self) -> Loop:
        """A daemon's Loop as after its process has started: it has read the disk, and nothing else."""
        store = DoomedStore(self.disk, self.doom)
        state = State(store.load_intent(), store.load_attempt(), store.load_memory(), store.load_boots())
        self.events = EventLog(self.name, self._cluster.clock)
        executor = Executor(
            state,
            units=self.units,
            links=self.links,
            store=store,
            files=self.files,
            clock=self._cluster.clock,
            events=self.events,
            environment=self._environment,
            rails=self.rails,
            rail_environment=_rail_environment,
        )
        identity = Identity(f"{self.name}-{next(_instances)}", "probe", "127.0.0.1:8888")
        site = Site(self.name, CLUSTER, self._cluster.policy, {"cluster": "same"}, identity, self._cluster.tick)
        self.witness = FakeWitness(self.units)
        self.incidents = Incidents(
            self.name, NODES, lambda: (self.witness, self.archive), self.events, self._cluster.moment
        )
        self.daemon = Loop(
            site,
            state,
            observer=Observer(
                self.units,
                self.links,
                self.roce,
                self.host,
                self.hello,
                self.rails if self._cluster.policy.rails is not None else None,
            ),
            executor=executor,
            peers=self.peers,
            clock=self._cluster.clock,
            notifier=self.notifier,
            events=self.events,
            incidents=self.incidents,
            engine=lambda: {} if self.engine is None else self.engine.digests(),
        )
        self._cluster.mesh.wake(self.name)
        return self.daemon

    async def _environment(self, epoch: int, hcas: tuple[str, ...]) -> Mapping[str, str]:
        own = {"SPARKD_EPOCH": str(epoch), "NCCL_IB_HCA": ",".join(hcas)}
        return own if self.engine is None else {**own, **self.engine.environment()}

    def boot(self) -> Loop:
        """Start the daemon, and let it run."""
        loop = self.build()
        self._task = asyncio.create_task(self._live(loop), name=f"daemon of {self.name}")
        return loop

    async def _live(self, loop: Loop) -> None:
        try:
            await loop.cycle()
            self._cluster.mesh[self.name].poll()
            await loop.run()
        except Crash:
            await self._gone()

    async def _gone(self) -> None:
        if self.daemon is not None:
            await self.incidents.close()
        self.daemon = None
        self._cluster.mesh.silence(self.name)

    async def kill(self) -> None:
        """End the daemon, as a crash does: nobody is told."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._gone()


class Cluster:
    def __init__(self, policy: Policy = POLICY, tick: float = TICK) -> None:
        self.policy = policy
        self.tick = tick
        self.moment = 0.0
        """Seconds before evidence is looked for."""
        self.clock = FakeClock()
        self.mesh = FakeMesh(self.clock, *NODES)
        self.room = FakeRoom()
        self.machines = {name: Machine(name, self) for name in NODES}
        self.slow_engine = False
        for cable in PLAN.cables:
            for link in cable.links:
                one, other = link.ends
                self[one.node].links.plug(one.device, self[other.node].links, other.device)
        for name, machine in self.machines.items():
            for door in (machine.units, machine.links, machine.peers, machine.hello, machine.rails):
                door.subscribe(machine.wake)
            machine.links.subscribe(lambda _: self.room.news())
            machine.units.subscribe(lambda _: self.engine())
            self.mesh.handlers[name] = self._handler(machine)
            self.mesh.fetchers[name] = self._fetcher(machine)
            self.mesh.silence(name)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __iter__(self) -> Any:
        return iter(self.machines.values())

    @property
    def conductor(self) -> Machine:
        return self[NODES[0]]

    def phases(self) -> dict[str, str]:
        return {machine.name: machine.phase for machine in self}

    def all_in(self, phase: str, epoch: int | None = None) -> bool:
        return all(
            machine.phase == phase
            # A ring that is down can be started once its cables have been heard.
            and (phase != "down" or machine.loop.ring().cables)
            and (epoch is None or machine.loop.state.intent.epoch == epoch)
            for machine in self
        )

    async def reach(self, phase: str, epoch: int | None = None) -> None:
        """Until every daemon says that the ring is in this phase."""
        try:
            await until(lambda: self.all_in(phase, epoch))
        except AssertionError:
            told = {machine.name: machine.daemon and machine.daemon.ring().summary for machine in self}
            raise AssertionError(f"not {phase}: {told}") from None

    async def reach_any(self, *phases: str) -> None:
        """Until the conductor says that the ring is in one of these phases."""
        await until(lambda: self.conductor.phase in phases)

    async def quiet(self) -> None:
        """Until no daemon has anything left to do."""
        cycles = [-1]
        while cycles != (now := [machine.daemon.cycles for machine in self if machine.daemon is not None]):
            cycles = now
            await turns()

    def boot(self) -> None:
        for machine in self:
            machine.boot()

    async def end(self) -> None:
        for machine in self:
            await machine.kill()

    async def ask(
        self, request: Request, of: str = NODES[0], reason: str = "", *, force: bool = False, drain: float = 0
    ) -> wire.Operation | Forwarded:
        made = await self[of].loop.request(request, f"operator on {of}", reason, force=force, drain=drain)
        assert not isinstance(made, wire.Trial)
        return made

    async def up(self) -> None:
        await self.reach("down")
        await self.ask("start")
        await self.reach("ready")

    def poll(self) -> None:
        """Every daemon asks the others, as it does with each tick."""
        for machine in self:
            if machine.daemon is not None:
                machine.peers.poll()

    def engine(self) -> None:
        """The ranks of one epoch form a group once all of them run, and then serve."""
        running = [unit for machine in self for unit in machine.running if unit.runs]
        if self.slow_engine or len(running) < len(NODES) or len({unit.epoch for unit in running}) > 1:
            return
        for machine in self:
            for unit in machine.running:
                if unit.active == "activating":
                    machine.units.status(unit.epoch, "ready canary 1")
                    machine.units.ready(unit.epoch)

    @staticmethod
    def _handler(machine: Machine) -> Any:
        async def answer(body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
            if machine.daemon is None:
                raise DoorError(f"{machine.name} does not answer")
            if body["request"] == "examine":
                return 200, cast("dict[str, object]", wire.encode(await machine.loop.examine()))
            try:
                asked = wire.decode(wire.PeerRequest, body)
                made = await machine.loop.conduct(asked)
            except Refusal as refusal:
                told = problem(refusal.code, refusal.sentence, refusal.findings, epoch=refusal.epoch)
                return told.status_code, json.loads(told.body)
            return 200 if asked.trial else 202, wire.encode(made)

        return answer

    @staticmethod
    def _fetcher(machine: Machine) -> Fetcher:
        async def answer(path: str) -> bytes:
            if path == "smoke":
                return wire.dumps(await machine.loop.own_smokes())
            if path == "incidents":
                return wire.dumps(await machine.loop.own_incidents())
            if path.startswith("logs?"):
                raise DoorError(f"{machine.name} answered 503")  # as one whose journal is not wired
            return wire.dumps(await machine.loop.own_incident(int(path.removeprefix("incident?epoch="))))

        return answer


@contextlib.asynccontextmanager
async def cluster(policy: Policy = POLICY, tick: float = TICK, boot: bool = True) -> AsyncIterator[Cluster]:
    made = Cluster(policy, tick)
    if boot:
        made.boot()
    try:
        yield made
    finally:
        await made.end()
