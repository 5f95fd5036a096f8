"""The least that a start and a death can cost on these machines: what `make bench` compares sparkd with.

Runs on the hosts of a lab, as root and with nothing but the distribution's Python: `serve` on two of them does what it
is told over one kept connection with mutual TLS, `drive` on the third does a round per line of its input and answers
with a line of JSON. A start tells both others at once to start a unit that only sleeps, waits for both, and starts its
own; a death kills that, hears of it from systemd, and tells both others at once to stop theirs. No file is written, no
gate is looked at, and nobody is asked for permission.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gi.repository import Gio, GLib

PORT = 7476
UNIT = "sparkd-floor@{}.service"
_FILE = Path("/run/systemd/system/sparkd-floor@.service")
_TLS = Path("/etc/sparkd/tls")
_SYSTEMD = "org.freedesktop.systemd1"
_OBJECT = "/org/freedesktop/systemd1"
_MANAGER = f"{_SYSTEMD}.Manager"
_PROPERTIES = "org.freedesktop.DBus.Properties"


class Systemd:
    """PID 1 over D-Bus, from one thread."""

    def __init__(self) -> None:
        self._bus = Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
        self._done: set[str] = set()
        self._dead: set[str] = set()
        self._hear(_MANAGER, "JobRemoved", lambda args, _path: self._done.add(args[1]))
        self._hear(_PROPERTIES, "PropertiesChanged", self._changed)
        self._call(_OBJECT, _MANAGER, "Subscribe", None)

    def start(self, number: int) -> None:
        self._job("StartUnit", number)

    def stop(self, number: int) -> None:
        self._job("StopUnit", number)

    def value(self, number: int, interface: str, name: str) -> Any:
        path = self._path(number)
        variant = GLib.Variant("(ss)", (f"{_SYSTEMD}.{interface}", name))
        return self._call(path, _PROPERTIES, "Get", variant)[0]

    def until_dead(self, number: int) -> None:
        path = self._path(number)
        while path not in self._dead:
            GLib.MainContext.default().iteration(True)
        self._dead.clear()

    def forget(self, number: int) -> None:
        self._call(_OBJECT, _MANAGER, "ResetFailedUnit", GLib.Variant("(s)", (UNIT.format(number),)))

    def _path(self, number: int) -> str:
        return str(self._call(_OBJECT, _MANAGER, "LoadUnit", GLib.Variant("(s)", (UNIT.format(number),)))[0])

    def _job(self, method: str, number: int) -> None:
        job = self._call(_OBJECT, _MANAGER, method, GLib.Variant("(ss)", (UNIT.format(number), "fail")))[0]
        while job not in self._done:
            GLib.MainContext.default().iteration(True)
        self._done.clear()

    def _changed(self, args: Any, path: str) -> None:
        if args[1].get("MainPID") == 0:
            self._dead.add(path)

    def _hear(self, interface: str, member: str, told: Any) -> None:
        def on(_bus: Any, _sender: str, path: str, _interface: str, _member: str, args: Any) -> None:
            told(args.unpack(), path)

        self._bus.signal_subscribe(_SYSTEMD, interface, member, None, None, Gio.DBusSignalFlags.NONE, on)

    def _call(self, path: str, interface: str, method: str, arguments: Any) -> Any:
        return self._bus.call_sync(
            _SYSTEMD, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, 10_000, None
        ).unpack()


def serve() -> None:
    """One connection, until it ends."""
    systemd = Systemd()
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    with socket.create_server(("", PORT)) as listener:
        print("listening", flush=True)
        plain, _ = listener.accept()
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with context.wrap_socket(plain, server_side=True) as peer, peer.makefile("rb") as lines:
        for line in lines:
            verb, number = line.split()
            peer.sendall(json.dumps(_act(systemd, verb.decode(), int(number))).encode() + b"\n")


def drive(hosts: list[str]) -> None:
    """A round per line of the input: `start N`, `die N`, or `ask N`."""
    systemd = Systemd()
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(_connected(context, host)) for host in hosts]
        files = [stack.enter_context(peer.makefile("rb")) for peer in peers]

        def tell(verb: str, number: int) -> list[Any]:
            for peer in peers:
                peer.sendall(f"{verb} {number}\n".encode())
            return [json.loads(file.readline()) for file in files]

        for line in sys.stdin:
            verb, word = line.split()
            number = int(word)
            if verb == "start":
                began = time.monotonic()
                tell("start", number)
                systemd.start(number)
                started = [_act(systemd, "when", number), *tell("when", number)]
                answer = (max(started) / 1e6 - began) * 1000
            elif verb == "die":
                pid = systemd.value(number, "Service", "MainPID")
                answer = time.time()
                os.kill(pid, signal.SIGKILL)
                systemd.until_dead(number)
                tell("stop", number)
                systemd.forget(number)
            else:
                began = time.monotonic()
                peers[0].sendall(b"nothing 0\n")
                files[0].readline()
                answer = (time.monotonic() - began) * 1000
            print(json.dumps(answer), flush=True)


def _act(systemd: Systemd, verb: str, number: int) -> Any:
    if verb == "start":
        systemd.start(number)
    elif verb == "stop":
        systemd.stop(number)
    elif verb == "when":
        return systemd.value(number, "Service", "ExecMainStartTimestampMonotonic")
    return None


def _context(protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.load_verify_locations(_TLS / "ca.crt")
    context.load_cert_chain(_TLS / "node.crt", _TLS / "node.key")
    context.check_hostname = protocol == ssl.PROTOCOL_TLS_CLIENT
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def _connected(context: ssl.SSLContext, host: str) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection((host, PORT), 5)
    plain.settimeout(None)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with context.wrap_socket(plain, server_hostname=host) as peer:
        yield peer


@contextlib.contextmanager
def _unit() -> Iterator[None]:
    """The unit that only sleeps. It is in /run, so that a host that is switched off forgets it."""
    _FILE.parent.mkdir(parents=True, exist_ok=True)
    _FILE.write_text("[Service]\nExecStart=/bin/sleep infinity\n")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    try:
        yield
    finally:
        subprocess.run(["systemctl", "stop", "sparkd-floor@*.service"], check=True)
        _FILE.unlink()
        subprocess.run(["systemctl", "daemon-reload"], check=True)


if __name__ == "__main__":
    with _unit():
        if sys.argv[1] == "serve":
            serve()
        else:
            drive(sys.argv[2:])
