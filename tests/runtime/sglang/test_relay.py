"""Standard error that is read slowly, or not at all."""

import os
import time
from collections.abc import Iterator

import pytest

from runtime.sglang.relay import Relay


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def drain(reading: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(reading, 65536)
        except BlockingIOError:
            return data
        data += piece


def test_what_is_read_comes_in_order(pipe: tuple[int, int]) -> None:
    relay = Relay(pipe[1])
    for number in range(100):
        relay.write(f"line {number}\n")
        relay.flush()
    assert drain(pipe[0]).decode() == "".join(f"line {number}\n" for number in range(100))
    assert not relay.pending


def test_a_reader_that_stands_still_holds_nobody_up_and_lines_are_dropped_with_a_word(pipe: tuple[int, int]) -> None:
    relay = Relay(pipe[1], limit=200_000)
    started = time.monotonic()
    for number in range(10_000):
        relay.write(f"{number:099d}\n")
        relay.flush()
    assert time.monotonic() - started < 5
    said = drain(pipe[0])
    while relay.pending:
        relay.flush()
        said += drain(pipe[0])
    relay.write("after\n")
    relay.flush()
    lines = (said + drain(pipe[0])).decode().splitlines()
    assert lines[:2] == [f"{0:099d}", f"{1:099d}"]
    assert lines[-1] == "after"
    dropped = lines[-2]
    assert dropped.endswith("lines were dropped: the log is read too slowly")
    assert int(dropped.split()[0]) == 10_000 - (len(lines) - 2)


def test_nobody_reads_any_more(pipe: tuple[int, int]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    relay = Relay(writing)
    relay.write("x\n")
    relay.flush()
    assert not relay.pending
    os.close(writing)


def test_the_rest_is_written_at_the_end_but_not_for_ever(pipe: tuple[int, int]) -> None:
    relay = Relay(pipe[1])
    relay.write("x" * 300_000)
    started = time.monotonic()
    relay.finish(0.2)
    assert 0.15 < time.monotonic() - started < 5
    assert relay.pending
