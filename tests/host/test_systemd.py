"""What only a real bus can show; the rest is in tests/contract."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gi.repository import Gio, GLib

from sparkd.core.model import RankUnit
from sparkd.host.systemd import SystemdUnits, connect
from sparkd.ports import DoorError
from tests.contract.manager import Manager, bus_alone, running
from tests.contract.waiting import Bell, until


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with running(denied="ResetFailedUnit") as found:
        yield found


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = {thread.name for thread in threading.enumerate()}
    yield
    assert {thread.name for thread in threading.enumerate()} <= before


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


async def heard_again(bell: Bell, manager: Manager, epoch: int) -> None:
    """A rank's news wakes, at the latest in ten seconds."""
    for number in range(100):
        await bell.quiet()
        manager.order(epoch, f"notify STATUS=still here {number}")
        await asyncio.sleep(0.1)
        if bell.sources:
            return
    raise AssertionError("no signal came")


def test_a_systemd_that_executes_itself_anew_goes_on_telling(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(address=manager.address)
        bell = Bell()
        units.subscribe(bell)
        await units.start(8)
        await until(units.observe, lambda found: any(unit.runs for unit in found))
        await bell.quiet()
        await asyncio.to_thread(manager.reexecute)
        await heard_again(bell, manager, 8)
        await units.stop(8)
        await until(units.observe, lambda found: not found)
        units.close()

    asyncio.run(body())


def test_a_systemd_that_comes_to_the_bus_late_is_asked_for_its_signals(tmp_path: Path) -> None:
    description = """<node><interface name="org.freedesktop.systemd1.Manager"><method name="Subscribe"/>
        </interface></node>"""
    asked: list[str] = []

    def answer(*call: Any) -> None:
        asked.append(call[4])
        call[6].return_value(None)

    async def body(address: str) -> None:
        units = SystemdUnits(address=address)
        bell = Bell()
        units.subscribe(bell)
        await bell.rings()
        with pytest.raises(DoorError, match=r"^cannot list the rank units: "):
            await units.observe()
        late = connect(address)
        interface = Gio.DBusNodeInfo.new_for_xml(description).interfaces[0]
        late.register_object("/org/freedesktop/systemd1", interface, answer, None, None)
        name = GLib.Variant("(su)", ("org.freedesktop.systemd1", 0))
        bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
        late.call_sync(*bus, "RequestName", name, None, Gio.DBusCallFlags.NONE, 1000, None)

        async def turn() -> list[str]:
            while GLib.MainContext.default().iteration(False):
                pass
            return asked

        assert await until(turn, bool) == ["Subscribe"]
        late.close_sync(None)
        units.close()

    with bus_alone(tmp_path) as address:
        asyncio.run(body(address))


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
        await heard_again(bell, manager, 9)
        (unit,) = await units.observe()
        assert unit.text.startswith("still here")
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


# Python keeps its lock for as long as it likes, and others come to the bus and go all the while, which `hears` is told.
LETS_CONNECTIONS_GO = """
import faulthandler, sys, time
from gi.repository import Gio, GLib
from sparkd.host.systemd import connect
faulthandler.dump_traceback_later(20, exit=True)
sys.setswitchinterval(1)
bus = "org.freedesktop.DBus"
hears = connect(sys.argv[1])
hears.signal_subscribe(bus, bus, "NameOwnerChanged", None, None, Gio.DBusSignalFlags.NONE, lambda *_: None)
for _ in range(50):
    lost = connect(sys.argv[1])
    lost.close_sync(None)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    del lost
    # What is told and not yet handed on refers to the connection as well.
    while GLib.MainContext.default().iteration(False):
        pass
print("done")
"""


def test_connections_that_go_do_not_wait_for_those_that_stay(tmp_path: Path) -> None:
    with bus_alone(tmp_path) as address:
        to = "org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus"
        others = f"while busctl --address={address} call {to} GetId; do :; done"
        with subprocess.Popen(["sh", "-c", others], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as coming:
            command = [sys.executable, "-c", LETS_CONNECTIONS_GO, address]
            ended = subprocess.run(command, check=False, capture_output=True, text=True)
            coming.kill()
        assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


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
    def observe() -> tuple[RankUnit, ...]:
        units = SystemdUnits(address=manager.address)
        try:
            return asyncio.run(units.observe())
        finally:
            units.close()

    strangers = ("sparkd-rank@canary.service", "sparkd-rank@007.service", "sparkd-rank@-7.service")
    for name in strangers:
        manager.call("StartUnit", "ss", name, "replace")
    assert observe() == ()
    for name in strangers:
        manager.call("StopUnit", "ss", name, "replace")
