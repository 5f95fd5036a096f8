"""The only place that wires things together: settings to doors, doors to the loop, the loop to the listeners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from sparkd import __version__
from sparkd.api.listener import tcp_socket
from sparkd.config import ConfigError, Problem, Settings, check_host, load
from sparkd.config.secrets import check_tokens
from sparkd.core.enginefacts import PROBE
from sparkd.core.smokes import SmokeRun
from sparkd.digests import digests, fingerprints
from sparkd.environments import StartGids, environment_of_measuring, environment_of_ranks
from sparkd.host.clock import SystemClock
from sparkd.host.gids import SysfsGids
from sparkd.host.hardware import Hardware
from sparkd.host.hello import MulticastHellos
from sparkd.host.identity import node_id
from sparkd.host.journal import to_journal
from sparkd.host.kmsg import KernelLog
from sparkd.host.netlink import NetlinkLinks
from sparkd.host.notify import SystemdNotifier
from sparkd.host.processes import RankProcesses
from sparkd.host.procfs import AvailableMemory, ProcHost
from sparkd.host.rails import UnitRails
from sparkd.host.rankfiles import RunFiles
from sparkd.host.store import FileStore
from sparkd.host.sysfs import SysfsRoce
from sparkd.host.systemd import SystemdUnits
from sparkd.listeners import listening
from sparkd.peers.client import PeerClient
from sparkd.peers.poller import Poller
from sparkd.peers.reach import Reach
from sparkd.peers.tls import Credentials, client_context
from sparkd.ports import Archive, DoorError, EngineDoor, JournalReader, Witness
from sparkd.reconcile.cycle import Site
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.examiner import Examiner
from sparkd.reconcile.executor import Executor, State
from sparkd.reconcile.floor import FloorGuard
from sparkd.reconcile.incidents import Incidents
from sparkd.reconcile.journals import Journals
from sparkd.reconcile.kernellog import KernelWatch
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.messages import as_audit
from sparkd.reconcile.observer import Observer
from sparkd.reconcile.status import Identity
from sparkd.reload import Reload

# sysexits.h; the unit does not restart after it (RestartPreventExitStatus=).
EX_CONFIG = 78
_log = logging.getLogger("sparkd")


def check(config: Path) -> int:
    """`sparkd --check-config`: the files, and the host's routes against the base range."""
    try:
        settings = load(config)
        tokens: list[Problem] = []
        check_tokens(settings.paths.tokens, tokens)
        problems = [*tokens, *_profile_faults(settings), *check_host(settings, asyncio.run(_routes()))]
        if problems:
            raise ConfigError(problems)
    except (ConfigError, DoorError) as error:
        print(error)
        return EX_CONFIG
    rank, size = settings.cluster.node(settings.node).rank, settings.cluster.world_size
    print(f"{config}: good: {settings.node} is rank {rank} of a ring of {size}")
    return 0


def serve(config: Path) -> int:
    """The daemon, until SIGTERM or SIGINT. Returns its exit status."""
    _log_to_journal()
    try:
        settings = load(config)
    except ConfigError as error:
        for problem in error.problems:
            _log.error("%s", problem)
        _log.error("the configuration cannot be used; sparkd --check-config checks it again")
        return EX_CONFIG
    try:
        asyncio.run(_run(settings))
    except (OSError, ssl.SSLError, DoorError) as failure:
        _log.error("%s", failure)
        return 1
    return 0


def _profile_faults(settings: Settings) -> list[Problem]:
    if settings.engine.name == PROBE:
        return []
    from sparkd.config import profiles

    etc = settings.paths.config.parent
    try:
        profiles.resolve(settings.engine.profile, profiles.folders(etc), profiles.site_file(etc))
    except ConfigError as error:
        return list(error.problems)
    return []


async def _routes() -> list[tuple[str, str]]:
    links = NetlinkLinks()
    try:
        return [(route.destination, route.device) for route in (await links.observe()).routes]
    finally:
        links.close()


async def _warn(settings: Settings) -> None:
    """Neither a range in use nor a spoilt list of tokens is a reason to leave, since a ring may be serving: starts are
    refused by a finding, and tokens by the API."""
    tokens: list[Problem] = []
    check_tokens(settings.paths.tokens, tokens)
    for problem in tokens:
        _log.error("%s", problem)
    with contextlib.suppress(DoorError):
        for problem in check_host(settings, await _routes()):
            _log.error("%s", problem)


async def _run(settings: Settings) -> None:
    _log.info("sparkd %s on %s", __version__, settings.node)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    notifier = SystemdNotifier()
    async with contextlib.AsyncExitStack() as stack:
        equal = digests(settings) | await fingerprints(settings)
        engine = await _engine(settings, stack)
        loop, poller, floor, reach = _wire(settings, notifier, stack, equal, engine)
        if engine is not None:
            loop.smokes_from(_smokes)
        ports = [settings.engine.rendezvous_port, int(settings.engine.api.rpartition(":")[2])]
        broken: dict[str, str] = {}
        hardware = Hardware(ports, broken=broken, engine=engine)
        stack.callback(hardware.close)
        examiner = Examiner(loop, hardware, reach)
        log = KernelLog()
        if refused := log.follow(KernelWatch(broken, floor.driver_says, examiner.soon).hear):
            _log.warning("the kernel's log is not followed: %s", refused)
        stack.callback(log.close)
        loop.before_start(examiner.afresh)
        reload = Reload(settings, loop, partial(load, settings.paths.config))
        stack.push_async_callback(reload.close)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.ask)
        listeners = await stack.enter_async_context(listening(settings, loop))
        # Peers and operators that connect meanwhile wait in the sockets' backlogs.
        await loop.cycle()
        await _warn(settings)
        async with asyncio.TaskGroup() as group:
            servers = [group.create_task(listener.serve()) for listener in listeners]
            running = (loop.run(), poller.run(), floor.run(), reach.run(), examiner.run())
            turning = [group.create_task(task) for task in running]
            await asyncio.gather(*(listener.bound() for listener in listeners))
            notifier.ready()
            await stop.wait()
            notifier.stopping()
            _log.info("leaving; ranks go on without sparkd")
            for task in turning:
                task.cancel()
            await loop.leave()
            for listener in listeners:
                listener.stop()
            await asyncio.wait(servers)


async def _engine(settings: Settings, stack: contextlib.AsyncExitStack) -> EngineDoor | None:
    """None for the probe, which has nothing to look at and need not pay for the import."""
    if settings.engine.name == PROBE:
        return None
    from sparkd.engine import Sglang

    engine = Sglang(settings)
    stack.callback(engine.close)
    with contextlib.suppress(DoorError):  # told by the first look at the host
        await engine.begin()
    return engine


async def _smokes() -> tuple[SmokeRun, ...]:
    """Seldom asked for, so that nothing of it is kept in the meantime."""
    from sparkd.host.smokes import SmokeFiles

    files = SmokeFiles()
    try:
        return await files.read()
    finally:
        files.close()


def _wire(
    settings: Settings,
    notifier: SystemdNotifier,
    stack: contextlib.AsyncExitStack,
    equal: dict[str, str],
    engine: EngineDoor | None,
) -> tuple[Loop, Poller, FloorGuard, Reach]:
    clock = SystemClock()
    store = FileStore(settings.paths.state)
    stack.callback(store.close)
    state = State(store.load_intent(), store.load_attempt(), store.load_memory(), store.load_boots())
    units, links, files = SystemdUnits(), NetlinkLinks(), RunFiles(settings.paths.run)
    processes = RankProcesses()
    roce, host = SysfsRoce(gids=lambda: _watched_gids(state)), ProcHost(processes=processes)
    cluster = settings.cluster.name
    hello = MulticastHellos(cluster, settings.node, node_id(settings.paths.state), settings.cluster_key)
    gids = SysfsGids()
    rails = UnitRails(units, settings.paths.run)
    for door in (units, links, roce, host, files, hello, gids, rails):
        stack.callback(door.close)
    events = EventLog(settings.node, clock, {node.name: node.rank for node in settings.cluster.nodes})
    for note in store.notes:
        events.error(note)
    start_gids = StartGids(settings, state, gids)
    executor = Executor(
        state,
        units=units,
        links=links,
        store=store,
        files=files,
        clock=clock,
        events=events,
        environment=environment_of_ranks(settings, state, start_gids, engine),
        gids=start_gids.look,
        rails=rails,
        rail_environment=environment_of_measuring(settings, state, start_gids, host),
    )
    poller = _poller(settings)
    stack.callback(poller.close)
    reach = _reach(settings, poller)
    stack.callback(reach.close)
    instance = f"{os.getpid()}-{os.urandom(4).hex()}"
    profile = settings.engine.profile if engine is not None else ""
    identity = Identity(instance, settings.engine.name, settings.engine.api, reach.port, profile)
    site = Site(settings.node, settings.cluster, settings.policy, equal, identity, settings.tick)
    incidents = Incidents(
        settings.node, tuple(node.name for node in settings.cluster.nodes), partial(_evidence, settings), events
    )
    stack.push_async_callback(incidents.close)
    loop = Loop(
        site,
        state,
        observer=Observer(units, links, roce, host, hello, rails if settings.policy.rails is not None else None),
        executor=executor,
        peers=poller,
        clock=clock,
        notifier=notifier,
        events=events,
        reach=reach,
        incidents=incidents,
        engine=dict if engine is None else engine.digests,
    )
    if engine is not None and site.cluster.node(site.node).rank == 0:
        loop.scrape = partial(_scrape, settings.engine.api)
    loop.journals = Journals(settings.node, loop.nodes, partial(_journal, settings), clock)
    stack.callback(loop.journals.close)
    units.subscribe(loop.wake)
    hello.subscribe(loop.wake)

    def on_network(source: str) -> None:
        hello.poke()
        poller.poke()
        loop.wake(source)

    guard = FloorGuard(AvailableMemory(), units, clock, befell=loop.befell, kill=processes.kill, error=events.error)
    loop.follow(guard.see)

    links.subscribe(on_network)
    poller.subscribe(loop.wake)
    poller.subscribe(lambda _: reach.look())
    reach.subscribe(loop.wake)
    return loop, poller, guard, reach


def _watched_gids(state: State) -> Mapping[str, str]:
    return state.attempt.gids if state.attempt is not None and not state.attempt.over else {}


def _evidence(settings: Settings) -> tuple[Witness, Archive]:
    """Most daemons never need them, and every one would pay for the import."""
    from sparkd.host.archive import FileArchive
    from sparkd.host.witness import SystemWitness

    directory = settings.paths.state / "incidents"
    return SystemWitness(), FileArchive(directory, settings.keeping.days, settings.keeping.mebibytes)


async def _scrape(address: str) -> str:
    """Imported once somebody asks."""
    from sparkd.host.scrape import scrape

    return await scrape(address)


def _journal(settings: Settings) -> JournalReader:
    """As rare as an incident."""
    from sparkd.host.logs import SystemJournal

    return SystemJournal(settings.node, settings.cluster.node(settings.node).rank)


def _poller(settings: Settings) -> Poller:
    context = client_context(Credentials.below(settings.paths.tls))
    cluster, port = settings.cluster, settings.listen.peer_port

    def client(name: str) -> PeerClient:
        return PeerClient(str(cluster.node(name).address), port, context, name)

    names = tuple(node.name for node in cluster.nodes if node.name != settings.node)
    return Poller(names, client, settings.tick)


def _reach(settings: Settings, poller: Poller) -> Reach:
    mine = str(settings.cluster.node(settings.node).address)
    peers = {node.name: str(node.address) for node in settings.cluster.nodes if node.name != settings.node}

    def ports() -> dict[str, int]:
        return {view.name: view.report.probe_port for view in poller.views() if view.report is not None}

    try:
        sock = tcp_socket(mine, 0)
    except OSError as error:
        raise OSError(f"cannot listen on {mine}, at any port: {error.strerror or error}") from None
    return Reach(sock, peers, ports)


def _log_to_journal() -> None:
    logging.basicConfig(level=logging.INFO, handlers=[to_journal(sys.stderr, os.environ)])
    logging.getLogger("sparkd.audit").addFilter(as_audit)
    # Their messages name code, not what an operator could do.
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
