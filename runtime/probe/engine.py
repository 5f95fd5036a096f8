"""The story of one rank of the probe: meet, connect the rails, measure and check them, then one canary a second."""

import asyncio
import contextlib
import signal
from array import array
from functools import partial
from typing import NoReturn

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.notify import Progress, Stage
from runtime.probe.allreduce import AllReduce, RailError, WrongSum, own_vector
from runtime.probe.control import Control
from runtime.probe.hangup import Hangups
from runtime.probe.health import Health, HealthServer
from runtime.probe.measure import measure
from runtime.probe.messages import Abort, Leaving, Measured
from runtime.probe.race import race
from runtime.probe.rails import connect_rails, rail_name
from runtime.probe.rendezvous import gather_group
from runtime.probe.topology import Link, Ring, TopologyError, find_rings
from runtime.probe.wire import Channel, ChannelClosed, ChannelError

CHECK_ELEMENTS = 16384
CANARY_ELEMENTS = 96


def run_probe(environment: RankEnvironment, progress: Progress) -> ExitCode:
    """Run a rank of the probe until it is told to stop.

    :raises RankFailure: the group could not be formed, a check failed or a member was lost.
    """
    return Probe(environment, progress).main()


class Probe:
    """One rank. A subclass may contribute other vectors than the ones whose sums are known."""

    def __init__(self, environment: RankEnvironment, progress: Progress) -> None:
        self.environment = environment
        self.progress = progress
        self._prefix = ""

    def vector(self, rank: int, operation: int, length: int) -> "array[int]":
        """What this rank puts into the ``operation``-th all-reduce."""
        return own_vector(rank, operation, length)

    def main(self) -> ExitCode:
        """Run the rank in an event loop of its own."""
        return asyncio.run(self._main())

    async def _main(self) -> ExitCode:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        for number, drain in ((signal.SIGUSR1, True), (signal.SIGUSR2, False)):
            asyncio.get_running_loop().add_signal_handler(number, self._drain, drain)
        return await race(self._until(stop), self._live())

    def _drain(self, drain: bool) -> None:
        """It takes no requests, so that none runs."""
        self._prefix = "draining 0, " if drain else ""
        if self.progress.stage is Stage.READY:
            self.progress.ready(f"{self._prefix}told to {'drain' if drain else 'go on'}", changed=True)

    async def _until(self, stop: asyncio.Event) -> ExitCode:
        await stop.wait()
        log.info("told to stop")
        self.progress.stopping()
        return ExitCode.OK

    async def _live(self) -> NoReturn:
        environment = self.environment
        self.progress.report(Stage.INIT)
        health = Health(environment, asyncio.get_running_loop().time)
        async with contextlib.AsyncExitStack() as stack:
            if environment.rank == 0 and environment.api is not None:
                await stack.enter_async_context(HealthServer(environment.api, health.view))
            group = await gather_group(environment, self.progress)
            control = Control(environment, group)
            stack.callback(control.close)
            rails: dict[int, Channel] = {}
            stack.callback(_close_all, rails)
            health.formed(group.links, control.measured)
            try:
                await race(control.watch(), self._serve(group.links, rails, control, health))
            except RankFailure as failure:
                # Said before any connection closes: a member that closes without a word is taken for the lost one.
                await control.farewell(Abort(failure.code, failure.sentence))
                raise
            except asyncio.CancelledError:
                await control.farewell(Leaving(environment.rank))
                raise
            except Exception as error:
                sentence = f"{environment.name(environment.rank)}: {type(error).__name__}: {error}"
                await control.farewell(Abort(ExitCode.INTERNAL_ERROR, sentence))
                raise
        raise AssertionError("no contender returns")

    async def _serve(
        self, links: tuple[Link, ...], rails: dict[int, Channel], control: Control, health: Health
    ) -> NoReturn:
        environment = self.environment
        rings = _rings(links, environment.world_size)
        log.info("formed: %d ranks, %d links, %d rings", environment.world_size, len(links), len(rings))
        self.progress.report(Stage.FORMED, f"{environment.world_size} ranks over {len(links)} links")
        rails.update(await connect_rails(environment, links))
        with Hangups() as hangups:
            for index, channel in rails.items():
                hangups.watch(channel, partial(self._hung_up, links[index], control))
            await self._work(links, rings, rails, control, health)
        raise AssertionError("a rank works until it is told to stop")

    async def _work(
        self,
        links: tuple[Link, ...],
        rings: tuple[Ring, ...],
        rails: dict[int, Channel],
        control: Control,
        health: Health,
    ) -> NoReturn:
        environment, tuning = self.environment, self.environment.tuning
        # A rank whose turn has not come waits while the others measure.
        patience = tuning.rail_timeout + 3 * tuning.measure_seconds * len(links)
        slowest = await self._measure(links, rails, control, patience)
        self.progress.report(Stage.WARMUP, "checking sums", (len(links), len(links)))
        work = AllReduce(
            environment.rank,
            rings,
            rails,
            control.progress,
            max(patience, 2 * tuning.canary_timeout),
            self.vector,
        )
        await self._reduce(work, links, control, 0, CHECK_ELEMENTS)
        log.info("every sum over %d rings is right", len(rings))
        await self._canaries(work, links, control, health, slowest)

    async def _measure(
        self, links: tuple[Link, ...], rails: dict[int, Channel], control: Control, patience: float
    ) -> str:
        """Measure this rank's rails, every rank in the order of the links; the slowest one in words."""
        environment = self.environment
        slowest: tuple[float, str] = (float("inf"), "")
        # One total order over all links: of the links not yet measured the first always has both ends free.
        for link in links:
            if link.index not in rails:
                continue
            near = link.end(environment.rank)
            self.progress.report(Stage.WARMUP, f"measuring {near.device}", (link.index + 1, len(links)))
            try:
                result = await measure(
                    link, rails[link.index], environment.rank, environment.tuning.measure_seconds, patience
                )
            except ChannelError as error:
                await self._broken(link, error, control)
            outward, inward = result.forward, result.backward
            if near is link.high:
                outward, inward = inward, outward
            log.info(
                "%s: %.3g Gb/s out, %.3g Gb/s in, round trip %.0f us",
                rail_name(environment, link),
                outward,
                inward,
                result.latency * 1e6,
            )
            slowest = min(slowest, (min(outward, inward), near.device))
            if near is link.low:
                await control.report(Measured(link.index, result.latency, result.forward, result.backward))
        return f"slowest rail {slowest[1]} {slowest[0]:.3g} Gb/s"

    async def _canaries(
        self, work: AllReduce, links: tuple[Link, ...], control: Control, health: Health, slowest: str
    ) -> NoReturn:
        loop = asyncio.get_running_loop()
        interval = self.environment.tuning.canary_interval
        control.expect_progress()
        due = loop.time()
        before = ""
        while True:
            await self._reduce(work, links, control, health.canaries + 1, CANARY_ELEMENTS)
            health.canary()
            if health.canaries == 1:
                log.info("ready: the first canary came home, %s", slowest)
            outage = control.outages.text()
            text = f"{self._prefix}canary {health.canaries}, {outage or slowest}"
            self.progress.ready(text, bool(outage) != bool(before))
            before = outage
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _reduce(
        self, work: AllReduce, links: tuple[Link, ...], control: Control, operation: int, length: int
    ) -> None:
        try:
            await work.run(operation, length)
        except RailError as error:
            await self._broken(links[error.link], error.error, control)
        except WrongSum as error:
            raise RankFailure(
                ExitCode.RAIL_FAILED, f"{rail_name(self.environment, links[error.link])}: {error}"
            ) from error

    async def _broken(self, link: Link, error: ChannelError, control: Control) -> NoReturn:
        if not isinstance(error, ChannelClosed):
            raise RankFailure(ExitCode.RAIL_FAILED, f"{rail_name(self.environment, link)}: peer {error}") from error
        # Its process is gone, or says in a moment why it goes: the control plane decides.
        self._hung_up(link, control, str(error))
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    def _hung_up(self, link: Link, control: Control, how: str) -> None:
        rank = self.environment.rank
        control.rail_closed(link.far(rank).rank, f"{how} on rail {link.end(rank).device} of {self.environment.node}")


def _rings(links: tuple[Link, ...], world_size: int) -> tuple[Ring, ...]:
    try:
        return find_rings(links, world_size)
    except TopologyError as error:
        raise RankFailure(ExitCode.BAD_ENVIRONMENT, f"SPARKD_RAILS of the ranks: {error}") from error


def _close_all(rails: dict[int, Channel]) -> None:
    for channel in rails.values():
        channel.close()
