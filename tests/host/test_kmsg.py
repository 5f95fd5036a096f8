"""The kernel's log: a pipe that keeps records apart (O_DIRECT, pipe(2)) stands for the device."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkd.host.kmsg import KernelLog, message
from tests.contract.waiting import until


@pytest.fixture
def ends() -> Iterator[tuple[Path, int]]:
    reads, writes = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    yield Path(f"/proc/self/fd/{reads}"), writes
    os.close(reads)
    os.close(writes)


def test_what_was_said_before_is_told_apart_from_what_is_said_now(ends: tuple[Path, int]) -> None:
    path, writes = ends

    async def body() -> None:
        told: list[tuple[str, bool]] = []

        async def heard() -> list[tuple[str, bool]]:
            return told

        log = KernelLog(path)
        os.write(writes, b"6,1,100,-;before\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n")
        assert log.follow(lambda text, new: told.append((text, new))) == ""
        assert await until(heard, bool) == [("before", False)]
        os.write(writes, b"3,2,200,-;now\n")
        os.write(writes, b"13,3,300,-;from a program\n")
        os.write(writes, b"4,4,400,-;then; with a semicolon\n")
        assert (await until(heard, lambda found: len(found) > 2))[1:] == [
            ("now", True),
            ("then; with a semicolon", True),
        ]
        log.close()
        os.write(writes, b"3,5,500,-;unheard\n")
        await asyncio.sleep(0.02)
        assert len(told) == 3

    asyncio.run(body())


def test_a_full_log_does_not_hold_up_the_loop(ends: tuple[Path, int]) -> None:
    path, writes = ends

    async def body() -> None:
        told: list[str] = []
        log = KernelLog(path)
        count = 0
        while count < 200:
            try:
                os.write(writes, f"6,{count},1,-;line {count}\n".encode())
            except BlockingIOError:
                break  # a pipe holds sixteen pages at least, a record each
            count += 1
        log.follow(lambda text, new: told.append(text))
        turns = 0
        while len(told) < count:
            turns += 1
            assert turns < 1000
            before = len(told)
            await asyncio.sleep(0)
            assert len(told) - before <= 64
        assert told == [f"line {number}" for number in range(count)]
        log.close()

    asyncio.run(body())


def test_a_log_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    async def body() -> None:
        log = KernelLog(tmp_path / "kmsg")
        assert log.follow(lambda text, new: None) == f"{tmp_path}/kmsg: No such file or directory"
        log.close()
        # As containers have it, whose /dev/kmsg is another file.
        (tmp_path / "kmsg").touch()
        assert log.follow(lambda text, new: None).endswith("not the kernel's log but a file that never has news")
        log.close()

    asyncio.run(body())


@pytest.mark.parametrize("record", [b"", b"x;y", b"6,1,2,-", b"14,1,2,-;of a program\n"])
def test_what_is_no_message_of_the_kernel_is_none(record: bytes) -> None:
    assert message(record) is None


def test_text_that_is_no_utf_8_is_shown_as_far_as_it_is() -> None:
    assert message(b"6,1,2,-;caf\xe9\n") == "caf\N{REPLACEMENT CHARACTER}"
