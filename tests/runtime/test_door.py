"""Who gets in: at the rendezvous' door and at a rail's."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator

import pytest

from runtime.environment import RankEnvironment, read_environment
from runtime.exits import ExitCode, RankFailure
from runtime.probe.door import GUESTS_MAX, Door
from runtime.probe.handshake import Refused, introduce
from runtime.probe.messages import Hello
from runtime.probe.rails import connect_rails
from runtime.probe.rendezvous import make_hello, misfit
from runtime.probe.sockets import connect, listen
from runtime.probe.topology import Link, find_links
from runtime.probe.wire import Channel
from tests.runtime.pairs import PATIENCE
from tests.runtime.test_environment import GOOD
from tests.runtime.triangle import rails_text, triangle_rails

NET = "127.60.1"


def environment(rank: int, net: str = NET, **changes: str) -> RankEnvironment:
    rails = rails_text(triangle_rails(net, 3)[rank])
    return read_environment(
        {
            **GOOD,
            "SPARKD_RANK": str(rank),
            "SPARKD_NODE": f"spark{rank + 1}",
            "SPARKD_RAILS": rails,
            "SPARKD_RAIL_TIMEOUT": "0.5",
            **changes,
        }
    )


class Members:
    """Takes each rank once, like the rendezvous."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}

    def refuse(self, hello: Hello, host: str) -> str:
        return "taken" if hello.rank in self.channels else ""

    def welcome(self, hello: Hello, host: str, channel: Channel) -> None:
        assert hello.rank not in self.channels
        self.channels[hello.rank] = channel


@contextlib.asynccontextmanager
async def open_door(members: Members, address: str) -> AsyncIterator[Door]:
    door = Door(listen(address, 20000), 0, environment(0).group_key, members.refuse, members.welcome)
    running = asyncio.create_task(door.run())
    try:
        yield door
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for channel in members.channels.values():
            channel.close()


async def knock(rank: int, address: str) -> Channel:
    channel = await connect("127.0.0.1", (address, 20000), PATIENCE)
    try:
        await introduce(channel, environment(rank).group_key, make_hello(environment(rank)), PATIENCE)
    except BaseException:
        channel.close()
        raise
    return channel


def test_a_crowd_of_silent_strangers_keeps_no_member_out() -> None:
    async def crowd() -> None:
        members = Members()
        async with open_door(members, f"{NET}.100"):
            strangers = [await connect("127.0.0.1", (f"{NET}.100", 20000), PATIENCE) for _ in range(GUESTS_MAX + 8)]
            async with asyncio.timeout(3):
                member = await knock(1, f"{NET}.100")
            assert list(members.channels) == [1]
            for channel in (*strangers, member):
                channel.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(crowd())


def test_of_many_claims_to_one_rank_one_gets_in() -> None:
    async def claim() -> None:
        members = Members()
        async with open_door(members, f"{NET}.101"):
            claims = await asyncio.gather(*(knock(1, f"{NET}.101") for _ in range(8)), return_exceptions=True)
            assert list(members.channels) == [1]
            with pytest.raises(Refused, match="taken"):
                await knock(1, f"{NET}.101")
            for channel in claims:
                if isinstance(channel, Channel):
                    channel.close()

    asyncio.run(claim())


def test_a_hello_must_fit_the_group() -> None:
    here = environment(0)
    assert misfit(here, make_hello(environment(1))) == ""
    for changes, why in (
        ({"SPARKD_EPOCH": "8"}, "epoch is 8, here it is 7"),
        ({"SPARKD_CLUSTER": "other"}, "cluster is other, here it is lab"),
        ({"SPARKD_NODES": "spark1,spark9,spark3", "SPARKD_NODE": "spark9"}, "rank 1 is spark2, not spark9"),
        ({"SPARKD_WORLD_SIZE": "4", "SPARKD_NODES": "spark1,spark2,spark3,spark4"}, "world size is 4, here it is 3"),
    ):
        assert misfit(here, make_hello(environment(1, **changes))) == why
    assert misfit(here, make_hello(here)) == "rank 0 is no other member's rank"


def links(net: str) -> tuple[Link, ...]:
    return find_links(triangle_rails(net, 3), 3)


async def attach(net: str, link: Link, claim: RankEnvironment, source: str, index: int) -> Channel:
    channel = await connect(source, (link.low.address, 20100), PATIENCE)
    try:
        await introduce(channel, claim.group_key, make_hello(claim, index), PATIENCE)
    except BaseException:
        channel.close()
        raise
    return channel


def test_a_rail_takes_only_its_own_other_end() -> None:
    net = "127.60.2"
    first, *_, last = [link for link in links(net) if link.low.rank == 0]

    async def cross() -> None:
        connecting = asyncio.create_task(
            connect_rails(environment(0, net, SPARKD_RAIL_TIMEOUT=str(PATIENCE)), links(net))
        )
        await asyncio.sleep(0.1)
        ours, other = environment(1, net), environment(2, net)
        for claim, source, index in (
            (other, first.high.address, first.index),  # another rank
            (ours, last.high.address, first.index),  # another cable
            (ours, first.high.address, last.index),  # another link's number
        ):
            with pytest.raises(Refused, match=f"this end belongs to rank 1 at {first.high.address}"):
                await attach(net, first, claim, source, index)
        channels = []
        for link in links(net):
            if link.low.rank == 0:
                claim = environment(link.high.rank, net)
                channels.append(await attach(net, link, claim, link.high.address, link.index))
        rails = await connecting
        assert sorted(rails) == [link.index for link in links(net) if link.low.rank == 0]
        for channel in (*channels, *rails.values()):
            channel.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cross())


@pytest.mark.parametrize(
    ("rank", "sentence"),
    [
        (0, r"rail en\w+ of spark1 to rank [12] \(spark[23]\) at 127\.60\.3\.\d+: did not connect within 0\.5 s"),
        (2, r"rail en\w+ of spark3 to rank [01] \(spark[12]\) at .*: not connected within 0\.5 s: Connection refused"),
    ],
)
def test_a_rail_nobody_answers_on_is_named(rank: int, sentence: str) -> None:
    net = "127.60.3"
    with pytest.raises(RankFailure) as caught:
        asyncio.run(connect_rails(environment(rank, net), links(net)))
    assert caught.value.code is ExitCode.RAIL_FAILED
    assert re.fullmatch(sentence, caught.value.sentence)


def test_every_connection_is_without_delay() -> None:
    async def delay() -> int:
        with contextlib.closing(listen("127.60.4.1", 20100)):
            channel = await connect("127.60.4.2", ("127.60.4.1", 20100), PATIENCE)
            with contextlib.closing(channel):
                return channel.option(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert asyncio.run(delay()) == 1
