from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from sparkd.host.worker import Worker
from sparkd.ports import DoorError
from tests.contract.waiting import until


async def returned(worker: Worker) -> bool:
    return worker.overdue is None


def test_results_and_errors_reach_the_caller_from_one_thread() -> None:
    async def body() -> None:
        worker = Worker("the door", 2.0)
        names = await asyncio.gather(*(worker.call(lambda: threading.current_thread().name) for _ in range(5)))
        assert set(names) == {"the door"}
        with pytest.raises(ZeroDivisionError):
            await worker.call(lambda: 1 // 0)
        with pytest.raises(DoorError, match=r"^the door: /nowhere: No such file or directory$"):
            await worker.call(Path("/nowhere").read_text)
        assert await worker.call(lambda: 7) == 7
        worker.close()

    before = set(threading.enumerate())
    asyncio.run(body())
    assert set(threading.enumerate()) <= before


def test_a_stuck_call_fails_in_time_and_those_after_it_at_once_until_it_returns() -> None:
    async def body() -> None:
        worker = Worker("the door", 0.1)
        gate = threading.Event()
        began = time.monotonic()
        with pytest.raises(DoorError, match=r"^the door did not answer within 0\.1 s$"):
            await worker.call(gate.wait)
        assert 0.1 <= time.monotonic() - began < 1.0
        threads = threading.active_count()
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(DoorError, match="has not answered for"):
                await worker.call(lambda: 7)
        assert time.monotonic() - began < 0.1
        assert threading.active_count() == threads
        gate.set()
        await until(partial(returned, worker), bool)
        assert await worker.call(lambda: 7) == 7
        worker.close()

    asyncio.run(body())


def test_the_wait_in_the_queue_counts_and_a_call_given_up_before_it_began_never_begins() -> None:
    async def body() -> None:
        worker = Worker("the door", 0.2)
        gate = threading.Event()
        ran: list[int] = []
        first = asyncio.create_task(worker.call(gate.wait))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(worker.call(lambda: ran.append(2)))
        for task in (first, second):
            with pytest.raises(DoorError, match="did not answer"):
                await task
        gate.set()
        await until(partial(returned, worker), bool)
        await worker.call(lambda: ran.append(3))
        assert ran == [3]
        worker.close()

    asyncio.run(body())


def test_a_cancelled_call_that_waits_never_begins() -> None:
    async def body() -> None:
        worker = Worker("the door", 2.0)
        gate = threading.Event()
        ran: list[int] = []
        first = asyncio.create_task(worker.call(gate.wait))
        second = asyncio.create_task(worker.call(lambda: ran.append(2)))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        assert await first
        await worker.call(lambda: ran.append(3))
        assert ran == [3]
        worker.close()

    asyncio.run(body())


def test_a_late_answer_finds_nobody_and_harms_nothing() -> None:
    worker = Worker("the door", 0.05)
    gate = threading.Event()

    async def body() -> None:
        with pytest.raises(DoorError):
            await worker.call(gate.wait)

    asyncio.run(body())  # the loop is closed when the call returns
    gate.set()
    worker.close()
    assert "the door" not in {thread.name for thread in threading.enumerate()}


def test_close_runs_the_last_thing_in_the_thread_and_further_calls_are_refused() -> None:
    async def body() -> None:
        worker = Worker("the door", 2.0)
        where: list[str] = []
        await worker.call(lambda: None)
        worker.close(lambda: where.append(threading.current_thread().name))
        worker.close(lambda: where.append("twice"))
        assert where == ["the door"]
        with pytest.raises(DoorError, match="is closed"):
            await worker.call(lambda: 7)

    asyncio.run(body())


def test_a_stuck_call_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading
from sparkd.host.worker import Worker
from sparkd.ports import DoorError
async def main():
    worker = Worker("the door", 0.05)
    try:
        await worker.call(threading.Event().wait)
    except DoorError as error:
        print(error)
    worker.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=True)
    assert done.stdout == "the door did not answer within 0.05 s\n"
    assert done.stderr == ""
