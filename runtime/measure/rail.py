"""One rail, measured by the hosts at both of its ends together: first whether large packets pass, then its rate."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.measure import datagrams, perftest
from runtime.measure.environment import MeasureEnvironment, Rail
from runtime.measure.messages import Rates, Ready, Serving, hear, tell
from runtime.measure.results import Result, carrier_changes
from runtime.probe.handshake import Guest, introduce
from runtime.probe.measure import measure
from runtime.probe.messages import Answer, Hello
from runtime.probe.sockets import accept, connect, listen
from runtime.probe.wire import Channel, ChannelError, reason

# A rail on which nothing has moved for so long carries nothing.
RAIL_SECONDS = 3.0
MESSAGE_SECONDS = 10.0
MARGIN_SECONDS = perftest.GRACE_SECONDS + perftest.LISTEN_SECONDS + 2.0


@dataclass(frozen=True)
class Partner:
    """The host at the other end. ``rdma``: the links that both ends can measure with RDMA, by index."""

    rank: int
    channel: Channel
    rdma: frozenset[int]


class Failed(Exception):
    """The rail could not be measured, and the partner knows; the message says why."""


def hello(environment: MeasureEnvironment, link: int) -> Hello:
    """First words on a connection; ``link`` is -1 on the management network."""
    size = len(environment.nodes)
    return Hello(environment.cluster, environment.epoch, size, environment.rank, environment.node, link)


async def measure_rail(environment: MeasureEnvironment, rail: Rail, partner: Partner, patience: float) -> Result:
    """Measure it together with the partner, which is waited for during ``patience`` seconds.

    :raises ChannelError: the partner is gone.
    """
    end, far = rail.link.end(environment.rank), rail.link.far(environment.rank)
    name = environment.nodes[far.rank]
    before = changes_of(end.device)
    gbps: float | None = None
    passed: bool | None = None
    method = problem = ""
    with contextlib.ExitStack() as sockets:
        try:
            opened, listener = _open(environment, rail, sockets)
        except OSError as error:
            opened, listener = None, None
            problem = f"cannot use {end.address} on {end.device}: {reason(error)}"
        try:
            await _meet(rail, partner, problem, name, patience)
            assert opened is not None, "a problem of this side ends the meeting"
            port = environment.port + 2
            passed = await datagrams.pass_both_ways(
                rail, environment.rank, environment.key, opened, port, partner.channel, MESSAGE_SECONDS
            )
            if passed is not False:
                # Over a rail that drops large packets a stream would stall, and say nothing of its rate.
                method = "rdma" if rail.link.index in partner.rdma else "tcp"
                gbps = await _rate(environment, rail, partner, listener, method)
            problem = ""
        except Failed as failure:
            problem = str(failure)
    changes = changes_of(end.device)
    if not problem and changes != before:
        problem = f"the carrier of {end.device} changed while it was measured"
    return Result(end.device, name, far.device, gbps, method, passed, problem, carrier_changes=changes)


def _open(
    environment: MeasureEnvironment, rail: Rail, sockets: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket | None]:
    """Before the partner is told that this side is ready, so that nothing of its is lost. Raises OSError."""
    end, port = rail.link.end(environment.rank), environment.port + 2
    opened = sockets.enter_context(datagrams.open_socket(end.address, port, end.device))
    if end != rail.link.low:
        return opened, None
    return opened, sockets.enter_context(listen(end.address, port, end.device))


async def _meet(rail: Rail, partner: Partner, problem: str, name: str, patience: float) -> None:
    await tell(partner.channel, Ready(rail.link.index, problem), MESSAGE_SECONDS)
    theirs = await hear(partner.channel, Ready, patience)
    if theirs.link != rail.link.index:
        raise ChannelError(f"is at link {theirs.link}, this side is at {rail.link.index}")
    if problem or theirs.problem:
        raise Failed(problem or f"{name} {theirs.problem}")


async def _rate(
    environment: MeasureEnvironment, rail: Rail, partner: Partner, listener: socket.socket | None, method: str
) -> float:
    """Gb/s, the lower of both directions, agreed with the partner.

    A host that is busy for a moment makes a rail look slow, so that a rate below what is expected counts only if it
    shows again. Both sides have the same numbers and the same expectation, and decide alike.
    """
    rate = await _once(environment, rail, partner, listener, method)
    if rate >= environment.expected[method]:
        return rate
    return max(rate, await _once(environment, rail, partner, listener, method))


async def _once(
    environment: MeasureEnvironment, rail: Rail, partner: Partner, listener: socket.socket | None, method: str
) -> float:
    if method == "rdma":
        first = await _rdma(environment, rail, partner, serve=environment.rank == rail.link.high.rank)
        second = await _rdma(environment, rail, partner, serve=environment.rank == rail.link.low.rank)
        return min(first, second)
    mine = await _tcp(environment, rail, listener)
    await tell(partner.channel, mine, MESSAGE_SECONDS)
    theirs = await hear(partner.channel, Rates, 2 * RAIL_SECONDS + environment.seconds + MESSAGE_SECONDS)
    if mine.gbps is None or theirs.gbps is None:
        raise Failed(mine.problem or theirs.problem)
    return min(mine.gbps, theirs.gbps)


async def _tcp(environment: MeasureEnvironment, rail: Rail, listener: socket.socket | None) -> Rates:
    """One stream over the rail. One core feeds it, so a rail that is much faster shows the core."""
    far = rail.link.far(environment.rank)
    name = f"{environment.nodes[far.rank]} at {far.address}:{environment.port + 2}"
    try:
        channel = await _connect(environment, rail, listener)
        try:
            measured = await measure(rail.link, channel, environment.rank, environment.seconds, RAIL_SECONDS)
        finally:
            channel.close()
    except ChannelError as error:
        return Rates(None, f"{name} {error}")
    except TimeoutError:
        return Rates(None, f"{name} did not connect within {RAIL_SECONDS:g} s")
    return Rates(float(min(measured.forward, measured.backward)))


async def _connect(environment: MeasureEnvironment, rail: Rail, listener: socket.socket | None) -> Channel:
    end, far = rail.link.end(environment.rank), rail.link.far(environment.rank)
    if listener is None:
        to = (far.address, environment.port + 2)
        channel = await connect(end.address, to, RAIL_SECONDS, end.device)
        with _closing_on_failure(channel):
            await introduce(channel, environment.key, hello(environment, rail.link.index), RAIL_SECONDS)
        return channel
    async with asyncio.timeout(RAIL_SECONDS + 1.0):
        while True:
            channel, _host = await accept(listener)
            guest = Guest(channel, environment.key, RAIL_SECONDS)
            with _closing_on_failure(channel), contextlib.suppress(ChannelError):
                said = await guest.hear()
                fits = (said.rank, said.link) == (far.rank, rail.link.index)
                await guest.answer(Answer(environment.rank, "" if fits else "another rail is measured here"))
                if fits:
                    return channel
            channel.close()


@contextlib.contextmanager
def _closing_on_failure(channel: Channel) -> Iterator[None]:
    try:
        yield
    except BaseException:
        channel.close()
        raise


async def _rdma(environment: MeasureEnvironment, rail: Rail, partner: Partner, *, serve: bool) -> float:
    """One direction, from the client to the server. They meet at the server's management address."""
    assert rail.gid is not None
    program, port = perftest.find(), environment.port + 1
    if serve:
        return await _serve(rail, partner, program, port, environment)
    heard = await hear(partner.channel, Serving, MESSAGE_SECONDS + perftest.LISTEN_SECONDS)
    if heard.problem:
        raise Failed(heard.problem)
    server = environment.addresses[partner.rank]
    wanted = perftest.arguments(rail.hca, rail.gid, environment.seconds, port, server)
    try:
        rates = Rates(await perftest.run_client(program, wanted, environment.seconds))
    except perftest.PerftestError as error:
        rates = Rates(None, f"{environment.node}: {error}")
    await tell(partner.channel, rates, MESSAGE_SECONDS)
    return _given(rates)


async def _serve(rail: Rail, partner: Partner, program: str, port: int, environment: MeasureEnvironment) -> float:
    assert rail.gid is not None
    wanted = perftest.arguments(rail.hca, rail.gid, environment.seconds, port)
    try:
        server = await perftest.Server.start(program, wanted, port)
    except perftest.PerftestError as error:
        problem = f"{environment.node}: {error}"
        await tell(partner.channel, Serving(problem), MESSAGE_SECONDS)
        raise Failed(problem) from error
    try:
        await tell(partner.channel, Serving(), MESSAGE_SECONDS)
        return _given(await hear(partner.channel, Rates, max(1.0, environment.seconds) + MARGIN_SECONDS))
    finally:
        await server.close()


def _given(rates: Rates) -> float:
    if rates.gbps is None:
        raise Failed(rates.problem)
    return rates.gbps


def changes_of(device: str) -> int:
    """How often the device's carrier has come or gone; -1 without such a device, which whoever uses it will say."""
    try:
        return carrier_changes(device)
    except (OSError, ValueError):
        return -1
