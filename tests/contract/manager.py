"""A systemd of the tests' own: a user manager in a process, mount and cgroup corner of its own, with its own bus.

It runs as root and has no polkit, but jobs, unit states, signals and the D-Bus interface are systemd's. All of its
processes are in one PID namespace that ends with the process that started it, whatever way that goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_PREFIX = "sparkd-contract-"
# As process 1 it would be the machine's systemd and no user's, so a shell is process 1.
_BOOT = """
set -e
for hierarchy in $CGROUPS; do echo $$ > $hierarchy/cgroup.procs; done
exec setpriv --pdeathsig KILL unshare --mount --pid --fork --mount-proc --kill-child sh -c '
    mount -t tmpfs tmpfs /run
    mkdir -p /run/systemd/system
    env -i PATH="$PATH" HOME="$WHERE" XDG_RUNTIME_DIR="$WHERE" SYSTEMD_UNIT_PATH="$WHERE/units" \
        DBUS_SESSION_BUS_ADDRESS="unix:path=$WHERE/bus" \
        /lib/systemd/systemd --user --unit=basic.target --log-target=console --log-level=warning &
    wait
'
"""
# The manager connects to the bus only once these units are active.
_UNITS = {
    "basic.target": "[Unit]\nDefaultDependencies=no\nWants=dbus.socket\nAfter=dbus.socket\n",
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream={where}/bus\n",
    "dbus.service": (
        "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n[Service]\nExecStart=dbus-daemon"
        " --config-file={where}/bus.conf --address=systemd: --nofork --nopidfile --systemd-activation\n"
    ),
    "sparkd-rank@.service": (
        "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nRestart=no\nNotifyAccess=main\nKillMode=mixed\n"
        "TimeoutStartSec=infinity\nTimeoutStopSec=10\nExecStart=python3 -S {where}/rank {where}/rank-%i\n"
    ),
    "sparkd-measure@.service": (
        "[Unit]\nDefaultDependencies=no\nCollectMode=inactive-or-failed\n[Service]\nType=exec\nNotifyAccess=main\n"
        "ExecStart=python3 -S {where}/rank {where}/measure-%i\n"
    ),
}
_BUS = """<busconfig>
<type>session</type><listen>unix:path={where}/bus</listen><auth>EXTERNAL</auth>
<policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>{denied}
</policy>
</busconfig>"""
_DENY = '<deny send_type="method_call" send_interface="org.freedesktop.systemd1.Manager" send_member="{method}"/>'
# A rank that does what it is told through a FIFO, one line at a time.
_RANK = """
import os, signal, socket, sys
def notify(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
fifo = sys.argv[1]
if not os.path.exists(fifo):
    os.mkfifo(fifo)
with open(os.open(fifo, os.O_RDWR)) as orders:
    for order in orders:
        verb, _, rest = order.strip().partition(" ")
        if verb == "exit":
            os._exit(int(rest))
        elif verb == "signal":
            os.kill(os.getpid(), int(rest))
        elif verb == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            notify("STATUS=stubborn")
        else:
            notify(rest)
"""


@dataclass(frozen=True)
class Manager:
    where: Path

    @property
    def address(self) -> str:
        return f"unix:path={self.where}/bus"

    def order(self, epoch: int, line: str, kind: str = "rank") -> None:
        """An order for the rank (or what measures): `exit N`, `signal N`, `stubborn`, or `notify TEXT`."""
        fifo = self.where / f"{kind}-{epoch}"
        end = time.monotonic() + 5
        while not fifo.exists():  # the rank makes it when it has come that far
            assert time.monotonic() < end, f"the {kind} of epoch {epoch} does not run"
            time.sleep(0.005)
        with fifo.open("w") as orders:
            orders.write(line + "\n")

    def call(self, method: str, *arguments: str) -> None:
        """A method of systemd's manager, past the code under test; arguments as busctl takes them."""
        to = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
        command = ["busctl", f"--address={self.address}", "call", *to, method, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def reexecute(self) -> None:
        """What an upgrade of systemd does. The call itself is never answered."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("Reexecute")

    def lose_bus(self) -> None:
        """The bus daemon ends; systemd starts it again when somebody connects."""
        os.kill(self._find("dbus-daemon"), signal.SIGKILL)

    @contextlib.contextmanager
    def stuck(self) -> Iterator[None]:
        """systemd runs no more, like one that waits for a disk."""
        pid = self._find("systemd")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _find(self, name: str) -> int:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                in_it = f"/{self.where.name}/" in (process / "cgroup").read_text()
                if in_it and (process / "comm").read_text().strip() == name:
                    return int(process.name)
        raise AssertionError(f"no {name} of this manager runs")


@contextlib.contextmanager
def bus_alone(where: Path) -> Iterator[str]:
    """The address of a bus without a systemd on it."""
    configuration = where / "bus.conf"
    configuration.write_text(_BUS.format(where=where, denied=""))
    command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        try:
            yield daemon.stdout.readline().strip()
        finally:
            daemon.kill()


@contextlib.contextmanager
def running(denied: str = "") -> Iterator[Manager]:
    """`denied` is a method of systemd's manager that the bus lets nobody call."""
    if os.geteuid() != 0:
        pytest.fail("the tests of the real doors need root: they make network namespaces and a systemd of their own")
    # Not pytest's directory: a socket's path has at most 107 characters.
    _clear_after_the_killed()
    where = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    units = where / "units"
    units.mkdir()
    for name, text in _UNITS.items():
        (units / name).write_text(text.format(where=where))
    (where / "rank").write_text(_RANK)
    policy = _DENY.format(method=denied) if denied else ""
    (where / "bus.conf").write_text(_BUS.format(where=where, denied=policy))
    cgroups = [path / where.name for path in _hierarchies()]
    for path in cgroups:
        path.mkdir()
    environment = {**os.environ, "CGROUPS": " ".join(map(str, cgroups)), "WHERE": str(where)}
    process = subprocess.Popen(["sh", "-c", _BOOT], env=environment, stdin=subprocess.DEVNULL)
    try:
        _wait_for(where / "bus", process)
        yield Manager(where)
    finally:
        process.kill()
        process.wait()
        for path in cgroups:
            _remove_cgroup(path)
        shutil.rmtree(where)


def _hierarchies() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [path for path in (root, root / "systemd", root / "unified") if (path / "cgroup.procs").exists()]


def _clear_after_the_killed() -> None:
    """What a test run that was killed could not remove itself: its processes are gone, its directories are not."""
    for parent in (*_hierarchies(), Path(tempfile.gettempdir())):
        for path in parent.glob(f"{_PREFIX}*-*"):
            if not Path("/proc", path.name.removeprefix(_PREFIX).split("-")[0]).exists():
                if path.parent in _hierarchies():
                    _remove_cgroup(path)
                else:
                    shutil.rmtree(path)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while not socket.exists():
        assert process.poll() is None, "systemd has ended; see its messages above"
        assert time.monotonic() < end, "systemd has not opened its bus"
        time.sleep(0.01)


def _remove_cgroup(path: Path) -> None:
    """Deepest first, when the last of the killed processes has gone."""
    end = time.monotonic() + 10
    while path.exists():
        for directory in sorted(path.rglob("*/"), key=lambda found: -len(found.parts)):
            with contextlib.suppress(OSError):
                directory.rmdir()
        with contextlib.suppress(OSError):
            path.rmdir()
        assert time.monotonic() < end, f"{path} is still in use"
        time.sleep(0.01)
