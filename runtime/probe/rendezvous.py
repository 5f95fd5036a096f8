"""Every rank meets rank 0 on its management address; the connections made here stay as the control plane."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.notify import Progress, Stage
from runtime.probe.door import Door
from runtime.probe.handshake import Refused, WrongKey, introduce
from runtime.probe.messages import Abort, Formed, Hello, Joined, Message, decode, encode
from runtime.probe.sockets import connect, listen
from runtime.probe.topology import Link, TopologyError, find_links
from runtime.probe.wire import Channel, ChannelError, Kind, reason

RETRY_SECONDS = 0.2
CONNECT_SECONDS = 5.0
# Rank 0 decides that the rendezvous failed; a worker gives it this much longer to say so.
MARGIN_SECONDS = 5.0
CONTROL = -1


@dataclass(frozen=True)
class Group:
    """A formed group: one channel per connected rank (rank 0 has all, the others have rank 0), and every link."""

    channels: dict[int, Channel]
    links: tuple[Link, ...]


def make_hello(environment: RankEnvironment, link: int = CONTROL) -> Hello:
    """The introduction of this rank; the rails travel only to the rendezvous."""
    rails = environment.rails if link == CONTROL else ()
    return Hello(
        environment.cluster,
        environment.epoch,
        environment.world_size,
        environment.rank,
        environment.node,
        link,
        rails,
    )


def misfit(environment: RankEnvironment, hello: Hello) -> str:
    """Why ``hello`` cannot come from a member of this group, or an empty string."""
    wanted = (environment.cluster, environment.epoch, environment.world_size)
    for what, found, expected in zip(
        ("cluster", "epoch", "world size"), (hello.cluster, hello.epoch, hello.world_size), wanted, strict=True
    ):
        if found != expected:
            return f"{what} is {found}, here it is {expected}"
    if not 0 <= hello.rank < environment.world_size or hello.rank == environment.rank:
        return f"rank {hello.rank} is no other member's rank"
    if environment.nodes[hello.rank] != hello.node:
        return f"rank {hello.rank} is {environment.nodes[hello.rank]}, not {hello.node}"
    return ""


async def gather_group(environment: RankEnvironment, progress: Progress) -> Group:
    """Form the group, as rank 0 or as a worker.

    :raises RankFailure: 69 naming who is missing, or 64 if the ranks' rails do not fit together.
    """
    if environment.rank == 0:
        return await _Host(environment, progress).run()
    return await _join(environment, progress)


class _Host:
    def __init__(self, environment: RankEnvironment, progress: Progress) -> None:
        self._environment = environment
        self._progress = progress
        self._members: dict[int, tuple[Hello, Channel, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._cannot_listen = ""

    async def run(self) -> Group:
        seconds = self._environment.tuning.rendezvous_timeout
        log.info("rendezvous begun at %s, for %g s", self._environment.rendezvous, seconds)
        formed = False
        door: Door | None = None
        try:
            async with asyncio.timeout(seconds):
                door = await self._open()
                opened = asyncio.create_task(door.run())
                try:
                    await self._until_complete()
                finally:
                    opened.cancel()
                    await asyncio.gather(opened, return_exceptions=True)
            group = await self._form()
            formed = True
            return group
        except TimeoutError:
            names = ", ".join(self._environment.name(rank) for rank in self._missing())
            sentence = f"rendezvous at {self._environment.rendezvous} incomplete after {seconds:g} s: {names} missing"
            if door is None:
                sentence += f" (cannot listen: {self._cannot_listen})"
            elif door.turned_away:
                sentence += f" (refused: {'; '.join(f'{host} {why}' for host, why in door.turned_away.items())})"
            raise await self._give_up(ExitCode.RENDEZVOUS_FAILED, sentence) from None
        except TopologyError as error:
            raise await self._give_up(ExitCode.BAD_ENVIRONMENT, f"SPARKD_RAILS of the ranks: {error}") from None
        finally:
            watchers = [watcher for _, _, watcher in self._members.values()]
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            if not formed:
                for _, channel, _ in self._members.values():
                    channel.close()

    async def _open(self) -> Door:
        endpoint = self._environment.rendezvous
        while True:
            try:
                listener = listen(endpoint.host, endpoint.port)
            except OSError as error:
                # The address may still be on its way, or an older rank about to let the port go.
                if not self._cannot_listen:
                    log.warning("cannot listen on %s yet: %s", endpoint, reason(error))
                self._cannot_listen = reason(error)
                self._progress.report(Stage.RENDEZVOUS, f"cannot listen on {endpoint}: {self._cannot_listen}")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            return Door(listener, self._environment.rank, self._environment.group_key, self._refuse, self._welcome)

    def _refuse(self, hello: Hello, host: str) -> str:
        why = misfit(self._environment, hello)
        if not why and hello.link != CONTROL:
            why = "this is the rendezvous, not a rail"
        if not why and hello.rank in self._members:
            why = f"rank {hello.rank} has already joined"
        return why

    def _welcome(self, hello: Hello, host: str, channel: Channel) -> None:
        log.info("%s joined from %s", self._environment.name(hello.rank), host)
        watcher = asyncio.create_task(self._watch(hello.rank, channel))
        self._members[hello.rank] = (hello, channel, watcher)
        self._changed.set()

    async def _watch(self, rank: int, channel: Channel) -> None:
        # A member says nothing until the group has formed, so anything that arrives is the end of it.
        try:
            await channel.receive(self._environment.tuning.rendezvous_timeout + MARGIN_SECONDS)
            why = "spoke out of turn"
        except ChannelError as error:
            why = str(error)
        log.warning("%s %s before the group had formed", self._environment.name(rank), why)
        del self._members[rank]
        channel.close()
        self._changed.set()

    def _missing(self) -> list[int]:
        return [rank for rank in range(1, self._environment.world_size) if rank not in self._members]

    async def _until_complete(self) -> None:
        while missing := self._missing():
            _report_missing(self._environment, self._progress, missing)
            await self._broadcast(Joined(tuple(missing)))
            await self._changed.wait()
            self._changed.clear()

    async def _form(self) -> Group:
        rails = {rank: hello.rails for rank, (hello, _, _) in self._members.items()}
        links = find_links({0: self._environment.rails, **rails}, self._environment.world_size)
        await self._broadcast(Formed(links))
        return Group({rank: channel for rank, (_, channel, _) in self._members.items()}, links)

    async def _broadcast(self, message: Message) -> None:
        data = encode(message)
        for _, channel, _ in list(self._members.values()):
            # Its watcher, or later the control plane, sees a broken connection too and knows what it means.
            with contextlib.suppress(ChannelError):
                await channel.send(Kind.MESSAGE, data, CONNECT_SECONDS)

    async def _give_up(self, code: ExitCode, sentence: str) -> RankFailure:
        await self._broadcast(Abort(code, sentence))
        for _, channel, _ in self._members.values():
            channel.finish()
        return RankFailure(code, sentence)


def _report_missing(environment: RankEnvironment, progress: Progress, missing: Sequence[int]) -> None:
    present = environment.world_size - len(missing)
    names = ", ".join(environment.name(rank) for rank in missing)
    progress.report(Stage.RENDEZVOUS, f"waiting for {names}", (present, environment.world_size))


async def _join(environment: RankEnvironment, progress: Progress) -> Group:
    log.info("rendezvous begun: joining %s at %s", environment.name(0), environment.rendezvous)
    progress.report(Stage.RENDEZVOUS, f"joining {environment.name(0)} at {environment.rendezvous}")
    channel = await _knock(environment)
    try:
        links = await _until_formed(environment, progress, channel)
    except BaseException:
        channel.close()
        raise
    return Group({0: channel}, links)


async def _knock(environment: RankEnvironment) -> Channel:
    loop = asyncio.get_running_loop()
    seconds = environment.tuning.rendezvous_timeout
    end = loop.time() + seconds
    endpoint = environment.rendezvous
    why = told = ""
    while (left := end - loop.time()) > 0:
        try:
            return await _introduced(environment, min(left, CONNECT_SECONDS))
        except ChannelError as error:
            if str(error) != why:
                log.info("%s at %s: %s; trying again", environment.name(0), endpoint, error)
            why = str(error)
            # What rank 0 said explains more than that it is gone by now.
            told = why if isinstance(error, (Refused, WrongKey)) else told
        await asyncio.sleep(RETRY_SECONDS)
    raise RankFailure(
        ExitCode.RENDEZVOUS_FAILED,
        f"{environment.name(environment.rank)} could not join {environment.name(0)} at {endpoint}"
        f" within {seconds:g} s: {told or why}",
    )


async def _introduced(environment: RankEnvironment, patience: float) -> Channel:
    endpoint = environment.rendezvous
    channel = await connect(environment.management_address, (endpoint.host, endpoint.port), patience)
    try:
        await introduce(channel, environment.group_key, make_hello(environment), patience)
    except BaseException:
        channel.close()
        raise
    return channel


async def _until_formed(environment: RankEnvironment, progress: Progress, channel: Channel) -> tuple[Link, ...]:
    patience = environment.tuning.rendezvous_timeout + MARGIN_SECONDS
    while True:
        try:
            message = decode(await channel.expect(Kind.MESSAGE, patience))
        except ChannelError as error:
            raise RankFailure(
                ExitCode.RENDEZVOUS_FAILED, f"{environment.name(0)} {error} before the group had formed"
            ) from error
        match message:
            case Joined(missing):
                _report_missing(environment, progress, missing)
            case Formed(links):
                return links
            case Abort(code, sentence):
                raise RankFailure(code, sentence)
            case _:
                raise RankFailure(
                    ExitCode.RENDEZVOUS_FAILED, f"{environment.name(0)} sent a {type(message).__name__} too early"
                )
