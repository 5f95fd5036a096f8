"""Addresses, MTU, routes and sysctls of an installed sparkd: set, put right before a start, guarded under a group."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.control import Lab
from tests.lab.layout import FABRIC_DEVICES, NODES
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab

PORT = "enp1s0f0np0"
RELEASED = "spark2"
SYSCTLS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}
TICK = 5.0
"""Seconds between two full looks of a daemon."""


def _applied(ring: Ring, node: str) -> str:
    """What sparkd sets on a node, as the kernel tells it."""
    script = """
    ip -4 -o address show | grep ':s ' | sort; ip route show proto 173 | sort
    for port in /sys/class/net/en*np*; do
        name=${port##*/}; conf=/proc/sys/net/ipv4/conf/$name
        echo "$name $(cat $port/mtu $conf/arp_ignore $conf/arp_announce $conf/rp_filter | tr '\\n' ' ')"
    done
    """
    return ring.lab.exec(node, "sh", "-c", script).stdout


@dataclass(frozen=True)
class Drift:
    """`how`: commands of `ip`, run on spark2. `incident`: how its sentence begins."""

    how: tuple[str, ...]
    incident: str


DRIFTS = {
    "mtu-wrong": Drift((f"link set {PORT} mtu 1500",), f"mtu-wrong: the MTU of {PORT} is 1500, not 9000"),
    "address-lost": Drift(
        (f"address delete 10.77.2.2/24 dev {PORT}",), f"address-lost: 10.77.2.2/24 is no longer on {PORT}"
    ),
    "address-foreign": Drift((f"address add 10.77.0.99/24 dev {PORT}",), "address-foreign: 10.77.0.99/24"),
    "route-lost": Drift(("route flush proto 173",), "route-lost: the route to 10.77."),
}


def _drift(ring: Ring, drift: Drift) -> None:
    for command in drift.how:
        ring.lab.exec("spark2", "ip", *command.split())


@pytest.fixture
def without_foreign_addresses(lab: Lab) -> Iterator[None]:
    yield
    script = "ip -4 -o address show | grep -v ':s ' | awk '$2 ~ /np[01]$/ { print $4, $2 }'"
    for node in NODES:
        for line in lab.exec(node, "sh", "-c", script).stdout.splitlines():
            address, device = line.split()
            lab.exec(node, "ip", "address", "delete", address, "dev", device)


@pytest.mark.usefixtures("without_foreign_addresses")
@pytest.mark.parametrize("name", DRIFTS)
def test_drift_under_a_group_is_an_incident(ring: Ring, name: str) -> None:
    """Field reports mtu-wrong, address-lost, address-foreign and route-lost, while serving."""
    before = ring.fresh()
    _drift(ring, DRIFTS[name])
    expected = f"incident on spark2: {DRIFTS[name].incident}"
    for node in NODES:
        ring.until(node, lambda seen: any(wait.startswith(expected) for wait in seen["waits"]), 15)
    assert ring.get("spark1")["epoch"] == before["epoch"]
    # The group is stopped in order, everywhere, before anything is put right.
    for node in NODES:
        ring.until(node, lambda seen: all(rank["state"] == "ended" for rank in seen["ranks"]), 5)


def test_after_an_incident_the_fabric_is_as_before_and_the_ring_serves_again(ring: Ring) -> None:
    before = ring.fresh()
    applied = {node: _applied(ring, node) for node in NODES}
    for drift in (DRIFTS["mtu-wrong"], DRIFTS["address-lost"], DRIFTS["route-lost"]):
        _drift(ring, drift)
    after = ring.phase("ready", above=before["epoch"])
    assert after["epoch"] == before["epoch"] + 1
    assert after["deaths"][-1]["node"] == "spark2"
    assert after["reason"].startswith("restart: incident on spark2: ")
    assert {node: _applied(ring, node) for node in NODES} == applied


def test_carrier_flap_of_100_ms_is_an_incident(ring: Ring) -> None:
    """Field report carrier-flap. Netlink need not have told it; the counters have."""
    before = ring.fresh()
    ring.lab.flap("spark2", 0, 100)
    expected = (
        "incident on spark2: carrier-flap: the carrier of ",
        "incident on spark3: carrier-flap: the carrier of ",
    )
    seen = ring.until("spark1", lambda seen: any(wait.startswith(expected) for wait in seen["waits"]), 15)
    assert "has changed 2 times since the start" in seen["waits"][0]
    assert seen["epoch"] == before["epoch"]


def test_drift_before_a_start_is_put_right(ring: Ring) -> None:
    """Field reports mtu-wrong, address-lost and route-lost, before a start: while a cable that is out holds it up."""
    before = ring.fresh()
    applied = _applied(ring, "spark2")
    ring.lab.unplug("spark3", 0)
    ring.lab.exec("spark1", "systemctl", "kill", "-s", "KILL", f"sparkd-rank@{before['epoch']}.service")
    ring.until("spark2", lambda seen: all(rank["state"] == "ended" for rank in seen["ranks"]))
    for name in ("mtu-wrong", "address-lost", "route-lost"):
        _drift(ring, DRIFTS[name])
        end = time.monotonic() + 2 * TICK
        while _applied(ring, "spark2") != applied:
            assert time.monotonic() < end, f"{name}: {_applied(ring, 'spark2')}"
            time.sleep(0.1)
    assert ring.get("spark1")["want"] == "up"


def test_mtu_wrong_on_a_ring_that_is_down_does_not_keep_it_from_starting(down: Ring) -> None:
    for node in NODES:
        down.lab.exec(node, "ip", "link", "set", PORT, "mtu", "1400")
    down.start()
    for node in NODES:
        assert down.lab.exec(node, "cat", f"/sys/class/net/{PORT}/mtu").stdout == "9000\n"


@pytest.mark.usefixtures("without_foreign_addresses")
def test_address_foreign_is_told_and_in_nobodys_way_unless_it_overlaps(down: Ring) -> None:
    """Field report address-foreign."""
    down.lab.exec("spark2", "ip", "address", "add", "10.99.0.1/24", "dev", PORT)
    seen = down.until("spark1", lambda seen: seen["findings"] != [], 10)
    assert [(f["id"], f["node"], f["severity"], f["subject"]) for f in seen["findings"]] == [
        ("address-foreign", "spark2", "warn", PORT)
    ]
    assert "10.99.0.1/24" in seen["findings"][0]["observed"]
    down.start()
    down.stop()
    down.lab.exec("spark2", "ip", "address", "add", "10.77.0.99/24", "dev", PORT)
    down.until("spark1", lambda seen: any("10.77.0.99/24" in f["observed"] for f in seen["findings"]), 10)
    assert any(f["node"] == "spark2" and "10.77.0.99/24" in f["observed"] for f in down.refusal())


def test_subnet_overlap_of_a_connected_network_is_refused_with_a_free_range(down: Ring) -> None:
    """Field report subnet-overlap, for a network that a node is in itself."""
    down.lab.exec("spark3", "ip", "address", "add", "10.77.5.1/24", "dev", "enP7s7")
    try:
        down.until("spark1", lambda seen: [f["id"] for f in seen["findings"]] == ["subnet-overlap"], 10)
        (found,) = down.refusal("spark2")
        assert sentence(found) == (
            "subnet-overlap: spark3: cluster.base_range: 10.77.0.0/21 overlaps 10.77.5.0/24 on enP7s7; "
            "expected a range that no network of any node uses"
        )
        assert found["fix"].startswith('set base_range = "10.')
    finally:
        down.lab.exec("spark3", "ip", "address", "delete", "10.77.5.1/24", "dev", "enP7s7")
    down.settled()


def test_ipv6_off_on_a_port_is_said_with_the_fix(down: Ring) -> None:
    key = f"net.ipv6.conf.{PORT}.disable_ipv6"
    down.lab.exec("spark2", "sysctl", "-q", "-w", f"{key}=1")
    try:
        seen = down.until("spark1", lambda seen: any(f["id"] == "ipv6-off" for f in seen["findings"]), 10)
        found = next(f for f in seen["findings"] if f["id"] == "ipv6-off")
        assert sentence(found) == (
            f"ipv6-off: spark2: {PORT}: IPv6 is off (or the MTU is below 1280), so the port cannot tell what it is "
            "cabled to; "
            "expected the kernel's fe80:: address on each fabric port"
        )
        assert found["fix"].startswith(f"sysctl -w {key}=0")
        assert found in down.refusal()
    finally:
        down.lab.exec("spark2", "sysctl", "-q", "-w", f"{key}=0")
    down.settled(15)
    down.start()


def test_mgmt_lost_while_the_fabric_is_up_is_no_reason_to_stop(ring: Ring) -> None:
    """Field report mgmt-lost-fabric-up."""
    before = ring.fresh()
    pids = ring.pids(before["epoch"])
    ring.lab.mgmt_cut("spark3")
    seen = ring.until("spark1", lambda seen: seen["phase"] != "ready", 30)
    assert (seen["phase"], seen["epoch"]) == ("degraded", before["epoch"])
    assert "spark3 has not answered for" in seen["summary"]
    canaries = ring.health()["canaries"]
    ring.until_health(lambda later: later["canaries"] >= canaries + 2)
    ring.lab.mgmt_restore("spark3")
    after = ring.phase("ready", seconds=20)
    assert after["epoch"] == before["epoch"]
    assert ring.pids(after["epoch"]) == pids


def test_the_ports_of_a_serving_ring_have_the_sysctls_of_a_multi_homed_host(ring: Ring) -> None:
    ring.fresh()
    for node in NODES:
        for device in FABRIC_DEVICES.values():
            for name, value in SYSCTLS.items():
                shown = ring.lab.exec(node, "cat", f"/proc/sys/net/ipv4/conf/{device}/{name}").stdout
                assert (device, name, shown.strip()) == (device, name, value)


def test_what_is_applied_is_not_applied_again(ring: Ring) -> None:
    """No netlink message about links, addresses, routes or sysctls, while it serves and over a daemon's restart."""
    ring.fresh()
    watching = ["timeout", str(2 * TICK + 1), "ip", "-o", "monitor", "link", "address", "route", "rule", "netconf"]
    monitors = {
        node: subprocess.Popen(ring.lab.command(node, *watching), stdout=subprocess.PIPE, text=True) for node in NODES
    }
    time.sleep(TICK)
    ring.lab.each(lambda node: ring.lab.exec(node, "systemctl", "restart", "sparkd"))
    for node in NODES:
        ring.until(node, lambda seen: seen["phase"] == "ready", 20)
    heard = {node: monitor.communicate()[0] for node, monitor in monitors.items()}
    assert heard == dict.fromkeys(NODES, "")
    # The same ears do hear.
    monitor = subprocess.Popen(
        ring.lab.command("spark1", "timeout", "2", *watching[2:]), stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    ring.lab.exec("spark1", "ip", "link", "set", "enP7s7", "alias", "management")
    assert "enP7s7" in monitor.communicate()[0]


def test_a_daemon_killed_at_any_moment_of_a_start_converges(ring: Ring) -> None:
    ring.fresh()
    applied = {node: _applied(ring, node) for node in NODES}
    ring.stop()
    chance = random.Random(3)
    for attempt in range(10):
        assert ring.ask("spark1", "POST", "/v1/ring/start").status == 202
        victim, after = chance.choice(NODES), chance.uniform(0, 0.7)
        time.sleep(after)
        script = "systemctl kill -s KILL sparkd; systemctl start sparkd"
        ring.lab.exec(victim, "sh", "-c", script)
        story = f"attempt {attempt}: {victim} after {after:.2f} s"
        try:
            seen = ring.phase("ready", seconds=25)
        except AssertionError as error:
            raise AssertionError(f"{story}: {error}") from None
        # Killed between recording a start and asking systemd for it, a daemon cannot know whether it had been heard.
        assert [death for death in seen["deaths"] if death["formed"]] == [], story
        assert {node: _applied(ring, node) for node in NODES} == applied, story
        assert all(ring.units(node) == [f"sparkd-rank@{seen['epoch']}.service"] for node in NODES), story
        ring.stop()
        assert all(ring.units(node) == [] for node in NODES), story


# Giving the ports back


def _state(lab: Lab) -> dict[str, str]:
    """Everything that sparkd could have changed of its host's network, without counters and remaining lifetimes.

    A port that was never up has the qdisc noop; once it has been up it has noqueue, and nothing brings noop back.
    """
    conf = "cd /proc/sys/net; grep -rs . ipv4/conf ipv6/conf ipv4/neigh ipv6/neigh"
    commands: dict[str, tuple[str, ...]] = {
        "addresses": ("ip", "-d", "address"),
        "routes": ("ip", "route", "show", "table", "all"),
        "IPv6 routes": ("ip", "-6", "route", "show", "table", "all"),
        "sysctls": ("sh", "-c", conf + " | sort"),
    }
    shown = {name: lab.exec(RELEASED, *command, check=False).stdout for name, command in commands.items()}
    return {name: text.replace("qdisc noop ", "qdisc noqueue ") for name, text in shown.items()}


def _differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    lines = []
    for name, text in before.items():
        old, new = text.splitlines(), after[name].splitlines()
        lines += [f"{name}: - {line}" for line in old if line not in new]
        lines += [f"{name}: + {line}" for line in new if line not in old]
        lines += [f"{name}: order"] if not lines and old != new else []
    return lines


@pytest.fixture
def untouched(lab: Lab) -> dict[str, str]:
    """The state of a node that has booted without sparkd, and sparkd started on it afterwards."""
    ring = Ring(lab)
    ring.rest()
    lab.exec(RELEASED, "systemctl", "disable", "--now", "sparkd")
    lab.reboot(RELEASED)
    # The kernel tries out a new address for a second or two.
    while "tentative" in (state := _state(lab))["addresses"]:
        time.sleep(0.1)
    lab.exec(RELEASED, "systemctl", "enable", "--now", "sparkd")
    ring.settled()
    return state


def test_fabric_down_leaves_the_host_as_it_was_before_sparkd(untouched: dict[str, str], ring: Ring) -> None:
    ring.start()
    assert _differences(untouched, _state(ring.lab)) != []
    used = ring.ask(RELEASED, "POST", "/v1/host/fabric/down")
    assert (used.status, used.body["code"]) == (409, "fabric-in-use")
    ring.stop()
    answer = ring.ask(RELEASED, "POST", "/v1/host/fabric/down")
    assert (answer.status, answer.body["node"]) == (202, RELEASED)
    try:
        end = time.monotonic() + 2 * TICK
        while left := _differences(untouched, _state(ring.lab)):
            assert time.monotonic() < end, "\n".join(left)
            time.sleep(0.2)
        expected = (
            f"fabric-released: {RELEASED}: the fabric ports: an operator has taken them from sparkd "
            "(sparkctl fabric down); expected ports that sparkd may configure"
        )
        for node in NODES:
            found: list[dict[str, Any]] = ring.refusal(node)
            assert expected in [sentence(each) for each in found]
        assert _differences(untouched, _state(ring.lab)) == []
    finally:
        assert ring.ask(RELEASED, "POST", "/v1/host/fabric/up").status == 202
    ring.settled()
    ring.start()
