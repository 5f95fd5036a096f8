"""status, plan, events as they are printed, to people, to programs and to a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ring_mesh
from ring_mesh import by_order
from sparkd.cli.failure import MEANINGS
from sparkd.cli.text import style_of
from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing, plan

COMMAND = [sys.executable, "-W", "error", "-m", "sparkd.cli"]


def test_status(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("status").out.startswith("DOWN  nobody has asked for a start\n")
    assert json.loads(ctl("status", "--json").out)["epoch"] == 7


def test_status_shows_the_planned_cables_while_no_ring_is_heard(ring: FakeRing, ctl: Ctl) -> None:
    ring.wires = by_order(("spark1", "spark3", "spark2"))
    heard = [line.split()[0] for line in ctl("status").out.splitlines() if " ---- " in line]
    assert heard == ["spark1", "spark3", "spark2"]
    assert ring.asked == ["GET /v1/ring"]
    ring.ring_heard = False
    assert [line.split()[0] for line in ctl("status").out.splitlines() if " ---- " in line] == heard
    assert ring.asked[1:] == ["GET /v1/ring", "GET /v1/plan"]


def test_plan(ring: FakeRing, ctl: Ctl) -> None:
    answer = plan()
    assert json.loads(ctl("plan", "--json").out) == answer
    nodes = [{"name": f"spark{rank}", "rank": rank - 1, "address": f"192.168.77.{rank}"} for rank in (1, 2, 3)]
    cluster = ring_mesh.parse_cluster({"name": "lab", "base_range": "10.77.0.0/21", "node": nodes})
    assert ctl("plan").out == ring_mesh.render(ring_mesh.plan(cluster))
    ring.wires = by_order(("spark1", "spark3", "spark2"))
    assert ctl("plan").out == ring_mesh.render(ring_mesh.plan(cluster, ring.wires))


def event(number: int, text: str) -> dict[str, object]:
    return {"id": number, "at": 0, "node": "spark1", "kind": "summary", "epoch": 7, "phase": "ready", "text": text}


def test_events(ring: FakeRing, ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.events = [event(1, "first"), event(2, "second\x1b[2J")]
    lines = ctl("events").out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "   7  ready     summary  first",
        "   7  ready     summary  second [2J",
    ]
    assert [json.loads(line)["id"] for line in ctl("events", "--json").out.splitlines()] == [1, 2]


def test_events_are_wrapped_on_a_terminal_and_whole_elsewhere(ring: FakeRing, tmp_path: Path, ctl: Ctl) -> None:
    text = "waits for spark3 " * 12
    ring.events = [event(1, text) | {"kind": "error"}, event(2, "short")]
    assert text.strip() in ctl("events").out
    for columns, indent in ((80, 21), (120, 46)):
        out = on_a_terminal(columns, "events", "--socket", str(tmp_path / "api.sock"))
        lines = out.splitlines()
        assert max(len(line) for line in lines) <= columns
        assert len(lines) > 3
        assert all(line[:indent].isspace() and not line[indent].isspace() for line in lines[1:-1])
        assert " ".join(lines[0][46:].split() + " ".join(lines[1:-1]).split()) == text.strip()
        assert lines[-1].endswith("  summary  short")


def on_a_terminal(columns: int, *arguments: str) -> str:
    """What the command writes on a terminal, without colour."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen([*COMMAND, *arguments], stdout=follower, env=environment)
    os.close(follower)
    out = b""
    # Once nobody has the other side any more, a read fails.
    with open(leader, "rb", buffering=0) as terminal, process, contextlib.suppress(OSError):
        while part := terminal.read(65536):
            out += part
    assert process.returncode == 0
    return out.decode().replace("\r\n", "\n")


def test_waiting_on_a_terminal_takes_one_line(ring: FakeRing, tmp_path: Path) -> None:
    ring.story = [{"phase": "gated", "summary": f"epoch 8 starts in {left} s, {'x' * 100}"} for left in (2, 1, 0)]
    ring.story.append({"phase": "ready", "summary": "epoch 8 is ready: all 3 ranks serve"})
    lines = on_a_terminal(80, "up", "--wait", "--socket", str(tmp_path / "api.sock")).splitlines(keepends=False)
    assert lines[0] == "epoch 8: accepted"
    assert lines[-1].endswith(" s  epoch 8 is ready: all 3 ranks serve")
    between = "\n".join(lines[1:-1]).split("\x1b[K")
    assert all(len(line.strip()) < 80 for line in between)


def test_no_events(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("events") == (0, "", "")


@contextmanager
def running(socket: Path, *arguments: str, errors: bool = False) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, ended like by Ctrl-C. errors: it may have something to say of them."""
    # Where tests run in the background of a script, SIGINT is ignored, and a child would inherit that.
    command = ["env", "--default-signal=INT", *COMMAND, *arguments, "--socket", str(socket)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A test that waits for a line in vain finds the end of the file.
    timer = threading.Timer(30, process.kill)
    timer.start()
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        timer.cancel()
        assert (process.returncode, out, "" if errors else err) == (0, "", "")


def test_events_followed_over_a_restart_of_the_daemon(ring: FakeRing, tmp_path: Path) -> None:
    ring.events = [event(1, "first"), event(2, "second")]
    with running(tmp_path / "api.sock", "events", "--follow") as process:
        assert process.stdout is not None
        seen = [process.stdout.readline().split()[-1] for _ in range(2)]
        ring.events = [event(1, "anew")]
        seen.append(process.stdout.readline().split()[-1])
        ring.events = [event(1, "anew"), event(2, "more")]
        seen.append(process.stdout.readline().split()[-1])
    assert seen == ["first", "second", "anew", "more"]


def test_status_watched_by_a_program_tells_news_only(ring: FakeRing, tmp_path: Path) -> None:
    with running(tmp_path / "api.sock", "status", "--watch", "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        looks = len(ring.asked)
        while len(ring.asked) < looks + 2:
            time.sleep(0.05)
        ring.summary = "something else"
        second = json.loads(process.stdout.readline())
    assert {key for key in first if first[key] != second[key]} == {"summary", "peers"}
    assert second["peers"][0]["age"] > first["peers"][0]["age"] + 0.1


def test_a_reader_that_leaves(ring: FakeRing, tmp_path: Path) -> None:
    ring.events = [event(number, "x" * 1000) for number in range(1, 400)]
    command = [*COMMAND, "events", "--socket", str(tmp_path / "api.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 1


def test_help_names_every_exit_code() -> None:
    shown = subprocess.run([*COMMAND, "--help"], check=True, capture_output=True, text=True).stdout
    for code, meaning in MEANINGS.items():
        assert f"{code.value:>3}  {meaning}" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["upp"],
        ["up", "--timeout", "0"],
        ["up", "--timeout", "soon"],
        ["fabric"],
        ["fabric", "restart"],
        ["cluster"],
        ["cluster", "create", "x"],
    ],
)
def test_wrong_usage(arguments: list[str], ctl: Ctl) -> None:
    with pytest.raises(SystemExit) as caught:
        ctl(*arguments, daemon=False)
    assert caught.value.code == 2


def test_colour_is_for_terminals() -> None:
    leader, follower = pty.openpty()
    with open(follower, "w") as terminal, open(leader, "rb", buffering=0):
        assert style_of(terminal, {}).colour
        assert style_of(terminal, {"NO_COLOR": ""}).colour
        assert not style_of(terminal, {"NO_COLOR": "1"}).colour
        assert not style_of(terminal, {"TERM": "dumb"}).colour
        with open(os.devnull, "w") as elsewhere:
            assert not style_of(elsewhere, {}).colour


def test_the_daemon_s_imports_stay_out_of_the_command() -> None:
    """A shell waits for each of them at every call."""
    heavy = "asyncio cryptography fastapi gi pydantic pyroute2 uvicorn"
    code = f"import sys, sparkd.cli; print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("command", ["up", "down", "clear"])
def test_help_says_who_carries_a_change_out(command: str) -> None:
    shown = subprocess.run([*COMMAND, command, "--help"], check=True, capture_output=True, text=True).stdout
    assert "Rank 0's host, the conductor," in " ".join(shown.split())
    assert "systemctl stop 'sparkd-rank@*' on a node" in " ".join(shown.split())
