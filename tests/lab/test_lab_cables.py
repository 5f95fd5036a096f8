"""The lab's cables without sparkd: recabled, flapping, slow, and a firewall between the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.layout import NODES, OUTSIDE, address, ends_of, links, parse_cables
from tests.lab.shell import LabError, wait_for

A, B, C = "spark1.p0-spark2.p1", "spark2.p0-spark3.p1", "spark3.p0-spark1.p1"
RECEIVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    taken, _ = listener.accept()
    while taken.recv(1 << 20):
        pass
    taken.send(b"!")
    taken.close()
"""
SENDER = """
import socket, sys, time
sender = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
begin = time.monotonic()
sender.sendall(bytes(int(sys.argv[3])))
sender.shutdown(socket.SHUT_WR)
sender.recv(1)
print(time.monotonic() - begin)
"""


def attribute(lab: Lab, node: str, device: str, name: str) -> str:
    return lab.exec(node, "cat", f"/sys/class/net/{device}/{name}", check=False).stdout.strip()


def light(lab: Lab) -> set[str]:
    """The ends that have carrier, such as spark1.p0.0000."""
    ends = [end for node in NODES for end in ends_of(node)]
    return {str(end) for end in ends if attribute(lab, end.node, end.device, "carrier") == "1"}


@pytest.fixture
def ports(bare_lab: Lab) -> Iterator[Lab]:
    """All ports of all nodes are up, and every first port has an address that tells its node."""
    for number, node in enumerate(NODES, 1):
        for end in ends_of(node):
            bare_lab.exec(node, "ip", "link", "set", end.device, "up", "mtu", "9000")
        bare_lab.exec(node, "ip", "address", "add", f"10.99.0.{number}/24", "dev", "enp1s0f0np0")
    yield bare_lab
    for node in NODES:
        for end in ends_of(node):
            bare_lab.exec(node, "ip", "address", "flush", "dev", end.device)
            bare_lab.exec(node, "ip", "link", "set", end.device, "down", "mtu", "1500")


@pytest.mark.lab
class TestCabling:
    def test_each_cable_may_go_anywhere(self, ports: Lab) -> None:
        every = {f"{node}.p{port}.{domain}" for node in NODES for port in (0, 1) for domain in ("0000", "0002")}
        assert light(ports) == every
        ping = ("ping", "-c1", "-W1")
        assert ports.exec("spark1", *ping, "10.99.0.2", check=False).returncode != 0
        ports.recable(["spark1.p0-spark2.p0", "spark3.p1.0002-spark3.p0.0002"])
        ports.exec("spark1", *ping, "10.99.0.2")
        assert light(ports) == {
            *(f"{node}.p0.{domain}" for node in ("spark1", "spark2") for domain in ("0000", "0002")),
            "spark3.p1.0002",
            "spark3.p0.0002",
        }
        ports.recable(["spark1.p0-spark3.p0"])
        ports.exec("spark1", *ping, "10.99.0.3")
        assert ports.exec("spark1", *ping, "10.99.0.2", check=False).returncode != 0
        ports.recable()
        assert light(ports) == every

    def test_ends_that_keep_their_cable_notice_nothing(self, ports: Lab) -> None:
        kept = [end for link in parse_cables([A]) for end in link.ends]
        before = [attribute(ports, end.node, end.device, "carrier_changes") for end in kept]
        ports.recable([A])
        assert [attribute(ports, end.node, end.device, "carrier_changes") for end in kept] == before

    def test_a_cable_may_end_in_a_machine_outside(self, ports: Lab) -> None:
        ports.recable(["spark1.p0-outside.p1"])
        ports.exec(OUTSIDE, "ip", "address", "add", "10.99.0.9/24", "dev", "enp1s0f1np1")
        try:
            assert "1 received" in ports.exec("spark1", "ping", "-c1", "-W1", "10.99.0.9").stdout
        finally:
            ports.exec(OUTSIDE, "ip", "address", "flush", "dev", "enp1s0f1np1")

    def test_cables_survive_a_reboot_of_their_node(self, ports: Lab) -> None:
        ports.recable(["spark1.p0-spark2.p0"])
        ports.reboot("spark2")
        ports.exec("spark2", "ip", "link", "set", "enp1s0f0np0", "up")
        assert light(ports) == {"spark1.p0.0000", "spark1.p0.0002", "spark2.p0.0000"}

    @pytest.mark.parametrize(
        ("cable", "why"),
        [
            ("spark1.p0", "is no cable such as"),
            ("spark1.p2-spark2.p0", "is no cable such as"),
            ("spark1.p0.0000-spark2.p1", "is no cable such as"),
            ("spark1.p0-spark4.p1", "no node spark4"),
            ("spark1.p0-spark1.p0", "two cables at spark1.p0.0000"),
        ],
    )
    def test_what_is_no_cable_is_refused(self, bare_lab: Lab, cable: str, why: str) -> None:
        with pytest.raises(LabError, match=why):
            bare_lab.recable([cable])
        assert bare_lab.cables == links()


@pytest.mark.lab
class TestFaults:
    def test_a_flap_is_short_and_counted_at_both_ends(self, ports: Lab) -> None:
        ends = [end for link in parse_cables([B]) for end in link.ends]
        before = [int(attribute(ports, end.node, end.device, "carrier_changes")) for end in ends]
        begin = time.monotonic()
        ports.flap("spark2", 0, ms=100)
        assert 0.1 <= time.monotonic() - begin < 1
        after = [int(attribute(ports, end.node, end.device, "carrier_changes")) for end in ends]
        assert after == [count + 2 for count in before]
        assert len(light(ports)) == 12

    def test_a_rate_holds_in_both_directions_until_it_is_taken_away(self, ports: Lab) -> None:
        ports.recable(["spark1.p0-spark2.p0"])
        for node in ("spark1", "spark2"):
            own = f"10.99.0.{node[-1]}"
            ports.exec(node, "systemd-run", "-q", "--unit=receiver", "python3", "-c", RECEIVER, own, "8000")
            _await_listener(ports, node, "8000")
        free = [_seconds(ports, *way) for way in (("spark1", "10.99.0.2"), ("spark2", "10.99.0.1"))]
        ports.rate("spark1", 0, 100)
        slow = [_seconds(ports, *way) for way in (("spark1", "10.99.0.2"), ("spark2", "10.99.0.1"))]
        assert ports.status()["rates"] == dict.fromkeys(map(str, ports.cables), 100)
        ports.rate("spark2", 0, 0)
        again = _seconds(ports, "spark1", "10.99.0.2")
        # 8 MB take 0.64 s at 100 Mbit/s.
        assert all(0.5 < seconds < 1.5 for seconds in slow), (free, slow)
        assert all(seconds < 0.3 for seconds in (*free, again)), (free, slow, again)
        assert ports.status()["rates"] == {}
        for node in ("spark1", "spark2"):
            ports.exec(node, "systemctl", "stop", "receiver")

    def test_a_firewall_lets_nothing_new_in_above_the_rendezvous(self, bare_lab: Lab) -> None:
        for port in ("20000", "20555"):
            receive = ("python3", "-c", RECEIVER, address("spark2"), port)
            bare_lab.exec("spark2", "systemd-run", "-q", f"--unit=at{port}", *receive)
            _await_listener(bare_lab, "spark2", port)
        bare_lab.firewall("spark2", on=True)
        reach = ("python3", "-c", SENDER, address("spark2"))
        bare_lab.exec("spark1", *reach, "20000", "1")
        refused = bare_lab.exec("spark1", *reach, "20555", "1", check=False)
        assert refused.returncode != 0
        assert "timed out" in refused.stderr
        assert "drop" in bare_lab.exec("spark2", "nft", "list", "ruleset").stdout
        bare_lab.mend()
        bare_lab.exec("spark1", *reach, "20555", "1")
        assert bare_lab.exec("spark2", "nft", "list", "ruleset").stdout == ""
        bare_lab.exec("spark2", "systemctl", "stop", "at20000", "at20555")


def _await_listener(lab: Lab, node: str, port: str) -> None:
    assert wait_for(lambda: f":{port} " in lab.exec(node, "ss", "-Hltn").stdout, 10, 0.1)


def _seconds(lab: Lab, node: str, to: str) -> float:
    """How long 8 MB take."""
    return float(lab.exec(node, "python3", "-c", SENDER, to, "8000", "8000000").stdout)


def test_the_usual_cabling_is_a_ring_or_one_cable() -> None:
    assert [str(link) for link in links(("spark1", "spark2"))] == [
        "spark1.p0.0000-spark2.p0.0000",
        "spark1.p0.0002-spark2.p0.0002",
    ]
    assert links(NODES) == parse_cables([A, B, C])
    four = parse_cables([A, B, "spark3.p0-spark4.p1", "spark4.p0-spark1.p1"])
    assert links((*NODES, "spark4")) == four


@pytest.mark.parametrize("number", [1, 5])
def test_a_lab_has_two_to_four_nodes(number: int) -> None:
    with pytest.raises(LabError, match="a lab has 2 to 4 nodes"):
        Lab(nodes=number)
