"""The ring all-reduce on paper: each position a list of numbers, each step an exchange."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.probe.schedule import chunk_span, closed_form, from_wire, ring_steps, to_wire

SIZES = st.integers(2, 8)


@given(SIZES, st.integers(0, 40), st.randoms(use_true_random=False))
def test_every_position_ends_with_the_whole_sum(size: int, length: int, random: object) -> None:
    draw = random.randrange  # type: ignore[attr-defined]
    start = [[draw(1000) for _ in range(length)] for _ in range(size)]
    values = [list(row) for row in start]
    schedules = [ring_steps(size, position) for position in range(size)]
    for number in range(2 * (size - 1)):
        sent = []
        for position in range(size):
            low, high = chunk_span(length, size, schedules[position][number].send)
            sent.append(values[position][low:high])
        for position in range(size):
            step = schedules[position][number]
            assert step.receive == schedules[position - 1][number].send
            low, high = chunk_span(length, size, step.receive)
            arrived = sent[position - 1]
            # What arrives is the sum of exactly the positions the schedule names: this is what each hop checks.
            assert arrived == [sum(start[p][i] for p in step.summed) for i in range(low, high)]
            own = values[position][low:high]
            values[position][low:high] = [a + b for a, b in zip(arrived, own, strict=True)] if step.reduce else arrived
    total = [sum(row[i] for row in start) for i in range(length)]
    assert values == [total] * size


@given(st.integers(0, 1000), SIZES)
def test_chunks_cover_the_vector_evenly(length: int, size: int) -> None:
    spans = [chunk_span(length, size, chunk) for chunk in range(size)]
    assert [i for low, high in spans for i in range(low, high)] == list(range(length))
    sizes = [high - low for low, high in spans]
    assert max(sizes) - min(sizes) <= 1


@given(SIZES, st.integers(0, 2**32), st.integers(0, 100), st.integers(0, 60))
def test_the_closed_form_is_the_sum(size: int, operation: int, start: int, length: int) -> None:
    vectors = [closed_form([rank], operation, start, start + length) for rank in range(size)]
    assert list(closed_form(range(size), operation, start, start + length)) == [
        sum(column) for column in zip(*vectors, strict=True)
    ]


@given(st.lists(st.integers(0, 15), min_size=3, max_size=3), st.integers(0, 10**6))
def test_only_one_of_each_rank_gives_the_sum(times: list[int], operation: int) -> None:
    found = sum(n * closed_form([rank], operation, 0, 1)[0] for rank, n in enumerate(times))
    assert (found == closed_form(range(3), operation, 0, 1)[0]) == (times == [1, 1, 1])


def test_a_stale_sum_is_not_the_next_one() -> None:
    assert closed_form(range(3), 1, 0, 50) != closed_form(range(3), 2, 0, 50)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_the_wire_is_little_endian(numbers: list[int]) -> None:
    values = array("q", numbers)
    data = to_wire(values)
    assert data == b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    assert from_wire(memoryview(data)) == values


def test_half_an_element_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        from_wire(b"1234567")
