"""The units of this host's ranks and of measuring rails, over D-Bus. The only place that knows pydbus and gi.

pydbus is used for connecting alone: its proxies fetch and parse a unit's whole introspection before the first call and
wait without end, so calls go to the Gio connection below it, each with the time that is left.
"""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pydbus
from gi.repository import Gio, GLib, GObject

from sparkd.core import news
from sparkd.core.model import RankUnit
from sparkd.host.procfs import catches
from sparkd.host.worker import Worker
from sparkd.ports import DoorError, Wake

_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = "org.freedesktop.systemd1.Manager"
_OBJECT = "/org/freedesktop/systemd1"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_BUS = "org.freedesktop.DBus"
RANK, MEASURE = "sparkd-rank", "sparkd-measure"
_NAME = re.compile(r"(?P<template>sparkd-(?:rank|measure))@(?P<epoch>0|[1-9][0-9]*)\.service")
_SOURCES = {RANK: "units", MEASURE: "rails"}
_PATHS = "/org/freedesktop/systemd1/unit/"
# How systemd writes "sparkd-rank@" in a path.
_PATH_PREFIXES = {f"{_PATHS}{template.replace('-', '_2d')}_40": source for template, source in _SOURCES.items()}
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_RECONNECT_PAUSE = 1.0  # seconds
_GRACE = 1.0  # seconds by which the worker's deadline exceeds that of the calls it makes
_DENIED = frozenset(
    {"org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"}
)


class _Failure(Exception):
    """A D-Bus error: its name (empty for one of the transport) and text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class SystemdUnits:
    """`deadline` in seconds for each operation; `address` of a bus other than the system's, for tests.

    A lost bus (its daemon was restarted) costs the call that notices it; the next one connects again.
    """

    def __init__(self, deadline: float = 5.0, address: str | None = None) -> None:
        self._deadline = deadline
        self._address = address
        # D-Bus calls end by themselves in time; only connecting can be stuck for longer.
        self._worker = Worker("systemd", deadline + _GRACE)
        self._connection: Any = None
        self._watch: _Watch | None = None

    async def observe(self, template: str = RANK) -> tuple[RankUnit, ...]:
        """`template`: RANK or MEASURE, as in `start` and `stop`; systemd shows the same of either."""
        return await self._worker.call(partial(self._observe, template))

    async def start(self, epoch: int, template: str = RANK) -> None:
        """Returns when systemd has accepted the job. Raises DoorError, also when a stop of the unit is under way."""
        await self._operate("StartUnit", epoch, "start", "fail", template=template)

    async def stop(self, epoch: int, template: str = RANK) -> None:
        """Returns when systemd has accepted the job. A unit that systemd does not know is stopped already."""
        await self._operate("StopUnit", epoch, "stop", "replace", fine=_NO_SUCH_UNIT, template=template)

    async def tell(self, epoch: int, drain: bool) -> None:
        """By a signal to the main process. One that an older version has started may not catch it, and would end."""
        await self._worker.call(partial(self._tell, epoch, signal.SIGUSR1 if drain else signal.SIGUSR2))

    def _tell(self, epoch: int, number: signal.Signals) -> None:
        unit = next((unit for unit in self._observe(RANK) if unit.epoch == epoch), None)
        if unit is None or not unit.main_pid:
            return
        if not catches(unit.main_pid, number):
            raise DoorError(f"the rank of {unit.name} was started by a version that cannot drain")
        arguments = GLib.Variant("(ssi)", (unit.name, "main", number))
        self._carry_out("KillUnit", arguments, f"signal {unit.name}", _NO_SUCH_UNIT)

    async def kill(self, epoch: int) -> None:
        """SIGKILL to every process of the unit. One that systemd does not know has none."""
        unit = RankUnit(epoch, active="").name
        arguments = GLib.Variant("(ssi)", (unit, "all", signal.SIGKILL))
        await self._worker.call(partial(self._carry_out, "KillUnit", arguments, f"kill {unit}", _NO_SUCH_UNIT))

    async def forget(self, epoch: int) -> None:
        """Clears the unit's failed state, upon which systemd unloads it."""
        await self._operate("ResetFailedUnit", epoch, "forget", fine=_NO_SUCH_UNIT)

    def subscribe(self, wake: Wake) -> None:
        """`wake("units")` for each news of a rank unit, `wake("rails")` of one that measures, both when systemd itself
        comes or goes, and when the bus does."""
        self._watch = _Watch(wake, partial(connect, self._address))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._worker.close(self._disconnect)

    def _disconnect(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            self._connection.close_sync(None)
        self._connection = None

    async def _operate(
        self, method: str, epoch: int, verb: str, *mode: str, fine: str = "", template: str = RANK
    ) -> None:
        unit = f"{template}@{epoch}.service"
        arguments = GLib.Variant(f"({'s' * (1 + len(mode))})", (unit, *mode))
        await self._worker.call(partial(self._carry_out, method, arguments, f"{verb} {unit}", fine))

    def _carry_out(self, method: str, arguments: Any, words: str, fine: str) -> None:
        try:
            self._call(_OBJECT, _MANAGER, method, arguments, self._deadline)
        except _Failure as failure:
            if not fine or failure.name != fine:
                raise DoorError(f"cannot {words}: {_explain(failure, self._deadline)}") from failure

    def _observe(self, template: str) -> tuple[RankUnit, ...]:
        end = time.monotonic() + self._deadline
        try:
            arguments = GLib.Variant("(asas)", ([], [f"{template}@*.service"]))
            listed = self._call(_OBJECT, _MANAGER, "ListUnitsByPatterns", arguments, self._deadline)
            units = []
            for name, _, _, active, sub, _, path, _, job, _ in listed.unpack()[0]:
                if (match := _NAME.fullmatch(name)) is not None:
                    units.append(self._unit(int(match["epoch"]), active, sub, job, path, end - time.monotonic()))
        except _Failure as failure:
            kind = template.removeprefix("sparkd-")
            raise DoorError(f"cannot list the {kind} units: {_explain(failure, self._deadline)}") from failure
        return tuple(sorted(units, key=lambda unit: unit.epoch))

    def _unit(self, epoch: int, active: str, sub: str, job: str, path: str, time_left: float) -> RankUnit:
        interface = GLib.Variant("(s)", (f"{_SYSTEMD}.Service",))
        properties = self._call(path, _PROPERTIES, "GetAll", interface, time_left).get_child_value(0)

        def value(name: str) -> Any:
            # Unpacking all of the two hundred properties takes longer than asking for them.
            found = properties.lookup_value(name, None)
            if found is None:
                raise _Failure("", f"{path} has no {name}")
            return found.unpack()

        return RankUnit(
            epoch=epoch,
            active=active,
            sub=sub,
            job=job,
            main_pid=value("MainPID"),
            result=value("Result"),
            exit_code=value("ExecMainCode"),
            exit_status=value("ExecMainStatus"),
            text=value("StatusText"),
        )

    def _call(self, path: str, interface: str, method: str, arguments: Any, time_left: float) -> Any:
        milliseconds = max(1, int(time_left * 1000))
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = connect(self._address)
            return self._connection.call_sync(
                _SYSTEMD, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, milliseconds, None
            )
        except GLib.Error as error:
            raise _failure(error) from error


def _forever() -> Any:
    """A list of GLib's that holds itself, so nothing in it is ever disposed of, not even as the interpreter ends."""
    kept = Gio.ListStore.new(GObject.Object)
    kept.append(kept)
    return kept


# GDBus takes one lock of the process both to dispose of a connection and to receive a message. Python holds its own
# lock when it lets a connection go, and GDBus's thread waits for that one when it refers to a connection that only
# Python holds: the two then wait for each other without end. GLib's reference here spares both. It costs some
# kilobytes for each time that the bus is lost.
_CONNECTIONS = _forever()


def connect(address: str | None) -> Any:
    """A connection of our own. The one that a process shares would end the process when the bus goes away."""
    try:
        connection = pydbus.connect(address or Gio.dbus_address_get_for_bus_sync(Gio.BusType.SYSTEM, None)).con
    except GLib.Error as error:
        raise _failure(error) from error
    _CONNECTIONS.append(connection)
    return connection


def _failure(error: Any) -> _Failure:
    name = Gio.DBusError.get_remote_error(error) or ""
    text = error.message.removeprefix(f"GDBus.Error:{name}: ") if name else error.message
    if error.matches(Gio.io_error_quark(), Gio.IOErrorEnum.TIMED_OUT):
        return _Failure("", "")
    return _Failure(name, text.rstrip("."))


def _explain(failure: _Failure, deadline: float) -> str:
    if failure.name in _DENIED:
        return f"{failure} (sparkd's polkit rule is missing, or this process does not run as user sparkd)"
    if failure.name == _NO_SUCH_UNIT:
        return f"{failure} (is sparkd's package installed completely?)"
    return str(failure) or f"systemd did not answer within {deadline:g} s"


class _Watch:
    """The thread whose GLib context receives the signals, with a connection of its own."""

    def __init__(self, wake: Wake, connect: Callable[[], Any]) -> None:
        self._wake = wake
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._context = GLib.MainContext.new()
        self._ending = threading.Event()
        self._told: dict[str, dict[str, dict[str, Any]]] = {}
        self._thread = threading.Thread(target=self._run, name="systemd signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._context.wakeup()
        self._thread.join(_GRACE)

    def _run(self) -> None:
        # Signals go to the context that was the thread's default when they were subscribed to.
        self._context.push_thread_default()
        while not self._ending.is_set():
            try:
                connection = self._connect()
            except _Failure:
                self._ending.wait(_RECONNECT_PAUSE)
            else:
                self._hear(connection)
                self._tell()  # whatever happened since
        self._context.pop_thread_default()

    def _hear(self, connection: Any) -> None:
        """Until the connection is lost or the watch is closed."""
        lost = threading.Event()
        self._told.clear()
        closing = connection.connect("closed", lambda *_: lost.set())
        try:
            self._listen(connection)
            self._tell()  # whatever happened before
            while not lost.is_set() and not self._ending.is_set():
                self._context.iteration(True)
        finally:
            connection.disconnect(closing)
            if not connection.is_closed():
                connection.close_sync(None)

    def _listen(self, connection: Any) -> None:
        def on(sender: str, interface: str, member: str, argument: str | None, handler: Callable[..., None]) -> None:
            connection.signal_subscribe(
                sender, interface, member, None, argument, Gio.DBusSignalFlags.NONE, handler, connection
            )

        on(_SYSTEMD, _PROPERTIES, "PropertiesChanged", None, self._on_properties)
        for member in ("JobNew", "JobRemoved", "UnitNew", "UnitRemoved"):
            on(_SYSTEMD, _MANAGER, member, None, self._on_manager)
        on(_BUS, _BUS, "NameOwnerChanged", _SYSTEMD, self._on_owner)
        self._ask_for_signals(connection)

    def _ask_for_signals(self, connection: Any) -> None:
        """systemd sends no signals but to those that have asked. Not waited for: without it the tick still sees all."""
        connection.call(
            _SYSTEMD, _OBJECT, _MANAGER, "Subscribe", None, None, Gio.DBusCallFlags.NO_AUTO_START, -1, None, None
        )

    def _on_properties(self, *signal: Any) -> None:
        path = signal[2]
        for prefix, source in _PATH_PREFIXES.items():
            if path.startswith(prefix) and self._moves(path, *signal[5].unpack()):
                self._tell(source)

    def _moves(self, path: str, interface: str, changed: dict[str, Any], _: list[str]) -> bool:
        """Whether there is more to it than what a rank that serves tells of how it does, which the tick sees in time.

        systemd sends all properties whose changes it tells, whichever of them has changed, on both interfaces.
        """
        if "StatusText" in changed:
            changed["StatusText"] = news.words(changed["StatusText"])
        known = self._told.setdefault(path, {})
        before, known[interface] = known.get(interface), changed
        return before != changed

    def _on_manager(self, *signal: Any) -> None:
        # JobNew and JobRemoved carry (id, job, unit, ...), UnitNew and UnitRemoved (unit, path).
        for item in signal[5].unpack():
            if isinstance(item, str) and (match := _NAME.fullmatch(item)) is not None:
                self._tell(_SOURCES[match["template"]])
            self._told.pop(item, None)  # of a unit that has come or gone, by its path

    def _on_owner(self, *signal: Any) -> None:
        # A systemd that has just come does not know who listens.
        self._ask_for_signals(signal[0])
        self._tell()

    def _tell(self, *sources: str) -> None:
        """Without `sources`: there may be news of both."""
        if self._ending.is_set():
            return
        try:
            for source in sources or _SOURCES.values():
                self._loop.call_soon_threadsafe(self._wake, source)
        except RuntimeError:
            self._ending.set()  # the loop has been closed
