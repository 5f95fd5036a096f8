"""The control plane of a formed group: signs of life, results, farewells; and the verdict when it ends.

Rank 0 is connected to every other rank and passes on what concerns all. Once canaries go round, the group needs the
management network no more than NCCL needs its bootstrap network: as long as the rails go on, nothing that happens
to a control connection ends the group.
"""

import asyncio
import contextlib
import math
from typing import NoReturn

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.probe.messages import Abort, Beat, Leaving, Measured, Message, decode, encode
from runtime.probe.outages import Outages
from runtime.probe.race import race
from runtime.probe.rails import rail_name
from runtime.probe.rendezvous import Group
from runtime.probe.verdict import Loss, Notice, SilenceClock, Standing, first_cause, silent_member, stalled_link
from runtime.probe.wire import Channel, ChannelClosed, ChannelError, Kind

# What was seen waits so long for words that explain it, and for our own SIGTERM when the whole group is stopped.
SETTLE_SECONDS = 0.3
FAREWELL_SECONDS = 0.5
# In larger rings a rank sees a member that is not next to it close the control connection, and a moment later its
# own neighbours leave because of that.
SUSPICION_SECONDS = 2.0
# The kernel gives a connection up after a quarter of an hour without acknowledgement (tcp_retries2). A switch may be
# away for longer, and with the connection the group would lose its words for good.
OUTAGE_SECONDS = 86400.0
# A beat is 60 bytes. More of them tell nothing, and a full send buffer would cut one in the middle.
BACKLOG_BYTES = 4096


class Control:
    """Owns the control channels of ``group``; :meth:`watch` runs beside whatever the group does."""

    def __init__(self, environment: RankEnvironment, group: Group) -> None:
        self._environment = environment
        self._links = group.links
        self._channels = group.channels
        self._locks = {rank: asyncio.Lock() for rank in group.channels}
        self._losses: list[Loss] = []
        self._noticed = asyncio.Event()
        self._standings: dict[int, Standing] = {}
        self._period = min(0.5, environment.tuning.canary_timeout / 8)
        # Our own entry is heard whenever the all-reduce moves.
        members = [environment.rank, *group.channels]
        self._clock = SilenceClock(members, asyncio.get_running_loop().time(), self._period)
        self._moving = False
        self._closed: dict[int, tuple[float, str]] = {}
        tuning = environment.tuning
        self.outages = Outages(environment.name, tuning.canary_timeout, tuning.control_grace)
        for channel in group.channels.values():
            channel.outlast(OUTAGE_SECONDS)
        self.measured: dict[int, Measured] = {}

    def progress(self, progress: int, waiting: int) -> None:
        """The all-reduce received its ``progress``-th chunk and now waits on link ``waiting`` (-1: on none)."""
        self._standings[self._environment.rank] = Standing(progress, waiting)
        self._clock.hear(self._environment.rank, asyncio.get_running_loop().time())

    def expect_progress(self) -> None:
        """From now on an all-reduce that does not move is a failure."""
        self._clock.hear(self._environment.rank, asyncio.get_running_loop().time())
        self._moving = True

    def notice(self, loss: Loss) -> None:
        """Add an observation; the verdict follows in :meth:`watch`."""
        self._losses.append(loss)
        self._noticed.set()

    def lost(self, rank: int, how: str, notice: Notice = Notice.CLOSED) -> None:
        """Member ``rank`` is gone, ``how`` says how that was noticed."""
        self.notice(Loss(notice, ExitCode.MEMBER_LOST, f"{self._environment.name(rank)} lost: {how}"))

    def rail_closed(self, rank: int, how: str) -> None:
        """The far end of a rail to ``rank`` is gone: that process ended, or lost its control connection before."""
        now = asyncio.get_running_loop().time()
        for member, (since, words) in self._closed.items():
            if now - since <= SUSPICION_SECONDS:
                self.lost(member, words)
        self.lost(rank, how)

    async def watch(self) -> NoReturn:
        """Run the control plane until the group ends.

        :raises RankFailure: 70 naming the member that was lost, or whatever another member failed with.
        """
        readers = [self._read(rank, channel) for rank, channel in self._channels.items()]
        await race(self._verdict(), self._beat(), self._look(), *readers)
        raise AssertionError("no contender returns")

    async def report(self, measured: Measured) -> None:
        """Take a measurement down, and tell rank 0."""
        self.measured[measured.link] = measured
        if self._environment.rank != 0:
            await self._send(0, measured)

    async def farewell(self, message: Leaving | Abort) -> None:
        """Tell everyone connected why we go, and wait a moment for them to have read it."""
        await asyncio.gather(*(self._send(rank, message) for rank in self._channels))
        for channel in self._channels.values():
            channel.finish()
        # Nobody who cannot be heard will confirm anything.
        heard = [channel for rank, channel in self._channels.items() if not self.outages.silent(rank)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await asyncio.gather(*(channel.drain() for channel in heard))

    def close(self) -> None:
        """Close every control channel."""
        for channel in self._channels.values():
            # What is on its way to a dead network is not worth keeping in the kernel.
            with contextlib.suppress(OSError):
                channel.outlast(FAREWELL_SECONDS)
            channel.close()

    async def _send(self, rank: int, message: Message) -> None:
        async with self._locks[rank]:
            # Whatever breaks here is seen by the reader of the same channel, which knows what it means.
            with contextlib.suppress(ChannelError):
                await self._channels[rank].send(Kind.MESSAGE, encode(message), FAREWELL_SECONDS)

    async def _verdict(self) -> NoReturn:
        await self._noticed.wait()
        if first_cause(self._losses).notice is not Notice.ABORTED:
            await asyncio.sleep(SETTLE_SECONDS)
        cause = first_cause(self._losses)
        raise RankFailure(cause.code, cause.sentence)

    async def _read(self, rank: int, channel: Channel) -> NoReturn:
        try:
            while True:
                # Silence is judged by _look, which also knows about the time we did not run ourselves.
                payload = await channel.expect(Kind.MESSAGE, math.inf)
                self._clock.hear(rank, asyncio.get_running_loop().time())
                await self._take(rank, decode(payload))
        except ChannelError as error:
            words = f"{error} on the management network"
            if isinstance(error, ChannelClosed) and self._moving:
                # A dead process closes its rails too; a firewall or a time-out only this.
                self._closed[rank] = (asyncio.get_running_loop().time(), words)
                await asyncio.sleep(SUSPICION_SECONDS)
                log.warning("%s %s, the rails go on: serving", self._environment.name(rank), words)
            else:
                self.lost(rank, words)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def _take(self, rank: int, message: Message) -> None:
        match message:
            case Beat(progress, waiting):
                self._standings[rank] = Standing(progress, waiting)
            case Measured():
                self.measured[message.link] = message
            case Leaving(who) if 0 <= who < self._environment.world_size:
                await self._pass_on(rank, message)
                left = f"{self._environment.name(who)} left"
                self.notice(Loss(Notice.LEFT, ExitCode.MEMBER_LOST, left))
            case Abort(code, sentence):
                await self._pass_on(rank, message)
                self.notice(Loss(Notice.ABORTED, code, sentence))
            case _:
                log.warning("%s sent a %s, ignored", self._environment.name(rank), type(message).__name__)

    async def _pass_on(self, source: int, message: Message) -> None:
        if self._environment.rank == 0:
            for rank in self._channels:
                if rank != source:
                    await self._send(rank, message)

    async def _beat(self) -> NoReturn:
        tuning = self._environment.tuning
        while True:
            mine = self._standings.get(self._environment.rank, Standing(0, -1))
            for rank, channel in self._channels.items():
                if channel.pending() < BACKLOG_BYTES:
                    await self._send(rank, Beat(mine.progress, mine.waiting))
            await asyncio.sleep(min(tuning.canary_interval, tuning.canary_timeout / 5))

    async def _look(self) -> NoReturn:
        timeout = self._environment.tuning.canary_timeout
        while True:
            await asyncio.sleep(self._period)
            silences = self._clock.look(asyncio.get_running_loop().time())
            still = silences.pop(self._environment.rank)
            if self._moving:
                self.outages.look(silences)
            if self._moving and still <= timeout:
                continue
            silent = silent_member(silences, timeout)
            # A member that has just fallen silent is about to be found lost, and explains the stall.
            if self._moving and any(timeout / 2 < seconds <= timeout for seconds in silences.values()):
                continue
            if silent is not None:
                self.lost(silent, f"said nothing for {timeout:g} s", Notice.SILENT)
            # Rank 0 hears everyone and decides; the others speak up only if it does not.
            elif self._moving and still > (stalled := timeout if self._environment.rank == 0 else 1.5 * timeout):
                self.notice(Loss(Notice.SILENT, ExitCode.RAIL_FAILED, self._stall_sentence(stalled)))

    def _stall_sentence(self, seconds: float) -> str:
        place = stalled_link(self._standings)
        if place is None or place[1] >= len(self._links):
            return f"no canary for {seconds:g} s though every member answers"
        name = rail_name(self._environment, self._links[place[1]], place[0])
        return f"{name}: carried nothing for {seconds:g} s though every member answers"
