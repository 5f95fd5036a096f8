"""The progress channel, against real datagram sockets."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.notify import STATUS_MAX_CHARACTERS, Notifier, Progress, Stage, one_line


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def heard(listener: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(listener.recv(65536).decode())
        except BlockingIOError:
            return said


def progress(listener: socket.socket, times: list[float] | None = None) -> Progress:
    clock = iter(times or [])
    return Progress(Notifier({"NOTIFY_SOCKET": listener.getsockname()}), lambda: next(clock))


def test_a_status_is_stage_count_and_text(listener: socket.socket) -> None:
    report = progress(listener).report
    report(Stage.INIT)
    report(Stage.RENDEZVOUS, "waiting for rank 1 (spark2)", (2, 3))
    report(Stage.FORMED, "3 ranks")
    assert heard(listener) == [
        "STATUS=init",
        "STATUS=rendezvous 2/3 waiting for rank 1 (spark2)",
        "STATUS=formed 3 ranks",
    ]


def test_the_same_status_is_sent_once(listener: socket.socket) -> None:
    report = progress(listener).report
    for _ in range(3):
        report(Stage.WARMUP, "measuring enp1s0f0np0", (1, 6))
    assert len(heard(listener)) == 1


def test_ready_is_said_once_and_refreshed_every_ten_seconds(listener: socket.socket) -> None:
    ready = progress(listener, [0.0, 1.0, 9.9, 10.0, 11.0, 20.5]).ready
    for canary in range(1, 7):
        ready(f"canary {canary}")
    assert heard(listener) == [
        "READY=1\nSTATUS=ready canary 1",
        "STATUS=ready canary 4",
        "STATUS=ready canary 6",
    ]


def test_a_ready_rank_that_becomes_another_kind_of_ready_says_so_at_once(listener: socket.socket) -> None:
    ready = progress(listener, [0.0, 1.0, 2.0, 11.0]).ready
    ready("canary 1")
    ready("canary 2, management is silent", changed=True)
    ready("canary 3, management is silent")
    ready("canary 4, management is silent")
    assert heard(listener)[1:] == [
        "STATUS=ready canary 2, management is silent",
        "STATUS=ready canary 4, management is silent",
    ]


def test_a_failure_is_one_line_and_cannot_smuggle_an_assignment(listener: socket.socket) -> None:
    progress(listener).failed("no\nREADY=1\n way")
    assert heard(listener) == ["STATUS=failed no READY=1 way"]


def test_the_abstract_namespace_works() -> None:
    name = f"@sparkd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name[1:])
        sock.settimeout(5)
        assert Notifier({"NOTIFY_SOCKET": name}).send("STATUS=here", "READY=1")
        assert sock.recv(100) == b"STATUS=here\nREADY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}])
def test_without_a_socket_nothing_is_sent(environ: dict[str, str]) -> None:
    assert not Notifier(environ).send("READY=1")


def test_a_socket_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).send("READY=1")


def test_a_line_is_cut_to_what_a_status_holds() -> None:
    assert one_line(" a \t b\r\n") == "a b"
    long = one_line("x" * 10000)
    assert len(long) == STATUS_MAX_CHARACTERS
    assert long.endswith("...")


def test_signs_of_life_come_four_times_within_the_watchdogs_time(listener: socket.socket) -> None:
    times = [0.0, 1.0, 2.4, 2.5, 3.0, 5.0]
    environ = {"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
    clock = iter(times)
    own = Progress(Notifier(environ), lambda: next(clock))
    for _ in times:
        own.ready("x")
    assert [said for said in heard(listener) if "READY" not in said] == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environ", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_nobody_is_told_who_has_not_asked(environ: dict[str, str]) -> None:
    assert Notifier(environ).watchdog is None
