"""The fleet's own parts, without a virtual machine: wiring, the hub, commands to a guest, the kernel's unpacking."""

from __future__ import annotations

import json
import lzma
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ring_mesh import PORTS
from tests.lab.layout import NODES, End, ends_of
from tests.lab.shell import LabError, process
from tests.vm import agent, channel, files, guest, image
from tests.vm.control import Fleet
from tests.vm.layout import Places, far, hca

FLEET = Path(__file__).with_name("fleet")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for node in NODES:
        (tmp_path / node).mkdir()
    return Places(tmp_path, tmp_path / "cache")


def test_rdma_devices_are_called_as_on_a_spark() -> None:
    named = {(end.port, end.domain): (end.device, hca(end)) for end in ends_of("spark1")}
    assert named == {(port.cage, port.domain): (port.device, port.hca) for port in PORTS}
    assert "rocep1s0f0 enp1s0f0np0\nroceP2p1s0f0 enP2p1s0f0np0\n" in files.all_files()["usr/local/sbin/vm-rxe"][1]


def test_each_cable_joins_two_machines(places: Places) -> None:
    wires: dict[str, str] = {}
    for node in NODES:
        line = " ".join(guest.command(places, node, image.Image(places.cache)))
        wires |= dict(re.findall(r"local\.path=(\S+/p[01]\.\d+),remote\.type=unix,remote\.path=(\S+)", line))
    assert len(wires) == 12
    assert all(wires[other] == own for own, other in wires.items())
    assert wires[str(places.wire(End("spark1", 0, "0002")))] == str(places.wire(End("spark2", 1, "0002")))
    assert far(End("spark1", 1, "0000")) == End("spark3", 0, "0000")


@pytest.fixture
def hub(places: Places) -> Iterator[Places]:
    with subprocess.Popen(["/usr/bin/python3", "-B", FLEET, "hub", places.directory, places.mark("hub")]) as child:
        try:
            end = time.monotonic() + 20
            while not places.hub(NODES[-1]).exists():
                assert child.poll() is None and time.monotonic() < end, "the hub did not start"
                time.sleep(0.02)
            yield places
        finally:
            child.kill()


def _machine(places: Places, node: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(places.management(node)))
    made.settimeout(20)
    return made


def test_a_frame_comes_out_at_all_others_and_not_where_it_came_in(hub: Places) -> None:
    with _machine(hub, "spark1") as one, _machine(hub, "spark2") as two:
        with _machine(hub, "spark3") as three:
            one.sendto(b"hello", str(hub.hub("spark1")))
            assert (two.recv(99), three.recv(99)) == (b"hello", b"hello")
            two.sendto(b"you", str(hub.hub("spark2")))
            assert (one.recv(99), three.recv(99)) == (b"you", b"you")
        # The third is off.
        one.sendto(b"again", str(hub.hub("spark1")))
        assert two.recv(99) == b"again"
        for machine in (one, two):
            machine.setblocking(False)
            with pytest.raises(BlockingIOError):
                machine.recv(99)


def test_a_machine_that_takes_nothing_does_not_hold_up_the_others(hub: Places) -> None:
    with _machine(hub, "spark1") as one, _machine(hub, "spark2") as two, _machine(hub, "spark3"):
        begin = time.monotonic()
        for number in range(2000):
            one.sendto(b"%d" % number, str(hub.hub("spark1")))
            assert two.recv(99) == b"%d" % number
            assert time.monotonic() - begin < 15


@pytest.fixture
def spark1(places: Places) -> Iterator[Places]:
    """A guest's agent behind a socket such as QEMU makes, with what was left over from a caller before."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(places.channel("spark1", 0)))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    caller = listener.accept()[0]
                except OSError:
                    return
                with caller, caller.makefile("rb") as lines:
                    caller.sendall(b'lf"}\n{"id": "of another", "status": 3}\n')
                    if line := lines.readline():
                        agent.perform(caller.fileno(), json.loads(line))

        serving = threading.Thread(target=serve)
        serving.start()
        yield places
        listener.shutdown(socket.SHUT_RDWR)
        serving.join(20)


def test_a_command_in_a_guest(spark1: Places) -> None:
    done = channel.run(spark1, "spark1", ["sh", "-c", "cat; echo ö >&2; exit 7"], stdin="grüße\n", check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("grüße\n", "ö\n", 7)
    with pytest.raises(LabError, match=r"^spark1: sh -c echo no; exit 1: exit 1: no$"):
        channel.run(spark1, "spark1", ["sh", "-c", "echo no; exit 1"])
    absent = channel.run(spark1, "spark1", ["/absent"], check=False)
    assert absent.returncode == 127
    assert "No such file" in absent.stderr


def test_a_command_ends_with_its_caller(spark1: Places, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(LabError, match=r"not done after 2 s$"):
        channel.run(spark1, "spark1", ["sh", "-c", f"echo $$ >{note}; exec sleep 300"], timeout=2)
    started = process(int(note.read_text()))
    end = time.monotonic() + 20
    while started is not None and started.alive():
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.02)


def test_a_guest_that_is_off_is_an_error(places: Places) -> None:
    with pytest.raises(LabError, match=r"^spark2: true: the guest is not running"):
        channel.run(places, "spark2", ["true"])
    with pytest.raises(LabError, match=r"^fleet: there is no spark9"):
        channel.run(places, "spark9", ["true"])


def test_the_kernel_is_found_in_its_image() -> None:
    kernel = b"\x7fELF" + bytes(range(256)) * 50
    packed = lzma.compress(kernel, lzma.FORMAT_XZ)
    assert image.uncompressed(b"setup" + image.XZ_MAGIC + b"not it" + packed + b"size") == kernel
    with pytest.raises(LabError, match="no XZ-compressed ELF file"):
        image.uncompressed(b"setup" + lzma.compress(b"no kernel", lzma.FORMAT_XZ))


def test_modules_are_loaded_in_the_order_of_their_needs(tmp_path: Path) -> None:
    lines = ["a/virtio_pci.ko: a/legacy.ko a/virtio.ko", "a/virtio.ko:", "a/legacy.ko: a/virtio.ko"]
    lines += ["b/ext4.ko: b/jbd2.ko", "b/jbd2.ko:", "c/other.ko:", ""]
    (tmp_path / "modules.dep").write_text("\n".join(lines))
    found = image.with_dependencies(tmp_path)
    assert found == ["a/virtio.ko", "a/legacy.ko", "a/virtio_pci.ko", "b/jbd2.ko", "b/ext4.ko"]


def test_down_ends_what_is_left_without_any_notes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "fleet")
    fleet.places.node("spark1").mkdir(parents=True)
    waiting = ["/usr/bin/python3", "-c", "import time; time.sleep(300)"]
    with subprocess.Popen([*waiting, fleet.places.mark("spark1")]) as left, subprocess.Popen(waiting) as other:
        try:
            fleet.down()
            assert left.wait(10) is not None
            assert other.poll() is None
        finally:
            left.kill()
            other.kill()
    assert list(tmp_path.iterdir()) == []
