"""The only place that wires things together: settings to doors, doors to the loop, the loop to the listeners."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import importlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from starlette.types import ASGIApp

from ring_mesh import engine_environment, rank_environment
from sparkd import __version__, wire
from sparkd.api.guard import BodyLimit, TokenGuard
from sparkd.api.later import Later
from sparkd.api.listener import Listener, tcp_socket, unix_socket
from sparkd.api.peer import peer_app
from sparkd.config import ConfigError, Settings, check_host, load
from sparkd.core.cabling import plan_of
from sparkd.core.checks.gids import gid_missing
from sparkd.core.hardware import GidFact
from sparkd.host.clock import SystemClock
from sparkd.host.gids import SysfsGids
from sparkd.host.hardware import Hardware
from sparkd.host.hello import MulticastHellos
from sparkd.host.identity import node_id
from sparkd.host.netlink import NetlinkLinks
from sparkd.host.notify import SystemdNotifier
from sparkd.host.procfs import ProcHost
from sparkd.host.rankfiles import RunFiles
from sparkd.host.store import FileStore
from sparkd.host.sysfs import SysfsRoce
from sparkd.host.systemd import SystemdUnits
from sparkd.peers.client import PeerClient
from sparkd.peers.poller import Poller
from sparkd.peers.reach import Reach
from sparkd.peers.tls import Credentials, client_context, server_context
from sparkd.ports import DoorError
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.examiner import Examiner
from sparkd.reconcile.executor import Environment, Executor, State
from sparkd.reconcile.loop import Loop, Site
from sparkd.reconcile.observer import Observer
from sparkd.reconcile.status import Identity

# sysexits.h; the unit does not restart after it (RestartPreventExitStatus=).
EX_CONFIG = 78
_SOCKET_MODE = 0o660
_PER_PEER = 16  # connections; a peer keeps two
_log = logging.getLogger("sparkd")


def check(config: Path) -> int:
    """`sparkd --check-config`: the files, and the host's routes against the base range."""
    try:
        settings = load(config)
        problems = check_host(settings, asyncio.run(_routes()))
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


async def _routes() -> list[tuple[str, str]]:
    links = NetlinkLinks()
    try:
        return [(route.destination, route.device) for route in (await links.observe()).routes]
    finally:
        links.close()


async def _warn_of_overlap(settings: Settings) -> None:
    """A range in use is no reason to leave, since a ring may be serving: starts are refused by a finding."""
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
        loop, poller, reach = _wire(settings, notifier, stack)
        hardware = Hardware([settings.engine.rendezvous_port, int(settings.engine.api.rpartition(":")[2])])
        stack.callback(hardware.close)
        examiner = Examiner(loop, hardware, reach)
        loop.before_start(examiner.afresh)
        listeners = await stack.enter_async_context(_listening(settings, loop))
        # Peers and operators that connect meanwhile wait in the sockets' backlogs.
        await loop.cycle()
        await _warn_of_overlap(settings)
        async with asyncio.TaskGroup() as group:
            servers = [group.create_task(listener.serve()) for listener in listeners]
            running = (loop.run(), poller.run(), reach.run(), examiner.run())
            turning = [group.create_task(task) for task in running]
            await asyncio.gather(*(listener.bound() for listener in listeners))
            notifier.ready()
            await stop.wait()
            notifier.stopping()
            _log.info("leaving; ranks go on without sparkd")
            for task in turning:
                task.cancel()
            for listener in listeners:
                listener.stop()
            await asyncio.wait(servers)


def _wire(
    settings: Settings, notifier: SystemdNotifier, stack: contextlib.AsyncExitStack
) -> tuple[Loop, Poller, Reach]:
    clock = SystemClock()
    store = FileStore(settings.paths.state)
    stack.callback(store.close)
    state = State(store.load_intent(), store.load_attempt(), store.load_memory())
    units, links, files = SystemdUnits(), NetlinkLinks(), RunFiles(settings.paths.run)
    roce, host = SysfsRoce(gids=lambda: _watched_gids(state)), ProcHost()
    cluster = settings.cluster.name
    hello = MulticastHellos(cluster, settings.node, node_id(settings.paths.state), settings.cluster_key)
    gids = SysfsGids()
    for door in (units, links, roce, host, files, hello, gids):
        stack.callback(door.close)
    events = EventLog(settings.node, clock)
    for note in store.notes:
        events.error(note)
    start_gids = _StartGids(settings, state, gids)
    executor = Executor(
        state,
        units=units,
        links=links,
        store=store,
        files=files,
        clock=clock,
        events=events,
        environment=_environment(settings, state, start_gids),
        gids=start_gids.look,
    )
    poller = _poller(settings)
    stack.callback(poller.close)
    reach = _reach(settings, poller)
    stack.callback(reach.close)
    instance = f"{os.getpid()}-{os.urandom(4).hex()}"
    identity = Identity(instance, settings.engine.name, settings.engine.api, reach.port)
    site = Site(settings.node, settings.cluster, settings.policy, digests(settings), identity, settings.tick)
    loop = Loop(
        site,
        state,
        observer=Observer(units, links, roce, host, hello),
        executor=executor,
        peers=poller,
        clock=clock,
        notifier=notifier,
        events=events,
        reach=reach,
    )
    units.subscribe(loop.wake)
    hello.subscribe(loop.wake)

    def on_network(source: str) -> None:
        hello.poke()
        poller.poke()
        loop.wake(source)

    links.subscribe(on_network)
    poller.subscribe(loop.wake)
    poller.subscribe(lambda _: reach.look())
    reach.subscribe(loop.wake)
    return loop, poller, reach


def _watched_gids(state: State) -> Mapping[str, str]:
    return state.attempt.gids if state.attempt is not None and not state.attempt.over else {}


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


def _environment(settings: Settings, state: State, gids: _StartGids) -> Environment:
    async def environment(epoch: int, hcas: tuple[str, ...]) -> Mapping[str, str]:
        the_plan = plan_of(settings.cluster, state.intent.cables, state.intent.addresses)
        # Each epoch has a key of its own: a rank of another epoch cannot join, whatever it believes.
        key = hmac.new(settings.cluster_key, f"rank group of epoch {epoch}".encode(), hashlib.sha256).hexdigest()
        own = rank_environment(
            the_plan,
            settings.node,
            epoch,
            engine=settings.engine.name,
            group_key=key,
            rendezvous_port=settings.engine.rendezvous_port,
            api=settings.engine.api,
        )
        return own | engine_environment(the_plan, settings.node, hcas=hcas, gid_indices=gids.indices)

    return environment


class _StartGids:
    """The GIDs of this host's RDMA devices, looked up for a start. `indices` are those of the last look."""

    def __init__(self, settings: Settings, state: State, gids: SysfsGids) -> None:
        self._settings, self._state, self._gids = settings, state, gids
        self.indices: list[int] = []

    async def look(self, hcas: tuple[str, ...]) -> Mapping[str, str]:
        """Index and address for each of `hcas`. Raises DoorError if one has none."""
        self.indices = []
        if not hcas:
            return {}
        node, intent = self._settings.node, self._state.intent
        ends = plan_of(self._settings.cluster, intent.cables, intent.addresses).ends_of(node)
        found = {gid.hca: gid for gid in await self._gids.observe({e.device: str(e.address.ip) for e in ends})}
        marks = {}
        for hca in hcas:
            gid = found.get(hca, GidFact(hca))
            if gid.index is None:
                finding = gid_missing(node, gid)
                raise DoorError(f"{finding.id}: {finding.observed}; expected {finding.expected}")
            self.indices.append(gid.index)
            marks[hca] = f"{gid.index} {gid.address}"
        return marks


def digests(settings: Settings) -> dict[str, str]:
    """What must be equal on all hosts before a rank starts, by key of sparkd.toml; secrets by their fingerprint."""
    cluster = settings.cluster
    return {
        "cluster.name": cluster.name,
        "cluster.base_range": str(cluster.base_range),
        "cluster.node": ", ".join(f"{node.rank} {node.name} {node.address}" for node in cluster.nodes),
        "cluster.key": hashlib.sha256(b"fingerprint" + settings.cluster_key).hexdigest()[:16],
        "engine.name": settings.engine.name,
        "engine.rendezvous_port": str(settings.engine.rendezvous_port),
        "engine.api": settings.engine.api,
        "fabric.address_plan": "adopt" if settings.policy.adopt else "base",
        "wire": str(wire.WIRE_VERSION),
    }


@contextlib.asynccontextmanager
async def _listening(settings: Settings, loop: Loop) -> AsyncIterator[list[Listener]]:
    def operator_app() -> ASGIApp:
        return importlib.import_module("sparkd.api.app").operator_app(loop)  # type: ignore[no-any-return]

    operators = BodyLimit(Later(operator_app))
    address, _, port = settings.listen.operator.rpartition(":")
    mine = str(settings.cluster.node(settings.node).address)
    with contextlib.ExitStack() as stack:

        def bound(where: str, make: Callable[[], socket.socket]) -> socket.socket:
            try:
                return stack.enter_context(make())
            except OSError as error:
                raise OSError(f"cannot listen on {where}: {error.strerror or error}") from None

        local = bound("the API socket", lambda: unix_socket(settings.paths.run / "api.sock", _SOCKET_MODE))
        tcp = bound(settings.listen.operator, lambda: tcp_socket(address, int(port)))
        where = f"{mine}:{settings.listen.peer_port}"
        peers = bound(where, lambda: tcp_socket(mine, settings.listen.peer_port))
        yield [
            Listener(operators, local),
            Listener(TokenGuard(operators, settings.token), tcp),
            Listener(
                BodyLimit(peer_app(loop)),
                peers,
                server_context(Credentials.below(settings.paths.tls)),
                per_caller=_PER_PEER,
            ),
        ]


def _log_to_journal() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Priority() if "JOURNAL_STREAM" in os.environ else logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Their messages name code, not what an operator could do.
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class _Priority(logging.Formatter):
    """The journal reads a line's priority from `<N>` at its start (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        level = 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6
        return "\n".join(f"<{level}>{line}" for line in super().format(record).splitlines())
