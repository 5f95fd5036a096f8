"""The lab itself, without sparkd: hosts that boot, cables that carry and can be pulled, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import base, cgroups, hosts, install
from tests.lab.control import Lab
from tests.lab.layout import MANAGEMENT_DEVICE, NETNS_DIRECTORY, NODES, OUTSIDE, Link, address, links, links_at
from tests.lab.shell import LabError, environment, process, wait_for


def attribute(lab: Lab, node: str, device: str, name: str) -> str:
    """An attribute of a host's interface; empty where the kernel refuses, as for the carrier of one that is down."""
    return lab.exec(node, "cat", f"/sys/class/net/{device}/{name}", check=False).stdout.strip()


def carriers(lab: Lab, link: Link) -> list[str]:
    return [attribute(lab, end.node, end.device, "carrier") for end in link.ends]


@pytest.fixture
def first_cable(bare_lab: Lab) -> Iterator[tuple[Link, ...]]:
    """Both links of the cable from spark1 to spark2, up at both ends with MTU 9000 and an address each."""
    cable = links_at("spark1", 0)
    for number, link in enumerate(cable):
        for host, end in enumerate(link.ends, 1):
            bare_lab.exec(end.node, "ip", "link", "set", end.device, "up", "mtu", "9000")
            bare_lab.exec(end.node, "ip", "address", "add", f"10.99.{number}.{host}/24", "dev", end.device)
    yield cable
    bare_lab.mend()
    for end in (end for link in cable for end in link.ends):
        bare_lab.exec(end.node, "ip", "address", "flush", "dev", end.device)
        bare_lab.exec(end.node, "ip", "link", "set", end.device, "down", "mtu", "1500")


@pytest.mark.lab
class TestHosts:
    @pytest.mark.parametrize("node", NODES)
    def test_each_is_a_machine_of_its_own(self, bare_lab: Lab, node: str) -> None:
        assert bare_lab.exec(node, "cat", "/proc/1/comm", "/etc/hostname").stdout.split() == ["systemd", node]
        assert bare_lab.exec(node, "systemctl", "is-system-running", check=False).stdout.strip() == "running"
        shown = bare_lab.exec(node, "ip", "-br", "-4", "address").stdout
        assert [line.split()[2:] for line in shown.splitlines()] == [["127.0.0.1/8"], [f"{address(node)}/24"]]
        for link in links():
            for end in link.ends:
                if end.node == node:
                    assert attribute(bare_lab, node, end.device, "operstate") == "down"
                    assert attribute(bare_lab, node, end.device, "mtu") == "1500"

    def test_all_meet_on_the_management_network(self, bare_lab: Lab) -> None:
        for node in NODES:
            for other in NODES:
                assert "1 received" in bare_lab.exec(node, "ping", "-c1", "-W2", address(other)).stdout

    def test_a_stranger_reaches_them_there(self, bare_lab: Lab) -> None:
        bare_lab.exec("spark2", "systemd-run", "-q", "--unit=greeter", "python3", "-m", "http.server", "8000")
        knock = f"import socket; print(socket.create_connection(('{address('spark2')}', 8000), 2).getsockname()[0])"
        reached = []

        def reach() -> bool:
            done = bare_lab.exec(OUTSIDE, "/usr/bin/python3", "-c", knock, check=False)
            reached.append(done.stdout.strip())
            return done.returncode == 0

        assert wait_for(reach, 10, pause=0.1)
        assert reached[-1] == "192.168.77.254"
        bare_lab.exec("spark2", "systemctl", "stop", "greeter")

    def test_exec_hands_over_input_output_and_exit_status(self, bare_lab: Lab) -> None:
        assert bare_lab.exec("spark3", "tr", "a-z", "A-Z", input="spark").stdout == "SPARK"
        assert bare_lab.exec("spark3", "sh", "-c", "echo no >&2; exit 7", check=False).returncode == 7
        with pytest.raises(LabError, match=r"^spark3: sh -c .*: exit 7: no$"):
            bare_lab.exec("spark3", "sh", "-c", "echo no >&2; exit 7")
        with pytest.raises(LabError, match=r"^spark3: sleep 60: not done after 0.2 s$"):
            bare_lab.exec("spark3", "sleep", "60", timeout=0.2)
        assert bare_lab.exec("spark3", "pgrep", "sleep", check=False).stdout == ""
        with pytest.raises(LabError, match="no node spark4; nodes are spark1, spark2, spark3"):
            bare_lab.exec("spark4", "true")

    def test_memory_limits_of_units_hold(self, bare_lab: Lab) -> None:
        eat = "bytearray(200 << 20)"
        run = ("systemd-run", "-q", "--wait", "--pipe", "-p", "MemoryMax=64M", "-p", "MemorySwapMax=0")
        assert bare_lab.exec("spark1", *run, "/usr/bin/python3", "-c", "0", check=False).returncode == 0
        assert bare_lab.exec("spark1", *run, "/usr/bin/python3", "-c", eat, check=False).returncode != 0

    def test_a_second_up_is_refused(self, bare_lab: Lab) -> None:
        with pytest.raises(LabError, match="a lab is up in"):
            Lab(bare_lab.places.directory).up(bare=True)
        assert bare_lab.is_up()


@pytest.mark.lab
class TestCables:
    def test_jumbo_frames_pass_and_longer_ones_do_not(self, bare_lab: Lab, first_cable: tuple[Link, ...]) -> None:
        for number in range(len(first_cable)):
            ping = ("ping", "-c1", "-W2", "-M", "do", "-s")
            bare_lab.exec("spark1", *ping, "8972", f"10.99.{number}.2")
            assert bare_lab.exec("spark1", *ping, "8973", f"10.99.{number}.2", check=False).returncode != 0

    def test_an_end_refuses_what_is_longer_than_its_mtu(self, bare_lab: Lab, first_cable: tuple[Link, ...]) -> None:
        bare_lab.exec("spark2", "ip", "link", "set", first_cable[0].b.device, "mtu", "1500")
        ping = ("ping", "-c1", "-W1", "-M", "do", "-s")
        bare_lab.exec("spark1", *ping, "1472", "10.99.0.2")
        assert bare_lab.exec("spark1", *ping, "8972", "10.99.0.2", check=False).returncode != 0

    def test_a_pulled_cable_takes_both_carriers_until_it_is_back(
        self, bare_lab: Lab, first_cable: tuple[Link, ...]
    ) -> None:
        assert [carriers(bare_lab, link) for link in first_cable] == [["1", "1"]] * 2
        bare_lab.unplug("spark2", 1)
        assert [carriers(bare_lab, link) for link in first_cable] == [["0", "0"]] * 2
        end = first_cable[0].a
        bare_lab.exec(end.node, "ip", "link", "set", end.device, "down")
        bare_lab.exec(end.node, "ip", "link", "set", end.device, "up")
        assert carriers(bare_lab, first_cable[0]) == ["0", "0"]
        bare_lab.cable("spark1", 0)
        assert [carriers(bare_lab, link) for link in first_cable] == [["1", "1"]] * 2

    def test_one_pci_domain_can_lose_its_link_alone(self, bare_lab: Lab, first_cable: tuple[Link, ...]) -> None:
        bare_lab.unplug("spark1", 0, "0002")
        assert [carriers(bare_lab, link) for link in first_cable] == [["1", "1"], ["0", "0"]]

    def test_what_is_no_cage_is_refused(self, bare_lab: Lab) -> None:
        with pytest.raises(LabError, match="spark1: cable: port is 0 or 1"):
            bare_lab.unplug("spark1", 2)

    def test_the_management_cable_can_be_pulled(self, bare_lab: Lab) -> None:
        bare_lab.mgmt_cut("spark3")
        assert attribute(bare_lab, "spark3", MANAGEMENT_DEVICE, "carrier") == "0"
        ping = ("ping", "-c1", "-W1")
        assert bare_lab.exec("spark1", *ping, address("spark3"), check=False).returncode != 0
        bare_lab.exec("spark1", *ping, address("spark2"))
        bare_lab.mgmt_restore("spark3")
        bare_lab.exec("spark1", "ping", "-c1", "-W5", address("spark3"))


@pytest.mark.lab
class TestPower:
    def test_a_power_cut_is_sudden_for_the_host_and_dark_for_its_peers(
        self, bare_lab: Lab, first_cable: tuple[Link, ...]
    ) -> None:
        bare_lab.exec("spark2", "sh", "-c", "echo kept >/var/lib/kept")
        bare_lab.exec("spark2", "systemd-run", "-q", "--unit=listener", "python3", "-m", "http.server", "8000")
        client = f"import socket, time; s = socket.create_connection(('{address('spark2')}', 8000)); time.sleep(600)"
        established = ("ss", "-Htn", "state", "established", "dport", "8000")
        connect = ("systemd-run", "-q", "-p", "Restart=on-failure", "-p", "RestartSec=100ms", "--unit=client")
        bare_lab.exec("spark1", *connect, "python3", "-c", client)
        assert wait_for(lambda: "8000" in bare_lab.exec("spark1", *established).stdout, 10, pause=0.1)

        bare_lab.power_cut("spark2")

        assert cgroups.members(bare_lab.places.cgroup("spark2")) == set()
        assert attribute(bare_lab, "spark1", first_cable[0].a.device, "carrier") == "0"
        # A host that dies with its network up has its connections reset; one without power cannot say a word.
        assert "8000" in bare_lab.exec("spark1", *established).stdout
        with pytest.raises(LabError, match="spark2: exec: it is not running"):
            bare_lab.exec("spark2", "true")
        assert bare_lab.is_up()

        bare_lab.power_on("spark2")

        assert bare_lab.exec("spark2", "cat", "/var/lib/kept").stdout == "kept\n"
        bare_lab.exec("spark1", "systemctl", "stop", "client")
        bare_lab.exec("spark1", "ping", "-c1", "-W5", address("spark2"))
        for link in first_cable:
            bare_lab.exec("spark2", "ip", "link", "set", link.b.device, "up")
        assert [carriers(bare_lab, link) for link in first_cable] == [["1", "1"]] * 2

    def test_a_reboot_comes_back_by_itself_with_nothing_of_its_network_left(
        self, bare_lab: Lab, first_cable: tuple[Link, ...]
    ) -> None:
        boot, losses = "/proc/sys/kernel/random/boot_id", "carrier_down_count"
        before = bare_lab.exec("spark2", "cat", boot).stdout
        seen = int(attribute(bare_lab, "spark1", first_cable[0].a.device, losses))
        bare_lab.reboot("spark2")
        assert bare_lab.exec("spark2", "cat", boot).stdout != before
        assert "10.99." not in bare_lab.exec("spark2", "ip", "-4", "address").stdout
        assert int(attribute(bare_lab, "spark1", first_cable[0].a.device, losses)) > seen
        bare_lab.exec("spark2", "ping", "-c1", "-W5", address("spark1"))

    def test_a_host_that_powers_off_stays_off(self, bare_lab: Lab) -> None:
        bare_lab.exec("spark3", "systemctl", "poweroff", check=False)
        assert wait_for(lambda: hosts.supervisor(bare_lab.places, "spark3") is None, 20, pause=0.1)
        assert bare_lab.is_up()
        bare_lab.power_on("spark3")
        with pytest.raises(LabError, match="spark3: power on: it has power already"):
            bare_lab.power_on("spark3")


def remains(lab: Lab) -> list[str]:
    """What this machine still has of a lab."""
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if lab.places.prefix in line]
    left += [str(path) for path in NETNS_DIRECTORY.glob(f"{lab.places.prefix}*")]
    left += [str(top / lab.places.prefix) for top in cgroups.hierarchies() if (top / lab.places.prefix).exists()]
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = (path.with_name("cmdline").read_bytes() + path.read_bytes()).decode(errors="replace")
        except OSError:
            continue
        if lab.places.prefix in text or f"SPARKD_LAB_DIR={lab.places.directory}\0" in text:
            left.append(f"process {path.parent.name}: {text.split(chr(0))[0]}")
    return left + [str(path) for path in (lab.places.directory, lab.places.lock) if path.exists()]


@pytest.mark.lab
class TestEnd:
    def test_down_leaves_nothing_and_may_be_repeated(self, no_lab: Lab) -> None:
        no_lab.up(bare=True)
        assert len(remains(no_lab)) > 10
        no_lab.power_cut("spark1")
        no_lab.down()
        assert remains(no_lab) == []
        no_lab.down()
        with pytest.raises(LabError, match="no lab is up in"):
            no_lab.exec("spark1", "true")

    @pytest.mark.parametrize("after", [0.15, 0.5, 0.9])
    def test_after_a_killed_up_everything_can_be_removed(self, no_lab: Lab, after: float) -> None:
        up = subprocess.Popen(
            [Path(__file__).with_name("lab"), "up", "--bare"],
            env={**environment(), "SPARKD_LAB_DIR": str(no_lab.places.directory)},
            stdout=subprocess.DEVNULL,
        )
        with up:
            time.sleep(after)
            up.kill()
        assert not no_lab.is_up()
        no_lab.down()
        assert remains(no_lab) == []

    def test_up_begins_by_removing_a_lab_that_is_half_dead(self, no_lab: Lab) -> None:
        no_lab.up(bare=True)
        lost = hosts.supervisor(no_lab.places, "spark2")
        assert lost
        lost.kill()
        assert wait_for(lambda: not no_lab.is_up(), 5)
        no_lab.up(bare=True)
        assert no_lab.is_up()

    def test_an_up_that_is_interrupted_removes_itself(self, no_lab: Lab) -> None:
        up = subprocess.Popen(
            [Path(__file__).with_name("lab"), "up", "--bare"],
            env={**environment(), "SPARKD_LAB_DIR": str(no_lab.places.directory)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with up:
            time.sleep(0.6)
            up.send_signal(signal.SIGTERM)
            _, said = up.communicate(timeout=30)
        assert (up.returncode, said) == (130, "lab: interrupted\n")
        assert remains(no_lab) == []

    def test_an_up_that_fails_names_node_and_step_and_removes_itself(self, no_lab: Lab, tmp_path: Path) -> None:
        broken = tmp_path / "sparkd_0_all.deb"
        broken.write_text("no package")
        with pytest.raises(LabError, match=r"^spark\d: env .*apt-get install .*: exit 100: "):
            no_lab.up(broken)
        assert remains(no_lab) == []


def test_the_triangle_is_cabled_from_port_0_to_port_1() -> None:
    assert [(link.a.node, link.a.device, link.b.node, link.b.device) for link in links()] == [
        ("spark1", "enp1s0f0np0", "spark2", "enp1s0f1np1"),
        ("spark1", "enP2p1s0f0np0", "spark2", "enP2p1s0f1np1"),
        ("spark2", "enp1s0f0np0", "spark3", "enp1s0f1np1"),
        ("spark2", "enP2p1s0f0np0", "spark3", "enP2p1s0f1np1"),
        ("spark3", "enp1s0f0np0", "spark1", "enp1s0f1np1"),
        ("spark3", "enP2p1s0f0np0", "spark1", "enP2p1s0f1np1"),
    ]


def test_a_process_is_not_taken_for_another_with_its_number() -> None:
    own = process(os.getpid())
    assert own
    assert own.alive()
    assert not type(own)(own.pid, own.started + 1).alive()


def test_the_base_takes_the_machines_own_sources_and_no_third_partys(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# a comment\ndeb [arch=amd64] http://m.example/debian bookworm main contrib\n"
        "deb-src http://m.example/debian bookworm main\ndeb http://other.example/apt stable main\n"
    )
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "security.sources").write_text(
        "Types: deb\n# a comment\nURIs: http://m.example/security\nSuites: bookworm-security\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/some.gpg\n\n"
        "Types: deb\nURIs: http://off.example/\nSuites: bookworm\nComponents: main\nEnabled: no\n"
    )
    assert base.sources("bookworm", tmp_path) == [
        "deb [arch=amd64] http://m.example/debian bookworm main contrib",
        "deb [signed-by=/usr/share/keyrings/some.gpg] http://m.example/security bookworm-security main",
    ]
    with pytest.raises(LabError, match="no source for trixie in"):
        base.sources("trixie", tmp_path)


def test_a_missing_package_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"gone\.deb: no such file"):
        install.check(tmp_path / "gone.deb")
    assert install.newest_deb(tmp_path) is None
