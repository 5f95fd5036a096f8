"""The control plane of three ranks in one process: what each of them believes when the group ends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

import pytest

from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.probe.control import SETTLE_SECONDS, SUSPICION_SECONDS, Control
from runtime.probe.messages import Abort, Beat, Leaving, Measured, decode
from runtime.probe.rendezvous import Group
from runtime.probe.wire import PAYLOAD_MAX, ChannelSilent, Kind
from tests.runtime.pairs import channel_pair
from tests.runtime.test_door import environment, links

NET = "127.60.9"
Play = Callable[[list[Control]], Awaitable[None]]


@contextlib.contextmanager
def star() -> Iterator[list[Group]]:
    """Rank 0 connected to ranks 1 and 2."""
    with channel_pair() as (first, one), channel_pair() as (second, two):
        yield [Group(channels, links(NET)) for channels in ({1: first, 2: second}, {0: one}, {0: two})]


async def watch(control: Control) -> str:
    """What the control plane ends with; unlike a rank, say nothing to the others."""
    try:
        await control.watch()
    except RankFailure as failure:
        return f"{failure.code:d} {failure.sentence}"


def play(script: Play, *watching: int, **changes: str) -> list[str]:
    """Run the ranks ``watching`` beside a script; the verdict of each."""

    async def run(groups: list[Group]) -> list[str]:
        controls = [Control(environment(rank, NET, **changes), group) for rank, group in enumerate(groups)]
        watchers = [asyncio.create_task(watch(controls[rank])) for rank in watching]
        await script(controls)
        async with asyncio.timeout(10):
            verdicts = await asyncio.gather(*watchers)
        for control in controls:
            control.close()
        assert len(asyncio.all_tasks()) == 1
        return verdicts

    with star() as groups:
        return asyncio.run(run(groups))


def test_rank_0_passes_on_that_a_member_left_before_others_draw_conclusions() -> None:
    async def leave(controls: list[Control]) -> None:
        # Rank 2 sees the rail close before it hears why.
        controls[2].lost(1, "closed the connection on rail enp1s0f1np1 of spark3")
        await asyncio.sleep(0.05)
        await controls[1].farewell(Leaving(1))

    assert play(leave, 0, 2) == ["70 rank 1 (spark2) left"] * 2


def test_the_first_error_reaches_everyone_word_for_word() -> None:
    async def abort(controls: list[Control]) -> None:
        controls[0].lost(2, "closed the connection")
        await controls[2].farewell(Abort(ExitCode.RAIL_FAILED, "rail x of spark3: wrong sum"))

    assert play(abort, 0, 1) == ["74 rail x of spark3: wrong sum"] * 2


def test_a_member_that_closes_without_a_word_is_the_lost_one() -> None:
    async def die(controls: list[Control]) -> None:
        controls[1].close()

    assert play(die, 0) == ["70 rank 1 (spark2) lost: closed the connection on the management network"]


def test_a_member_that_says_nothing_is_lost_and_explains_the_stall() -> None:
    async def freeze(controls: list[Control]) -> None:
        for control in controls[::2]:
            control.progress(8, 4)
            control.expect_progress()

    changes = {"SPARKD_CANARY_TIMEOUT": "0.6", "SPARKD_CANARY_INTERVAL": "0.1"}
    # Rank 2 watches as well and says that it lives; rank 1 is connected and silent.
    assert play(freeze, 0, **changes) == ["70 rank 1 (spark2) lost: said nothing for 0.6 s"]


async def canaries(controls: list[Control], seconds: float) -> None:
    """The rails go on for so long, whatever happens to the control plane."""
    for control in controls:
        control.expect_progress()
    for chunk in range(round(20 * seconds)):
        for control in controls:
            control.progress(chunk, 0)
        await asyncio.sleep(0.05)


def test_silence_alone_ends_nothing_and_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def cut_off(controls: list[Control]) -> None:
        # Rank 1 moves with the others and is not heard; rank 2 is heard, and then no more.
        talking = asyncio.create_task(watch(controls[2]))
        await canaries(controls, 0.5)
        assert controls[0].outages.text() == "management to rank 1 (spark2) silent for 0 s"
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        await canaries(controls, 1.2)
        assert controls[0].outages.text() == (
            "management to rank 1 (spark2) silent for 2 s, to rank 2 (spark3) silent for 1 s"
        )

    changes = {"SPARKD_CANARY_TIMEOUT": "0.4", "SPARKD_CANARY_INTERVAL": "0.1", "SPARKD_CONTROL_GRACE": "1.4"}
    with caplog.at_level("INFO", log.name):
        # Then the rails stop as well, and the one that fell silent last is the one that explains it.
        assert play(cut_off, 0, **changes) == ["70 rank 2 (spark3) lost: said nothing for 0.4 s"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(" silent")[0] for text in warnings] == [
        "management to rank 1 (spark2)",
        "management to rank 2 (spark3)",
    ]


def test_a_member_that_is_heard_again_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    async def come_back(controls: list[Control]) -> None:
        await canaries(controls, 0.6)
        assert "rank 1 (spark2)" in controls[0].outages.text()
        talking = [asyncio.create_task(watch(control)) for control in controls[1:]]
        await canaries(controls, 0.3)
        assert controls[0].outages.text() == ""
        controls[0].lost(1, "ended by the test")
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)

    changes = {"SPARKD_CANARY_TIMEOUT": "0.4", "SPARKD_CANARY_INTERVAL": "0.1"}
    with caplog.at_level("INFO", log.name):
        assert play(come_back, 0, **changes) == ["70 rank 1 (spark2) lost: ended by the test"]
    assert "management to rank 1 (spark2) is back" in caplog.text


def test_a_control_connection_that_only_closes_ends_nothing() -> None:
    async def sever(controls: list[Control]) -> None:
        for control in controls:
            control.expect_progress()
        controls[1].close()
        await canaries(controls, 2 * SETTLE_SECONDS)
        # A neighbour of rank 1 leaves because of it; nobody here shares a rail with rank 1.
        controls[0].rail_closed(2, "closed the connection on rail enp1s0f1np1 of spark1")

    assert play(sever, 0) == ["70 rank 1 (spark2) lost: closed the connection on the management network"]


def test_a_connection_closed_long_ago_explains_nothing() -> None:
    how = "closed the connection on rail enp1s0f1np1 of spark1"

    async def sever(controls: list[Control]) -> None:
        for control in controls:
            control.expect_progress()
        controls[1].close()
        await canaries(controls, SUSPICION_SECONDS + 0.2)
        controls[0].rail_closed(2, how)

    assert play(sever, 0) == [f"70 rank 2 (spark3) lost: {how}"]


def test_beats_do_not_pile_up_in_front_of_a_dead_network() -> None:
    async def flood() -> int:
        with star() as groups:
            channel = groups[0].channels[1]
            with contextlib.suppress(ChannelSilent):
                # The far end's kernel takes no more: to ours that is the same as a network that takes nothing.
                await channel.send(Kind.BULK, bytes(PAYLOAD_MAX * 16), 0.1)
            before = channel.pending()
            control = Control(environment(0, NET, SPARKD_CANARY_INTERVAL="0.01"), groups[0])
            watching = asyncio.create_task(watch(control))
            await asyncio.sleep(0.2)
            # The other member was not kept waiting for this one.
            beat = decode(await groups[2].channels[0].expect(Kind.MESSAGE, 1))
            assert isinstance(beat, Beat)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            return channel.pending() - before

    assert asyncio.run(flood()) == 0


def test_a_stall_while_everybody_answers_is_a_rails_fault() -> None:
    async def stall(controls: list[Control]) -> None:
        for control, standing in zip(controls, ((9, 2), (10, 0), (8, 4)), strict=True):
            control.progress(*standing)
            control.expect_progress()

    changes = {"SPARKD_CANARY_TIMEOUT": "1", "SPARKD_CANARY_INTERVAL": "0.1"}
    verdicts = play(stall, 0, 1, 2, **changes)
    # Rank 2 received least, so the link it waits on is the one; the others hear it when rank 0 leaves.
    assert verdicts[0] == (
        "74 rail enp1s0f1np1 of spark3 to rank 1 (spark2): carried nothing for 1 s though every member answers"
    )


def test_measurements_reach_rank_0() -> None:
    result = Measured(4, 1e-4, 90.0, 91.0)

    async def report(controls: list[Control]) -> None:
        await controls[2].report(result)
        await asyncio.sleep(0.05)
        assert controls[0].measured == {4: result}
        assert controls[2].measured == {4: result}
        controls[0].lost(1, "ended by the test")

    assert play(report, 0) == ["70 rank 1 (spark2) lost: ended by the test"]


def test_a_farewell_of_no_member_is_not_believed() -> None:
    async def babble(controls: list[Control]) -> None:
        await controls[1].farewell(Leaving(99))

    assert play(babble, 0) == ["70 rank 1 (spark2) lost: closed the connection on the management network"]


def test_a_farewell_does_not_wait_for_the_frozen() -> None:
    async def leave() -> float:
        loop = asyncio.get_running_loop()
        with star() as groups:
            control = Control(environment(0, NET), groups[0])
            start = loop.time()
            await control.farewell(Leaving(0))
            control.close()
            return loop.time() - start

    assert asyncio.run(leave()) == pytest.approx(0.5, abs=0.4)
