"""One connection per link, bound to the link's own addresses and devices."""

import asyncio

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.probe.door import Door
from runtime.probe.handshake import introduce
from runtime.probe.messages import Hello
from runtime.probe.rendezvous import RETRY_SECONDS, make_hello, misfit
from runtime.probe.sockets import connect, listen
from runtime.probe.topology import Link
from runtime.probe.wire import Channel, ChannelError, reason

CONNECT_SECONDS = 3.0
# The connecting end knows why it failed (unreachable, refused), so the listening end lets it speak first.
MARGIN_SECONDS = 1.0


def rail_name(environment: RankEnvironment, link: Link, rank: int | None = None) -> str:
    """How every sentence names the end of ``link`` at ``rank`` (default: here); true on every node."""
    rank = environment.rank if rank is None else rank
    far = environment.name(link.far(rank).rank)
    return f"rail {link.end(rank).device} of {environment.nodes[rank]} to {far}"


async def connect_rails(environment: RankEnvironment, links: tuple[Link, ...]) -> dict[int, Channel]:
    """Connect every link that ends here, by link index.

    :raises RankFailure: 74 naming device and peer if one cannot be connected in time.
    """
    rails: dict[int, Channel] = {}
    mine = [link for link in links if environment.rank in (link.low.rank, link.high.rank)]
    try:
        async with asyncio.TaskGroup() as tasks:
            for link in mine:
                way = _await_peer if link.low.rank == environment.rank else _reach_peer
                tasks.create_task(way(environment, link, rails))
    except BaseExceptionGroup as group:
        for channel in rails.values():
            channel.close()
        raise group.exceptions[0] from None
    except BaseException:
        for channel in rails.values():
            channel.close()
        raise
    log.info("%d rails connected", len(rails))
    return rails


def _failure(environment: RankEnvironment, link: Link, what: str) -> RankFailure:
    far = link.far(environment.rank)
    return RankFailure(ExitCode.RAIL_FAILED, f"{rail_name(environment, link)} at {far.address}: {what}")


async def _await_peer(environment: RankEnvironment, link: Link, rails: dict[int, Channel]) -> None:
    connected = asyncio.Event()

    def refuse(hello: Hello, host: str) -> str:
        why = misfit(environment, hello)
        if not why and (hello.link, hello.rank, host) != (link.index, link.high.rank, link.high.address):
            why = f"this end belongs to rank {link.high.rank} at {link.high.address}"
        if not why and link.index in rails:
            why = "this rail is connected"
        return why

    def welcome(hello: Hello, host: str, channel: Channel) -> None:
        rails[link.index] = channel
        connected.set()

    try:
        listener = listen(link.low.address, environment.tuning.rail_port, link.low.device)
    except OSError as error:
        raise _failure(environment, link, f"cannot listen on {link.low.address}: {reason(error)}") from error
    door = asyncio.create_task(Door(listener, environment.rank, environment.group_key, refuse, welcome).run())
    seconds = environment.tuning.rail_timeout
    try:
        async with asyncio.timeout(seconds + MARGIN_SECONDS):
            await connected.wait()
    except TimeoutError as error:
        raise _failure(environment, link, f"did not connect within {seconds:g} s") from error
    finally:
        door.cancel()
        await asyncio.gather(door, return_exceptions=True)


async def _reach_peer(environment: RankEnvironment, link: Link, rails: dict[int, Channel]) -> None:
    loop = asyncio.get_running_loop()
    seconds = environment.tuning.rail_timeout
    end = loop.time() + seconds
    why = "no time"
    to = (link.low.address, environment.tuning.rail_port)
    while (left := end - loop.time()) > 0:
        patience = min(left, CONNECT_SECONDS)
        try:
            channel = await connect(link.high.address, to, patience, link.high.device)
            try:
                await introduce(channel, environment.group_key, make_hello(environment, link.index), patience)
            except BaseException:
                channel.close()
                raise
            rails[link.index] = channel
            return
        except ChannelError as error:
            why = str(error)
        await asyncio.sleep(RETRY_SECONDS)
    raise _failure(environment, link, f"not connected within {seconds:g} s: {why}")
