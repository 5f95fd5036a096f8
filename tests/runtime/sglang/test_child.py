"""The engine as a child: what it starts goes with it, and with the launcher."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.sglang.processes import read_process
from tests.runtime.triangle import ROOT

PROGRAM = """
import os, sys
from runtime.sglang.child import Child, kill_all
from runtime.sglang.processes import descendants
import time, select
child = Child([sys.executable, "-c", sys.argv[1]], {"PATH": os.environ["PATH"]})
print(child.pid, flush=True)
command = sys.stdin.readline().strip()
if command == "kill":
    select.select([child.output], [], [], 10)
    print(os.read(child.output, 100).decode(), end="", flush=True)
    kill_all(child, time.sleep, print)
    print("left", [p.pid for p in descendants(os.getpid())], child.status, flush=True)
elif command == "wait":
    while child.status is None:
        child.reap()
        time.sleep(0.01)
    select.select([child.output], [], [], 5)
    print("status", child.status, os.read(child.output, 65536), flush=True)
"""
# A child with a grandchild that leaves its session and ignores everything, and whose parent goes.
ESCAPER = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        print("escaped", os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def launcher(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, request.param],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def order(process: "subprocess.Popen[str]", command: str) -> None:
    assert process.stdin is not None
    process.stdin.write(command + "\n")
    process.stdin.flush()


def gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while (process := read_process(pid)) is not None and process.state != "Z" and time.monotonic() < end:
        time.sleep(0.01)
    return process is None or process.state == "Z"


@pytest.mark.parametrize("launcher", [ESCAPER], indirect=True)
def test_what_left_its_parent_is_ended_as_well_and_waited_for(launcher: "subprocess.Popen[str]") -> None:
    pid = int(line(launcher))
    order(launcher, "kill")
    escaped, _, orphan = line(launcher).partition(" ")
    assert escaped == "escaped"
    assert line(launcher) == "left [] -9"
    # Waited for, so that not even a zombie is left of it.
    assert read_process(int(orphan)) is None
    assert gone(pid)


@pytest.mark.parametrize("launcher", ["import time; time.sleep(60)"], indirect=True)
def test_the_engine_does_not_outlive_a_launcher_that_is_killed(launcher: "subprocess.Popen[str]") -> None:
    pid = int(line(launcher))
    assert read_process(pid) is not None
    launcher.kill()
    assert gone(pid)


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("import sys; print('out'); sys.exit(3)", "status 3 b'out\\n'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "status -9 b''"),
        (
            "import os, signal; print(os.getpgid(0) == os.getpid(), signal.getsignal(signal.SIGXFSZ), os.read(0, 1))",
            "status 0 b\"True 1 b''\\n\"",
        ),
    ],
    indirect=["launcher"],
)
def test_status_and_output_are_kept(launcher: "subprocess.Popen[str]", said: str) -> None:
    line(launcher)
    order(launcher, "wait")
    assert line(launcher) == said


def run(program: str, *arguments: str) -> str:
    """What a process of its own prints: to start an engine makes a process the parent of orphans, for good."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=20).stdout


BAD = """
import os, sys
from runtime.environment import BadEnvironment
from runtime.sglang.child import Child
before = set(os.listdir("/proc/self/fd"))
try:
    Child([sys.argv[1]], {})
except BadEnvironment as error:
    print(error, set(os.listdir("/proc/self/fd")) == before)
"""


@pytest.mark.parametrize("kind", ["missing", "a directory", "not executable"])
def test_a_python_that_cannot_be_run_is_named_and_leaves_nothing_open(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "python"
    if kind == "a directory":
        path.mkdir()
    elif kind == "not executable":
        path.write_text("x")
    said = run(BAD, str(path))
    assert said.startswith(f"SPARKD_ENGINE_CONFIG: python: expected an executable, {path}: ")
    assert said.endswith(" True\n")


QUICK = """
import sys, time
from runtime.sglang.child import Child, kill_all
child = Child([sys.executable, "-c", "pass"], {})
time.sleep(float(sys.argv[1]))
kill_all(child, time.sleep, print)
kill_all(child, time.sleep, print)
print(child.status)
"""


@pytest.mark.parametrize(("seconds", "status"), [("0", "-9"), ("0.5", "0")])
def test_to_end_what_has_ended_is_nothing(seconds: str, status: str) -> None:
    assert run(QUICK, seconds) == f"{status}\n"
