"""Which of several observations to believe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.exits import ExitCode
from runtime.probe.verdict import Loss, Notice, SilenceClock, Standing, first_cause, silent_member, stalled_link


def loss(notice: Notice, sentence: str = "") -> Loss:
    return Loss(notice, ExitCode.MEMBER_LOST, sentence or notice.name)


@given(st.permutations([*Notice, *Notice]))
def test_what_was_said_outranks_what_was_seen(order: list[Notice]) -> None:
    losses = [loss(notice, f"{place}") for place, notice in enumerate(order)]
    assert first_cause(losses) == losses[order.index(Notice.ABORTED)]
    rest = [item for item in losses if item.notice > Notice.ABORTED]
    assert first_cause(rest).notice is Notice.LEFT


@given(st.integers(2, 8), st.integers(0, 7), st.integers(0, 3), st.integers(0, 500))
def test_the_link_that_carries_nothing_is_where_least_arrived(size: int, dead: int, ring: int, before: int) -> None:
    dead %= size
    steps = 2 * (size - 1)
    arrived = dict.fromkeys(range(size), before + ring * steps)
    # The link into ``dead`` carries nothing: let everyone else go as far as it can.
    done = dict.fromkeys(range(size), 0)
    for _ in range(size * steps):
        for rank in range(size):
            if rank != dead and done[rank] < steps and done[(rank - 1) % size] >= done[rank]:
                done[rank] += 1
    standings = {rank: Standing(arrived[rank] + done[rank], (rank - 1) % size) for rank in range(size)}
    assert stalled_link(standings) == (dead, (dead - 1) % size)


def test_nobody_waiting_is_no_link() -> None:
    assert stalled_link({}) is None
    assert stalled_link({0: Standing(4, -1), 1: Standing(4, -1)}) is None


def test_of_the_silent_the_last_to_be_heard_is_blamed() -> None:
    assert silent_member({1: 0.5, 2: 10.0}, 10.0) is None
    assert silent_member({1: 0.5, 2: 10.1}, 10.0) == 2
    # Rank 1 has been cut off for an hour, in which the all-reduce moved.
    assert silent_member({1: 3600.0, 2: 10.1, 3: 0.1}, 10.0) == 2


def test_silence_counts_from_the_last_word() -> None:
    clock = SilenceClock([1, 2], now=100.0, period=0.5)
    clock.hear(1, 100.4)
    assert clock.look(100.5) == pytest.approx({1: 0.1, 2: 0.5})
    assert clock.look(101.0) == pytest.approx({1: 0.6, 2: 1.0})


def test_time_in_which_we_did_not_run_ourselves_is_nobodys_silence() -> None:
    clock = SilenceClock([1], now=0.0, period=0.5)
    clock.hear(1, 0.4)
    assert clock.look(0.5) == pytest.approx({1: 0.1})
    # Frozen for a minute; the others' words are waiting to be read.
    assert clock.look(60.5)[1] <= 0.7
    assert clock.look(61.0)[1] <= 1.2
    # A member that stays silent afterwards is still found.
    assert [clock.look(61.5 + tick / 2)[1] for tick in range(20)][-1] > 10
