"""One virtual machine: its QEMU process, from power-on to its end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.layout import End, address, ends_of, management_mac
from tests.lab.shell import LabError, Process, environment, process, read_process, run, tail, wait_for
from tests.vm import channel, qmp
from tests.vm.image import Image
from tests.vm.layout import CHANNELS, FABRIC_SLOTS, MANAGEMENT_SLOT, Places, far

MEMORY_MIB = 384
BOOT_SECONDS = 600.0
"""Emulated machines of which several boot on few cores."""
KERNEL_ARGUMENTS = "console=ttyS0 root=/dev/vda rw quiet mitigations=off nokaslr"
NICE = ("nice", "-n", "15")


def prepare(places: Places, node: str, image: Image) -> None:
    """An empty disk above the image's."""
    places.node(node).mkdir(parents=True)
    base = ["-F", "raw", "-b", str(image.disk)]
    run(["qemu-img", "create", "-q", "-f", "qcow2", *base, str(places.disk(node))], step="make its disk", node=node)


def command(places: Places, node: str, image: Image) -> list[str]:
    """QEMU's command line. Each end of a cable is a socket that QEMU makes, and the name of the far end's."""
    machine = hashlib.md5(f"{places.id} {node}".encode()).hexdigest()
    own = f"systemd.hostname={node} systemd.machine_id={machine} sparkd.address={address(node)}"
    words = [
        "qemu-system-x86_64", "-name", places.mark(node), "-machine", "q35",
        *accelerator(), "-cpu", "max", "-smp", "1", "-m", f"{MEMORY_MIB}M", "-nodefaults", "-display", "none",
        "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", f"{KERNEL_ARGUMENTS} {own}",
        # What is lost with a machine is lost; nothing here has to survive the real one.
        "-drive", f"file={places.disk(node)},if=virtio,format=qcow2,cache=unsafe",
        "-serial", f"file:{places.console(node)}", "-qmp", f"unix:{places.qmp(node)},server=on,wait=off",
        "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
        "-device", "virtio-serial-pci",
    ]  # fmt: skip
    for number in range(CHANNELS):
        socket = f"socket,id=c{number},path={places.channel(node, number)},server=on,wait=off"
        words += ["-chardev", socket, "-device", f"virtserialport,chardev=c{number},name=sparkd.{number}"]
    words += _nic("mgmt", places.management(node), places.hub(node), management_mac(node), MANAGEMENT_SLOT)
    for end in ends_of(node):
        slot = FABRIC_SLOTS[end.port, end.domain]
        fast = ",host_mtu=9000,speed=200000,duplex=full"
        words += _nic(_id(end), places.wire(end), places.wire(far(end)), end.mac, slot, fast)
    return words


def accelerator() -> list[str]:
    """Emulation, several times slower than a processor's own virtual machines, which few runners of tests offer."""
    return ["-accel", "tcg,thread=multi,tb-size=256"]


def _nic(id_: str, own: Path, other: Path, mac: str, slot: int, more: str = "") -> list[str]:
    # Datagrams over Unix sockets: machines may start in any order, no frame comes back to its sender, and a full
    # queue makes the sender wait.
    ends = f"local.type=unix,local.path={own},remote.type=unix,remote.path={other}"
    device = f"virtio-net-pci,id=nic-{id_},netdev={id_},mac={mac},addr={slot:#x}{more}"
    return ["-netdev", f"dgram,id={id_},{ends}", "-device", device]


def _id(end: End) -> str:
    return f"p{end.port}d{int(end.domain)}"


def start(places: Places, node: str, image: Image) -> None:
    """Power on. Returns once QEMU answers. Raises LabError with what it says if it does not run."""
    launch([*NICE, *command(places, node, image)], places.node(node) / "process", places.node(node) / "qemu.log")
    up = wait_for(lambda: running(places, node) is None or places.qmp(node).exists(), 30)
    if not up or running(places, node) is None:
        log = places.node(node) / "qemu.log"
        raise LabError(f"{node}: power on: {tail(log.read_text(errors='replace'))}")


def launch(argv: Sequence[str], note: Path, log: Path) -> None:
    """Start a process that outlives the command, and note which one it is.

    It is no child of this process, which may be a test run that goes on: nobody here would wait for its end.
    """
    detached = ["sh", "-c", 'exec 3>>"$0"; setsid "$@" >&3 2>&3 3>&- & echo $!', str(log), *argv]
    told = subprocess.run(
        detached, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, cwd="/",
        env={**environment(), "TMPDIR": str(note.parent)},
    )  # fmt: skip
    started = process(int(told.stdout))
    if started:
        started.write(note)


def running(places: Places, node: str) -> Process | None:
    """The guest's QEMU, if it runs."""
    return read_process(places.node(node) / "process")


def boot_id(places: Places, node: str) -> str:
    """What tells one life of the guest from the next. Raises LabError while it does not answer."""
    return channel.run(places, node, ["cat", "/proc/sys/kernel/random/boot_id"], timeout=10).stdout.strip()


def wait_booted(places: Places, node: str, *, after: str = "", seconds: float = BOOT_SECONDS) -> None:
    """Wait until systemd has started everything, in a life other than that with the boot id `after`.

    Raises LabError naming what the guest was at.
    """
    end = time.monotonic() + seconds
    seen = "nothing"
    while time.monotonic() < end:
        if running(places, node) is None:
            raise LabError(f"{node}: boot: it ended: {log(places, node)}")
        try:
            if boot_id(places, node) != after:
                state = channel.run(places, node, ["systemctl", "is-system-running"], check=False, timeout=20)
                seen = f"systemd says {state.stdout.strip() or tail(state.stderr)}"
                if state.stdout.strip() in ("running", "degraded"):
                    return
        except LabError as error:
            seen = str(error)
        time.sleep(0.2)
    raise LabError(f"{node}: boot: not up after {seconds:.0f} s: {seen}; {log(places, node)}")


def log(places: Places, node: str) -> str:
    """The last words on its console."""
    path = places.console(node)
    text = path.read_text(errors="replace") if path.is_file() else ""
    return tail(text) if text else f"{path} is empty"


def set_link(places: Places, end: End, up: bool) -> None:
    """Give the end of a cable light, or take it away."""
    qmp.command(places.qmp(end.node), "set_link", name=f"nic-{_id(end)}", up=up)


def kill_marked(mark: str) -> None:
    """Kill every process with a word in its command line that begins with `mark`, and wait until they are gone."""

    def none() -> bool:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_marked(pid, mark)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # it may be a child of this very process
        return not found

    if not wait_for(none, 10):
        raise LabError(f"fleet: down: processes named {mark}* do not end")


def _is_marked(pid: int, mark: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return pid != os.getpid() and any(word.startswith(mark.encode()) for word in words)
