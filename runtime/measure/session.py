"""The hosts that this one measures with: how they meet on the management network, and in what order rails follow.

All hosts keep one order of the rails, so that no two ever wait for each other crosswise. Whom a rail is measured with
is told first which rails each side wants: what either wants, both measure.
"""

import asyncio
from collections.abc import Callable

from runtime.log import log
from runtime.measure import perftest
from runtime.measure.environment import MeasureEnvironment, Rail
from runtime.measure.messages import Plan, hear, tell
from runtime.measure.rail import MARGIN_SECONDS, MESSAGE_SECONDS, RAIL_SECONDS, Partner, changes_of, hello, measure_rail
from runtime.measure.results import Result
from runtime.probe.door import Door
from runtime.probe.handshake import Refused, WrongKey, introduce
from runtime.probe.messages import Hello
from runtime.probe.sockets import connect, listen
from runtime.probe.wire import Channel, ChannelError, ChannelSilent, reason

CONTROL = -1
RETRY_SECONDS = 0.1
CONNECT_SECONDS = 2.0


class Session:
    """One run. ``tell`` is called before each rail, ``done`` with each result."""

    def __init__(
        self, environment: MeasureEnvironment, tell: Callable[[str], None], done: Callable[[Result], None]
    ) -> None:
        self._environment = environment
        self._tell = tell
        self._done = done
        self._channels: dict[int, Channel] = {}
        self._absent: dict[int, str] = {}
        self._came = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Measure what is wanted with everybody who comes in time."""
        e = self._environment
        wanted = {rail.link.far(e.rank).rank for rail in e.rails if rail.wanted}
        try:
            await self._gather(wanted)
            partners = await self._agree()
            await self._measure(partners)
        finally:
            for channel in self._channels.values():
                channel.close()

    async def _gather(self, wanted: set[int]) -> None:
        """Meet the hosts with these ranks: the lower rank of two listens."""
        e = self._environment
        names = ", ".join(e.nodes[rank] for rank in sorted(wanted))
        self._tell(f"meeting {names} to measure")
        door: asyncio.Task[None] | None = None
        if any(rail.link.far(e.rank).rank > e.rank for rail in e.rails):
            try:
                listener = listen(e.addresses[e.rank], e.port)
            except OSError as error:
                problem = f"cannot listen on {e.addresses[e.rank]}:{e.port}: {reason(error)}"
                self._absent |= {rank: problem for rank in wanted if rank > e.rank}
            else:
                door = asyncio.create_task(Door(listener, e.rank, e.key, self._refuse, self._welcome).run())
        try:
            async with asyncio.TaskGroup() as tasks:
                for rank in sorted(wanted - self._absent.keys()):
                    tasks.create_task(self._reach(rank) if rank < e.rank else self._await(rank))
        finally:
            self._closed = True
            if door is not None:
                door.cancel()
                await asyncio.gather(door, return_exceptions=True)

    def _refuse(self, said: Hello, host: str) -> str:
        e = self._environment
        if (said.cluster, said.epoch, said.world_size) != (e.cluster, e.epoch, len(e.nodes)):
            return f"epoch {e.epoch} of {e.cluster} is measured here"
        neighbours = {rail.link.far(e.rank).rank for rail in e.rails}
        if said.rank not in neighbours or said.rank < e.rank or e.nodes[said.rank] != said.node or said.link != CONTROL:
            return f"{said.node} with rank {said.rank} has no rail to {e.node}"
        if self._closed or said.rank in self._channels:
            return f"{e.node} is measuring already"
        return ""

    def _welcome(self, said: Hello, host: str, channel: Channel) -> None:
        self._channels[said.rank] = channel
        self._came.set()

    async def _await(self, rank: int) -> None:
        e = self._environment
        try:
            async with asyncio.timeout(e.patience):
                while rank not in self._channels:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            where = f"{e.addresses[e.rank]}:{e.port}"
            self._absent[rank] = f"{e.nodes[rank]} did not come to {where} within {e.patience:g} s"

    async def _reach(self, rank: int) -> None:
        e = self._environment
        end = asyncio.get_running_loop().time() + e.patience
        to = (e.addresses[rank], e.port)
        why = ""
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                channel = await connect(e.addresses[e.rank], to, min(CONNECT_SECONDS, left))
                try:
                    await introduce(channel, e.key, hello(e, CONTROL), CONNECT_SECONDS)
                except BaseException:
                    channel.close()
                    raise
                self._channels[rank] = channel
                return
            except (WrongKey, Refused) as error:
                why = f": {error}"
            except ChannelError as error:
                # How long the last of many attempts took says nothing.
                why = "" if isinstance(error, ChannelSilent) else f" ({error})"
            await asyncio.sleep(RETRY_SECONDS)
        self._absent[rank] = f"{e.nodes[rank]} did not answer on {to[0]}:{to[1]} within {e.patience:g} s{why}"

    async def _agree(self) -> dict[int, tuple[Partner, set[int]]]:
        """With each host, the links that either of the two wants."""
        e = self._environment
        mine: dict[int, Plan] = {}
        for rank in self._channels:
            shared = [rail for rail in e.rails if rail.link.far(e.rank).rank == rank]
            rdma = [rail.link.index for rail in shared if rail.rdma and perftest.find()]
            mine[rank] = Plan([rail.link.index for rail in shared if rail.wanted], rdma)
        agreed = {}
        # Everybody speaks before anybody listens.
        for step in ("tell", "hear"):
            for rank, channel in self._channels.items():
                try:
                    if step == "tell":
                        await tell(channel, mine[rank], MESSAGE_SECONDS)
                        continue
                    theirs = await hear(channel, Plan, e.patience + MESSAGE_SECONDS)
                except ChannelError as error:
                    self._absent[rank] = f"{e.nodes[rank]} {error} on the management network"
                    continue
                shared_links = {rail.link.index for rail in e.rails if rail.link.far(e.rank).rank == rank}
                partner = Partner(rank, channel, frozenset(mine[rank].rdma) & frozenset(theirs.rdma))
                agreed[rank] = partner, (set(mine[rank].wanted) | set(theirs.wanted)) & shared_links
        return agreed

    async def _measure(self, partners: dict[int, tuple[Partner, set[int]]]) -> None:
        e = self._environment
        for rail in e.rails:
            rank = rail.link.far(e.rank).rank
            partner, links = partners.get(rank, (None, {rail.link.index} if rail.wanted else set()))
            if rail.link.index not in links:
                continue
            if partner is None or rank in self._absent:
                self._done(self._unmeasured(rail, self._absent.get(rank, "")))
                continue
            self._tell(f"measuring {rail.link.end(e.rank).device} to {e.nodes[rank]}")
            try:
                result = await measure_rail(e, rail, partner, self._others())
            except ChannelError as error:
                log.warning("%s %s", e.nodes[rank], error)
                self._absent[rank] = f"{e.nodes[rank]} {error} on the management network"
                result = self._unmeasured(rail, self._absent[rank])
            self._done(result)

    def _others(self) -> float:
        """How long a host that has come may be busy with its other rails, of which it has as many as this one."""
        e = self._environment
        one = 2 * (2 * max(1.0, e.seconds) + MARGIN_SECONDS + 2 * RAIL_SECONDS)
        return e.patience + len(e.rails) * one

    def _unmeasured(self, rail: Rail, why: str) -> Result:
        e = self._environment
        end, far = rail.link.end(e.rank), rail.link.far(e.rank)
        return Result(end.device, e.nodes[far.rank], far.device, error=why, carrier_changes=changes_of(end.device))
