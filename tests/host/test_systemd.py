"""What only a real bus can show; the rest is in tests/contract."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkd.core.model import RankUnit
from sparkd.host.systemd import SystemdUnits
from sparkd.ports import DoorError
from tests.contract.manager import Manager, running
from tests.contract.waiting import Bell, until


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with running(denied="ResetFailedUnit") as found:
        yield found


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = {thread.name for thread in threading.enumerate()}
    yield
    assert {thread.name for thread in threading.enumerate()} == before


def test_a_refusal_says_what_and_why(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(address=manager.address)
        with pytest.raises(DoorError, match=r"^cannot forget sparkd-rank@7\.service: .*polkit rule is missing"):
            await units.forget(7)
        units.close()

    asyncio.run(body())


def test_a_missing_template_is_named(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(address=manager.address)
        template = manager.where / "units/sparkd-rank@.service"
        aside = template.rename(manager.where / "aside")
        try:
            with pytest.raises(DoorError, match=r"cannot start sparkd-rank@77\.service: .*not found.*package"):
                await units.start(77)
            await units.stop(77)
        finally:
            aside.rename(template)
        units.close()

    asyncio.run(body())


def test_a_lost_bus_costs_one_call_at_most_and_signals_come_back(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(address=manager.address)
        bell = Bell()
        units.subscribe(bell)
        await units.start(9)
        await until(units.observe, lambda found: any(unit.runs for unit in found))
        await bell.quiet()
        manager.lose_bus()
        await bell.rings()

        async def answers() -> bool:
            try:
                return bool(await units.observe())
            except DoorError:
                return False

        await until(answers, bool, 10)
        # The manager comes back to the bus in its own time, and the signals with it.
        end = time.monotonic() + 10
        while True:
            await bell.quiet()
            manager.order(9, "notify STATUS=still here")
            await asyncio.sleep(0.1)
            if bell.sources:
                break
            assert time.monotonic() < end, "no signal came after the bus was back"
        (unit,) = await units.observe()
        assert unit.text == "still here"
        await units.stop(9)
        await until(units.observe, lambda found: not found)
        units.close()

    asyncio.run(body())


def test_a_systemd_that_does_not_answer(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(deadline=0.3, address=manager.address)
        await units.observe()
        with manager.stuck():
            began = time.monotonic()
            with pytest.raises(DoorError, match=r"^cannot list the rank units: systemd did not answer within 0\.3 s$"):
                await units.observe()
            with pytest.raises(
                DoorError, match=r"^cannot stop sparkd-rank@7\.service: systemd did not answer within 0\.3 s$"
            ):
                await units.stop(7)
            assert time.monotonic() - began < 2
        await until(units.observe, lambda found: found == ())
        units.close()

    asyncio.run(body())


def test_no_bus_at_all(tmp_path: Path) -> None:
    async def body() -> None:
        units = SystemdUnits(address=f"unix:path={tmp_path}/bus")
        bell = Bell()
        units.subscribe(bell)
        with pytest.raises(DoorError, match=r"^cannot list the rank units: .*No such file or directory"):
            await units.observe()
        with pytest.raises(DoorError, match=r"^cannot start sparkd-rank@7\.service: .*No such file or directory"):
            await units.start(7)
        began = time.monotonic()
        units.close()
        assert time.monotonic() - began < 0.5

    asyncio.run(body())


def test_a_bus_that_takes_the_connection_and_says_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        units = SystemdUnits(deadline=0.1, address=f"unix:path={tmp_path}/bus")
        with pytest.raises(DoorError, match="systemd did not answer within"):
            await units.observe()
        with pytest.raises(DoorError, match="systemd has not answered for"):
            await units.observe()
        server.close()
        units.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"{tmp_path}/bus")
        server.listen()
        asyncio.run(body())


def test_units_that_are_not_of_an_epoch_are_not_ours(manager: Manager) -> None:
    def tell(verb: str, name: str) -> None:
        to = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
        command = ["busctl", f"--address={manager.address}", "call", *to, verb, "ss", name, "replace"]
        subprocess.run(command, check=True, capture_output=True)

    def observe() -> tuple[RankUnit, ...]:
        units = SystemdUnits(address=manager.address)
        try:
            return asyncio.run(units.observe())
        finally:
            units.close()

    strangers = ("sparkd-rank@canary.service", "sparkd-rank@007.service", "sparkd-rank@-7.service")
    for name in strangers:
        tell("StartUnit", name)
    assert observe() == ()
    for name in strangers:
        tell("StopUnit", name)
