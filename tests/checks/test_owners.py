"""Files of netplan, NetworkManager and systemd-networkd that speak of fabric ports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkd.core.checks.network_owners import writer
from sparkd.core.hardware import Manager, OwnerFacts, Profile
from sparkd.core.model import Finding
from sparkd.host.profiles import Claim, keyfile, netplan, network_unit
from tests.architecture.repository import ROOT
from tests.checks.spark import NODE, Spark, mac, running_as_root

PORT = "enp1s0f0np0"
TWIN = "enP2p1s0f0np0"
DEVICES = {PORT: "4c:bb:47:00:00:00", TWIN: ""}
WHEN = "2026-07-01 12:03 UTC"
NO_DHCP = "no DHCP on a fabric port: nobody answers there, and each retry flushes addresses and routes"
KEYFILE = "etc/NetworkManager/system-connections/Wired.nmconnection"


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def put(spark: Spark, path: str, text: str) -> None:
    os.utime(spark.put(path, text), (1782907380, 1782907380))


def profiles(spark: Spark) -> tuple[Profile, ...]:
    owners = spark.facts().owners
    assert owners is not None
    return owners.profiles


# dhcp-on-fabric


def test_a_networkmanager_profile_with_dhcp(spark: Spark) -> None:
    put(spark, KEYFILE, f"[connection]\nid=Wired\ninterface-name={PORT}\n\n[ipv4]\nmethod=auto\n")
    result = spark.check("dhcp-on-fabric")
    assert result.findings == (
        Finding(
            "dhcp-on-fabric",
            NODE,
            "warn",
            PORT,
            f"NetworkManager's /{KEYFILE} (modified {WHEN}) asks for an address by DHCP",
            NO_DHCP,
            f"remove /{KEYFILE} or its interface-name {PORT}, then nmcli connection reload",
        ),
    )
    assert spark.check("profile-on-fabric").verdict == "pass"


def test_a_netplan_file_with_dhcp(spark: Spark) -> None:
    put(spark, "etc/netplan/50-fabric.yaml", f"network:\n  ethernets:\n    {PORT}:\n      dhcp4: true\n")
    (finding,) = spark.check("dhcp-on-fabric").findings
    assert finding.observed == f"netplan's /etc/netplan/50-fabric.yaml (modified {WHEN}) asks for an address by DHCP"
    assert finding.fix == f"take {PORT} out of /etc/netplan/50-fabric.yaml, then netplan apply"


def test_a_networkd_file_with_dhcp(spark: Spark) -> None:
    put(spark, "etc/systemd/network/20-all.network", "[Match]\nName=en*np1\n[Network]\nDHCP=ipv4\n")
    result = spark.check("dhcp-on-fabric")
    assert [finding.subject for finding in result.findings] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert (
        result.findings[0].fix == "take enp1s0f1np1 out of /etc/systemd/network/20-all.network, then networkctl reload"
    )


# profile-on-fabric


def test_a_static_profile(spark: Spark) -> None:
    put(spark, "etc/netplan/40-cx7.yaml", f"network:\n  ethernets:\n    {PORT}:\n      addresses: [10.0.0.1/24]\n")
    assert spark.check("profile-on-fabric").findings == (
        Finding(
            "profile-on-fabric",
            NODE,
            "warn",
            PORT,
            f"netplan's /etc/netplan/40-cx7.yaml (modified {WHEN}) owns the port and sets 10.0.0.1/24",
            "fabric ports that nothing but sparkd configures",
            f"take {PORT} out of /etc/netplan/40-cx7.yaml, then netplan apply; or go by it: "
            'address_plan = "adopt" in sparkd.toml',
        ),
    )
    assert spark.check("dhcp-on-fabric").verdict == "pass"
    assert spark.check("profile-on-fabric", adopt=True).verdict == "pass"


def test_the_writer_of_an_address(spark: Spark) -> None:
    put(spark, "etc/netplan/40-cx7.yaml", f"network:\n  ethernets:\n    {PORT}:\n      addresses: [10.0.0.1/24]\n")
    put(spark, KEYFILE, f"[connection]\ninterface-name={PORT}\n[ipv4]\nmethod=auto\n")
    owners = spark.facts().owners
    assert writer(owners, PORT, "10.0.0.1/24") == f"netplan's /etc/netplan/40-cx7.yaml (modified {WHEN})"
    assert writer(owners, PORT, "10.0.0.2/24") == f"NetworkManager's /{KEYFILE} (modified {WHEN})"
    assert writer(owners, TWIN, "10.0.0.1/24") == ""
    assert writer(None, PORT, "10.0.0.1/24") == ""


# What the managers make of the files


def test_a_later_netplan_file_has_the_last_word(spark: Spark) -> None:
    put(spark, "etc/netplan/50-a.yaml", f"network:\n  ethernets:\n    {PORT}: {{dhcp4: true}}\n")
    put(spark, "etc/netplan/60-b.yaml", f"network:\n  ethernets:\n    {PORT}: {{dhcp4: false}}\n")
    assert spark.check("dhcp-on-fabric").verdict == "pass"
    put(spark, "etc/netplan/70-c.yaml", f"network:\n  ethernets:\n    {PORT}: {{dhcp4: yes}}\n")
    assert [f.observed.split()[1] for f in spark.check("dhcp-on-fabric").findings] == [
        "/etc/netplan/50-a.yaml",
        "/etc/netplan/70-c.yaml",
    ]


def test_networkd_goes_by_the_first_file_that_matches(spark: Spark) -> None:
    put(spark, "usr/lib/systemd/network/10-sparkd.network", "[Match]\nName=en*np0 en*np1\n[Link]\nUnmanaged=yes\n")
    put(spark, "etc/systemd/network/20-all.network", "[Match]\nName=en*\n[Network]\nDHCP=yes\n")
    assert profiles(spark) == ()
    put(spark, "etc/systemd/network/10-sparkd.network", "")
    assert {profile.path for profile in profiles(spark)} == {"/etc/systemd/network/20-all.network"}
    assert len(profiles(spark)) == 4


def test_the_packages_own_file_keeps_networkd_off_and_is_nobodys_profile(spark: Spark) -> None:
    own = (ROOT / "units/network/10-sparkd-fabric.network").read_text()
    put(spark, "usr/lib/systemd/network/10-sparkd-fabric.network", own)
    put(spark, "etc/systemd/network/20-wired.network", "[Match]\nName=en*\n[Network]\nDHCP=yes\n")
    assert profiles(spark) == ()
    made = f"run/systemd/network/10-netplan-{PORT}.network"
    put(spark, made, f"[Match]\nName={PORT}\n[Network]\nAddress=10.0.0.1/24\n")
    assert [(profile.device, profile.path) for profile in profiles(spark)] == [(PORT, f"/{made}")]


def test_a_drop_in_of_networkd_is_named_where_it_is_the_one_that_sets_an_address(spark: Spark) -> None:
    put(spark, "etc/systemd/network/20-cx7.network", f"[Match]\nName={PORT}\n")
    put(spark, "etc/systemd/network/20-cx7.network.d/mtu.conf", "[Link]\nMTUBytes=9000\n")
    assert [(p.path, p.dhcp) for p in profiles(spark)] == [("/etc/systemd/network/20-cx7.network", False)]
    put(spark, "run/systemd/network/20-cx7.network.d/dhcp.conf", "[Network]\nDHCP=yes\n")
    assert [(p.path, p.dhcp) for p in profiles(spark)] == [("/run/systemd/network/20-cx7.network.d/dhcp.conf", True)]
    put(spark, "etc/systemd/network/20-cx7.network.d/zz.conf", "[Link]\nUnmanaged=yes\n")
    assert profiles(spark) == ()


def test_what_netplan_made_is_told_only_without_its_source(spark: Spark) -> None:
    made = f"run/NetworkManager/system-connections/netplan-{PORT}.nmconnection"
    put(spark, made, f"[connection]\ninterface-name={PORT}\n[ipv4]\nmethod=auto\n")
    (finding,) = spark.check("dhcp-on-fabric").findings
    assert finding.observed == f"NetworkManager's /{made} (modified {WHEN}) asks for an address by DHCP"
    assert finding.fix == f"take {PORT} out of the file in /etc/netplan from which it was made, then netplan apply"
    put(spark, "etc/netplan/50-fabric.yaml", f"network:\n  ethernets:\n    {PORT}:\n      dhcp4: true\n")
    assert [profile.path for profile in profiles(spark)] == ["/etc/netplan/50-fabric.yaml"]


def test_a_profile_by_hardware_address(spark: Spark) -> None:
    put(spark, KEYFILE, f"[ethernet]\nmac-address={mac(TWIN).upper()}\n[ipv4]\nmethod=auto\n")
    assert [profile.device for profile in profiles(spark)] == [TWIN]


def test_profiles_of_other_devices_are_nobodys_business(spark: Spark) -> None:
    put(spark, KEYFILE, "[connection]\ninterface-name=enP7s7\n[ipv4]\nmethod=auto\n")
    put(spark, "etc/netplan/50.yaml", "network:\n  ethernets:\n    enP7s7:\n      dhcp4: true\n")
    put(spark, "etc/systemd/network/50.network", "[Match]\nName=wl*\n[Network]\nDHCP=yes\n")
    assert profiles(spark) == ()


# Files that this user may not read


def test_a_file_that_cannot_be_read_is_known_by_its_name(spark: Spark) -> None:
    sealed = f"run/NetworkManager/system-connections/netplan-{PORT}.nmconnection"
    spark.seal(sealed)
    spark.put("run/NetworkManager/devices/3", "[device]\nmanaged=true\n")
    assert profiles(spark) == (Profile(PORT, f"/{sealed}", "NetworkManager"),)
    result = spark.check("dhcp-on-fabric")
    assert (result.verdict, result.why) == (
        "unknown",
        f"/{sealed} cannot be read by this user; {PORT} managed by NetworkManager",
    )
    assert writer(spark.facts().owners, PORT, "10.0.0.9/24") == f"NetworkManager's /{sealed}"


def test_a_file_that_cannot_be_read_hides_nothing_where_the_managers_keep_off(spark: Spark) -> None:
    spark.seal("etc/netplan/50-cloud-init.yaml")
    spark.put("run/NetworkManager/devices/3", "[device]\nmanaged=false\n")
    spark.put("run/systemd/netif/links/3", "ADMIN_STATE=unmanaged\nOPER_STATE=routable\n")
    result = spark.check("dhcp-on-fabric")
    assert (result.verdict, result.why) == (
        "pass",
        "no profile with DHCP on a fabric port that can be read; NetworkManager and systemd-networkd leave the fabric "
        "ports alone",
    )
    spark.put("run/systemd/netif/links/5", "ADMIN_STATE=configured\n")
    owners = spark.facts().owners
    assert owners == OwnerFacts(
        (),
        ("/etc/netplan/50-cloud-init.yaml",),
        (Manager("NetworkManager"), Manager("systemd-networkd", ("enP2p1s0f0np0",))),
    )
    assert spark.check("dhcp-on-fabric").verdict == spark.check("profile-on-fabric").verdict == "unknown"


def test_without_a_manager_to_ask_an_unreadable_file_is_in_doubt(spark: Spark) -> None:
    spark.remove("run/NetworkManager")
    spark.seal("etc/netplan/50-cloud-init.yaml")
    assert spark.check("dhcp-on-fabric").verdict == "unknown"


@pytest.mark.skipif(not running_as_root(), reason="only root can become somebody else")
def test_a_user_who_may_not_list_the_profiles(spark: Spark) -> None:
    spark.put(KEYFILE, f"[connection]\ninterface-name={PORT}\n")
    (spark.root / KEYFILE).parent.chmod(0o700)
    (spark.root / "etc/netplan/01-network-manager-all.yaml").chmod(0o600)
    for directory in [spark.root, *spark.root.parents[:2]]:
        directory.chmod(directory.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        owners = spark.facts().owners
    finally:
        os.seteuid(0)
    assert owners is not None
    assert owners.unreadable == (
        "/etc/netplan/01-network-manager-all.yaml",
        "/etc/NetworkManager/system-connections",
    )


# The readers


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (f"network:\n  ethernets:\n    {PORT}:\n      dhcp4: yes\n", [Claim(PORT, True)]),
        (f"network:\n    ethernets:\n        {PORT}:\n            dhcp4: no\n", [Claim(PORT, False)]),
        (f"network:\n  ethernets:\n    {PORT}: {{}}\n", [Claim(PORT)]),
        (f'network:\n  ethernets:\n    "{PORT}":\n      dhcp6: "true"  # why not\n', [Claim(PORT, True)]),
        (f"network: {{ethernets: {{x: 1}}}}\n# {PORT}\n", []),
        (
            f"network:\n  ethernets:\n    {PORT}:\n      addresses:\n      - 10.0.0.1/24\n      - '10.0.1.1/24':\n"
            "          lifetime: 0\n      mtu: 9000\n",
            [Claim(PORT, None, ("10.0.0.1/24", "10.0.1.1/24"))],
        ),
        (
            f"network:\n  ethernets:\n    {PORT}:\n      addresses:\n        - 10.0.0.1/24\n    {TWIN}:\n"
            "      dhcp4: true\n",
            [Claim(PORT, None, ("10.0.0.1/24",)), Claim(TWIN, True)],
        ),
        ('network:\n  ethernets:\n    cx7:\n      match: {name: "en*np0"}\n', [Claim(PORT), Claim(TWIN)]),
        ("network:\n  ethernets:\n    cx7:\n      match:\n        macaddress: 4C:BB:47:00:00:00\n", [Claim(PORT)]),
        (
            f"network:\n  ethernets:\n    cx7:\n      match:\n        driver: mlx5_core\n      set-name: {TWIN}\n",
            [Claim(TWIN)],
        ),
        (f"network:\n  ethernets:\n    {PORT}:\n      match:\n        name: enP7s7\n      dhcp4: true\n", []),
        (f"network:\n  bridges:\n    br0:\n      interfaces: [{PORT}, enP7s7]\n      dhcp4: true\n", [Claim(PORT)]),
        (
            f"network:\n  ethernets:\n    a:\n      match:\n        name: {TWIN}\n  bonds:\n    b:\n      interfaces:\n"
            "        - a\n",
            [Claim(TWIN)],
        ),
        ("network:\n  version: 2\n  renderer: NetworkManager\n", []),
        ("network:\n  wifis:\n    wlP9s9:\n      dhcp4: true\n", []),
        ("- a\n- b: c\n: :\n\tx\n", []),
        ("", []),
    ],
)
def test_netplan(text: str, claims: list[Claim]) -> None:
    assert netplan(text, DEVICES) == claims


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (f"[connection]\ninterface-name={PORT}\n", [Claim(PORT, True)]),
        (f"[connection]\ninterface-name={PORT}\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=auto\n", [Claim(PORT, False)]),
        (f"[connection]\ninterface-name={PORT}\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=dhcp\n", [Claim(PORT, True)]),
        (
            f"[connection]\ninterface-name={PORT}\n[ipv4]\naddress1=10.0.0.1/24,10.0.0.254\naddress2=10.0.1.1/24\n"
            "method=manual\n[ipv6]\naddress-data=x\n",
            [Claim(PORT, False, ("10.0.0.1/24", "10.0.1.1/24"))],
        ),
        (f"[connection]\ninterface-name={PORT}\nmaster=bond0\n", [Claim(PORT, False)]),
        ("[connection]\nid=x\n[match]\ninterface-name=enp*np0;enP*np0;\n", [Claim(PORT, True), Claim(TWIN, True)]),
        (f"[connection]\n#interface-name={PORT}\n", []),
        ("[connection]\nid=Wired connection 1\ntype=ethernet\n", []),
    ],
)
def test_keyfiles(text: str, claims: list[Claim]) -> None:
    assert keyfile(text, DEVICES) == claims


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (f"[Match]\nName={PORT}\n[Network]\nDHCP=yes\n", [Claim(PORT, True)]),
        (f"[Match]\nName={PORT}\n[Network]\nDHCP=no\n", [Claim(PORT, False)]),
        (
            f"[Match]\nName=lo {PORT}\n[Network]\nAddress=10.0.0.1/24\n[Address]\nAddress=10.0.1.1/24\n",
            [Claim(PORT, False, ("10.0.0.1/24", "10.0.1.1/24"))],
        ),
        ("[Match]\nName=!lo enp*\n[Network]\nDHCP=ipv6\n", [Claim(TWIN, True)]),
        ("[Match]\nPermanentMACAddress=4c-bb-47-00-00-00\n", [Claim(PORT, False)]),
        ("[Match]\nType=ether\n[Link]\nUnmanaged=true\n", [Claim(d, False, (), unmanaged=True) for d in DEVICES]),
        ("[Match]\nName=en*\nType=wlan\n", []),
        ("[Match]\nDriver=mlx5_*\n", [Claim(d, False) for d in DEVICES]),
        ("[Match]\nDriver=r8127\n", []),
        (f"[Match]\nName=lo\nName={PORT}\n", [Claim(PORT, False)]),
        (f"[Match]\nName={PORT}\nName=\nName={TWIN}\n", [Claim(TWIN, False)]),
        ("[Network]\nDHCP=yes\n", []),
    ],
)
def test_network_units(text: str, claims: list[Claim]) -> None:
    assert network_unit(text, DEVICES) == claims


LINES = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from(
            ["network:", "ethernets:", f"{PORT}:", "- a", "-", "match: {name}", "x: [", "[Match]", "=", ": "]
        )
        | st.text(max_size=12),
    )
)


@given(LINES)
def test_no_file_is_too_odd_to_read(lines: list[tuple[int, str]]) -> None:
    text = "\n".join(" " * indent + line for indent, line in lines)
    for read in (netplan, keyfile, network_unit):
        assert {claim.device for claim in read(text, DEVICES)} <= DEVICES.keys()
