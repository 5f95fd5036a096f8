"""One host: its file system, its processes, and the supervisor that starts it again after a reboot."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab import cgroups, wires
from tests.lab.base import INIT_PATH
from tests.lab.layout import Places, address
from tests.lab.sglang import root as sglang
from tests.lab.shell import (
    LabError,
    Process,
    children,
    environment,
    process,
    read_process,
    replace,
    run,
    tail,
    wait_for,
)

REBOOT_STATUS = 133
"""What systemd-nspawn exits with, given --keep-unit, when its host asked for a reboot."""
BOOT_SECONDS = 60.0
NAMESPACES: tuple[str, ...] = ("-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w")
# The supervisor is in its group from its birth: whoever ends the lab at that moment finds it there or, having removed
# the group, keeps it from starting. In a session of its own, Ctrl-C at the command that started the lab is not for it.
LAUNCH = """lab=$0 node=$1; shift
for file in "$@"; do echo $$ >"$file" || exit 1; done
exec setsid --fork /usr/bin/python3 -B "$lab" supervise "$node"
"""
RANK_DROP_IN = """# The lab's hosts cannot lock more memory than this machine's own hard limit, and systemd does not
# start a unit whose limit it cannot set. On a real Spark the unit's own LimitMEMLOCK=infinity stands.
[Service]
LimitMEMLOCK=8M
"""


def prepare(places: Places, node: str, base: Path, nodes: Sequence[str]) -> None:
    """Mount the host's root (the base with a layer of its own above) and give it a name. It knows those of `nodes`."""
    directory = places.node(node)
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(parents=True)
    options = f"lowerdir={base},upperdir={directory}/upper,workdir={directory}/work"
    run(
        ["mount", "-t", "overlay", places.netns(node), "-o", options, str(places.root(node))],
        step="mount the root file system (SPARKD_LAB_DIR must lie on ext4, xfs, btrfs or tmpfs)", node=node,
    )  # fmt: skip
    etc = places.root(node) / "etc"
    (etc / "hostname").write_text(f"{node}\n")
    (etc / "machine-id").write_text(hashlib.md5(f"{places.id} {node}".encode()).hexdigest() + "\n")
    names = "".join(f"{address(other)} {other}\n" for other in nodes)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{names}")
    drop_in = etc / "systemd/system/sparkd-rank@.service.d/lab.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(RANK_DROP_IN)


def start(places: Places, node: str) -> None:
    """Power on: start the host's supervisor, which outlives the calling command.

    Returns once the supervisor runs; `wait_booted` waits for the host. Raises LabError if it has power already.
    """
    if supervisor(places, node):
        raise LabError(f"{node}: power on: it has power already")
    directory = places.node(node)
    (directory / "failed").unlink(missing_ok=True)
    group = _supervisor_group(places, node)
    cgroups.create(group)
    with (directory / "supervisor.log").open("ab") as log:
        subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", "sh", "-c", LAUNCH, str(Path(__file__).with_name("lab")), node]
            + [str(hierarchy / group / "cgroup.procs") for hierarchy in cgroups.hierarchies()],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=True,
            env={**environment(), "SPARKD_LAB_DIR": str(places.directory), "SPARKD_LAB_CACHE": str(places.cache)},
        )  # fmt: skip
    if not wait_for(lambda: supervisor(places, node) is not None, 10):
        raise LabError(f"{node}: power on: the supervisor did not start: {_log(places, node)}")


def supervisor(places: Places, node: str) -> Process | None:
    return read_process(places.node(node) / "supervisor")


def init(places: Places, node: str) -> Process | None:
    """The host's process 1, if the host runs."""
    return read_process(places.node(node) / "init")


def _supervisor_group(places: Places, node: str) -> str:
    return f"{places.cgroup(node)}-supervisor"


def supervise(places: Places, node: str) -> int:
    """Run the host, again after each reboot, until it powers off. Returns an exit status.

    The network of a host that reboots or is off is taken away, so that its peers lose their carrier and
    it finds nothing of its former addresses and routes, as after a real boot.
    """
    own = process(os.getpid())
    assert own is not None
    engine = _engine(places)
    try:
        own.write(places.node(node) / "supervisor")
        if engine:
            sglang.hold(engine)
        while True:
            boot_again = _boot(places, node) == REBOOT_STATUS
            (places.node(node) / "init").unlink(missing_ok=True)
            wires.change(places, power_off=[node])
            wires.detach(places, node)
            if not boot_again:
                return 0
    except (LabError, OSError) as error:
        replace(places.node(node) / "failed", f"{error}\n")
        print(error, file=sys.stderr)
        return 1


def _engine(places: Places) -> Path | None:
    """The directory that the hosts see as their engine's, if this lab has one."""
    return Path(places.engine.read_text()) if places.engine.exists() else None


def _boot(places: Places, node: str) -> int:
    """One life of the host, from power-on to its end. Returns the exit status of systemd-nspawn."""
    group = places.cgroup(node)
    cgroups.kill(group)
    cgroups.remove(group)
    cgroups.create(group)
    wires.attach(places, node)
    wires.change(places, power_on=[node])
    space = places.netns_path(node)
    engine = _engine(places)
    command = [
        # Without this, the host's /sys would be of the namespace nspawn itself runs in.
        "nsenter", f"--net={space}", "systemd-nspawn", "--quiet", "-D", str(places.root(node)),
        f"--machine={places.netns(node)}", f"--hostname={node}",
        # It must not look for a systemd on this machine.
        "--register=no", "--keep-unit", f"--network-namespace-path={space}",
        "--kill-signal=SIGRTMIN+3", "--console=pipe", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        # Given a network namespace, nspawn would withhold these.
        "--capability=CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_BPF", "--system-call-filter=bpf",
        *([f"--bind-ro={engine}:{sglang.MOUNTED}"] if engine else []), INIT_PATH,
    ]  # fmt: skip
    with (places.node(node) / "console.log").open("ab") as console:
        nspawn = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment(), cwd="/",
            preexec_fn=lambda: cgroups.enter(group),  # noqa: PLW1509 - the supervisor has one thread
        )  # fmt: skip
        if not wait_for(lambda: nspawn.poll() is not None or _note_init(places, node, nspawn.pid), BOOT_SECONDS):
            cgroups.kill(group)
        return nspawn.wait()


def _note_init(places: Places, node: str, nspawn: int) -> bool:
    """Find the host's systemd below nspawn, whose first child is a helper that goes away, and note it."""
    for pid in children(nspawn):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            inner = next(line.split()[-1] for line in status if line.startswith("NSpid:"))
            found = process(pid)
            if found and inner == "1" and Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                found.write(places.node(node) / "init")
                return True
    return False


def wait_booted(places: Places, node: str, *, after: Process | None = None, seconds: float = BOOT_SECONDS) -> None:
    """Wait until systemd has started everything, on a process 1 other than `after`.

    Raises LabError naming what the host was at.
    """
    end = time.monotonic() + seconds
    seen = "no process 1"
    while time.monotonic() < end:
        current = init(places, node)
        if current and current != after:
            done = run(enter(current, ["systemctl", "is-system-running"]), step="ask systemd", node=node, check=False)
            seen = f"systemd says {tail(done.stdout + done.stderr)}"
            if done.stdout.strip() in ("running", "degraded"):
                return
        elif supervisor(places, node) is None:
            raise LabError(f"{node}: boot: it ended: {_log(places, node)}")
        time.sleep(0.05)
    raise LabError(f"{node}: boot: not up after {seconds:.0f} s: {seen}; {_log(places, node)}")


def _log(places: Places, node: str) -> str:
    directory = places.node(node)
    for name in ("failed", "supervisor.log", "console.log"):
        path = directory / name
        if path.is_file() and path.stat().st_size:
            return tail(path.read_text(errors="replace"))
    return f"{directory}/console.log is empty"


def enter(target: Process, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` inside the host of this process 1, as root."""
    return ["nsenter", "-t", str(target.pid), *NAMESPACES, "--", *argv]


def inside(places: Places, node: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` on a node. Raises LabError if the node is off."""
    target = init(places, node)
    if target is None:
        why = "booting" if supervisor(places, node) else "it has no power"
        raise LabError(f"{node}: exec: it is not running ({why})")
    return enter(target, argv)


def cut_power(places: Places, node: str) -> None:
    """End a host at once. Its disk stays, its peers lose their carrier, nobody gets a last packet."""
    cgroups.kill(_supervisor_group(places, node))
    # First the wires: a dying host must not send resets to its peers.
    wires.change(places, power_off=[node])
    cgroups.kill(places.cgroup(node))
    wires.detach(places, node)
    cgroups.remove(places.cgroup(node))
    cgroups.remove(_supervisor_group(places, node))
    for note in ("init", "supervisor"):
        (places.node(node) / note).unlink(missing_ok=True)


def stop_supervisor(places: Places, node: str) -> None:
    """End the supervisor of a host, and nothing else of it."""
    running = supervisor(places, node)
    if running:
        running.kill()
        wait_for(lambda: not running.alive(), 5)


def discard(places: Places, node: str) -> None:
    """Unmount and delete the host's file system; what runs on it has been ended before."""
    root = places.root(node)

    def unmounted() -> bool:
        return not root.is_mount() or run(["umount", str(root)], step="unmount", check=False).returncode == 0

    if not wait_for(unmounted, 3, pause=0.1):
        run(["umount", "-l", str(root)], step="unmount the root file system", node=node)
    shutil.rmtree(places.node(node), ignore_errors=True)
