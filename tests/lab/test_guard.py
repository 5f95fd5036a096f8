"""What keeps a start from going wrong, and what is noticed under a group, in a lab with an installed sparkd."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.lab.layout import FABRIC_DEVICES
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab


def test_firewall_blocks_is_refused_with_both_nodes_and_over_when_the_firewall_is(down: Ring) -> None:
    """Field report firewall-blocks."""
    down.lab.firewall("spark2", on=True)
    # With another port, or the one that has been reached already would be tried again only after a minute.
    down.lab.exec("spark2", "systemctl", "restart", "sparkd")
    for node in ("spark1", "spark3"):
        down.until(node, lambda seen: _blocked(seen) == {"spark1", "spark3"}, 25)
    found = [finding for finding in down.refusal("spark3") if finding["id"] == "firewall-blocks"]
    assert [(f["node"], f["severity"], f["subject"]) for f in found] == [
        ("spark1", "refuse", "TCP to spark2"),
        ("spark3", "refuse", "TCP to spark2"),
    ]
    said = sentence(found[1])
    assert said.startswith(
        "firewall-blocks: spark3: TCP to spark2: spark2 answers sparkd, but its TCP port 192.168.77.2:"
    )
    assert "cannot be reached from spark3 (192.168.77.3): no answer within 3 s" in said
    assert "on spark2: ufw allow from 192.168.77.3" in found[1]["fix"]
    down.lab.firewall("spark2", on=False)
    down.settled()
    down.start()


LISTEN = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 8888)); print('there', flush=True); time.sleep(60)"
)


@pytest.mark.parametrize("node", ["spark1", "spark2"])
def test_second_supervisor_that_has_just_come_refuses_and_one_that_has_just_left_does_not(
    down: Ring, node: str
) -> None:
    """Field report second-supervisor; the hosts look at their ports once a minute, and at a start."""
    other = subprocess.Popen(down.lab.command(node, "python3", "-c", LISTEN), stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        (found,) = down.refusal()
        assert (found["id"], found["node"], found["subject"]) == ("second-supervisor", node, "port 8888")
        assert "listens on 127.0.0.1:8888" in found["observed"]
    finally:
        down.lab.exec(node, "pkill", "-f", "create_server..'127.0.0.1', 8888", check=False)
        other.communicate()
    down.start()


def test_ports_that_were_flushed_of_all_addresses_are_heard_again(down: Ring) -> None:
    """Without its fe80:: address a port says no hello, and `ip address flush` takes that, too."""
    for device in FABRIC_DEVICES.values():
        down.lab.exec("spark2", "ip", "address", "flush", "dev", device)
        down.lab.exec("spark2", "sysctl", "-q", "-w", f"net.ipv6.conf.{device}.addr_gen_mode=1")
    script = "ip -6 -o address show scope link | grep -c np"
    end = time.monotonic() + 15
    while down.lab.exec("spark2", "sh", "-c", script, check=False).stdout.strip() != "4":
        assert time.monotonic() < end, down.lab.exec("spark2", "ip", "-6", "-o", "address").stdout
        time.sleep(0.2)
    down.settled()
    down.start()


DROP_IN = "/etc/systemd/system/sparkd.service.d/raw-hello.conf"


def test_with_the_raw_hello_a_port_may_keep_ipv6_off(down: Ring) -> None:
    """Granted at both ends of the cable of spark2's port 0, which has IPv6 off at both of its ends."""
    example = "/usr/share/doc/sparkd/examples/raw-hello.conf"
    ends = (("spark2", 0), ("spark3", 1))
    ports = [(node, f"{domain}s0f{cage}np{cage}") for node, cage in ends for domain in ("enp1", "enP2p1")]
    try:
        for node in ("spark2", "spark3"):
            down.lab.exec(node, "install", "-D", "-m", "0644", example, DROP_IN)
            down.lab.exec(node, "systemctl", "daemon-reload")
        for node, device in ports:
            down.lab.exec(node, "sysctl", "-q", "-w", f"net.ipv6.conf.{device}.disable_ipv6=1")
        down.until("spark1", lambda seen: {f["node"] for f in seen["findings"]} >= {"spark2", "spark3"}, 15)
        for node in ("spark2", "spark3"):
            down.lab.exec(node, "systemctl", "restart", "sparkd")
        down.settled()
        down.start()
        down.stop()
    finally:
        for node, device in ports:
            down.lab.exec(node, "sysctl", "-q", "-w", f"net.ipv6.conf.{device}.disable_ipv6=0")
        for node in ("spark2", "spark3"):
            down.lab.exec(node, "rm", "-f", DROP_IN)
            down.lab.exec(node, "systemctl", "daemon-reload")
            down.lab.exec(node, "systemctl", "restart", "sparkd")


def test_route_leaks_by_a_rule_before_the_main_table_is_an_incident_and_refused(ring: Ring) -> None:
    """Field report route-leaks. No route changes, so that the kernel tells nobody."""
    ring.fresh()
    far = ring.lab.exec("spark2", "sh", "-c", "ip route show proto 173 | head -n 1 | cut -d' ' -f1").stdout.strip()
    rule = ("to", far, "lookup", "77")
    ring.lab.exec("spark2", "ip", "route", "add", "default", "dev", "enP7s7", "table", "77")
    ring.lab.exec("spark2", "ip", "rule", "add", *rule)
    try:
        expected = f"incident on spark2: route-leaks: what is for {far} now goes by enP7s7 from 192.168.77.2"
        ring.until("spark1", lambda seen: any(wait.startswith(expected) for wait in seen["waits"]), 20)
        ring.until("spark1", lambda seen: any(f["id"] == "route-leaks" for f in seen["findings"]), 20)
    finally:
        ring.lab.exec("spark2", "ip", "rule", "delete", *rule)
        ring.lab.exec("spark2", "ip", "route", "flush", "table", "77")
    ring.phase("ready")


def _blocked(seen: dict[str, object]) -> set[str]:
    """The nodes that say so."""
    findings = seen["findings"]
    assert isinstance(findings, list)
    return {finding["node"] for finding in findings if finding["id"] == "firewall-blocks"}
