from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkd.host.clock import SystemClock
from sparkd.host.notify import SystemdNotifier


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.settimeout(2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield server


def test_what_systemd_hears(manager: socket.socket) -> None:
    notifier = SystemdNotifier()
    for step, heard in (
        (notifier.ready, b"READY=1"),
        (notifier.alive, b"WATCHDOG=1"),
        (notifier.stopping, b"STOPPING=1"),
        (lambda: notifier.status("waits for spark2"), b"STATUS=waits for spark2"),
    ):
        step()
        assert manager.recv(4096).strip() == heard


def test_a_status_of_several_lines_cannot_say_anything_else(manager: socket.socket) -> None:
    SystemdNotifier().status("waits\nREADY=1\n")
    assert manager.recv(4096).strip() == b"STATUS=waits READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, manager: socket.socket) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET")
    SystemdNotifier().ready()
    manager.settimeout(0.05)
    with pytest.raises(TimeoutError):
        manager.recv(4096)


def test_clock() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    first = clock.monotonic()
    assert first <= clock.monotonic()
