"""What an installed sparkd makes of a missing, wrong or clashing configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab

FILE = "/etc/sparkd/sparkd.toml"


@pytest.fixture
def ring(lab: Lab) -> Iterator[Ring]:
    """A ring that is down; spark2's configuration is put back afterwards."""
    ring = Ring(lab)
    ring.idle()
    text = lab.exec("spark2", "cat", FILE).stdout
    yield ring
    lab.exec("spark2", "sh", "-c", f"cat > {FILE}", input=text)
    lab.exec("spark2", "sh", "-c", "systemctl reset-failed sparkd; systemctl restart sparkd")
    ring.until("spark2", lambda seen: True, 20)


def _edit(ring: Ring, expression: str) -> None:
    ring.lab.exec("spark2", "sed", "-i", expression, FILE)


@pytest.mark.parametrize(
    ("expression", "key"),
    [
        ("s/^rank = 2/rank = 7/", "cluster.node"),
        ("s/192.168.77.3/192.168.77.1/", "cluster.node[2].address"),
        ('s/^base_range.*/base_range = "10.77.0.0\\/23"/', "cluster.base_range"),
        ('s/^base_range.*/base_rnage = "10.77.0.0\\/21"/', "cluster.base_rnage"),
        ('0,/^name = .*/s//name = "spark9"/', "node.name"),
    ],
)
def test_a_bad_file_is_refused_by_the_check_and_at_start_without_a_restart_loop(
    ring: Ring, expression: str, key: str
) -> None:
    _edit(ring, expression)
    check = ring.lab.exec("spark2", "sparkd", "--check-config", check=False)
    assert check.returncode == 78
    assert f"{FILE}: {key}" in check.stdout + check.stderr
    assert "expected" in check.stdout + check.stderr
    began = time.time()
    ring.lab.exec("spark2", "systemctl", "restart", "sparkd", check=False)
    time.sleep(1.5)
    assert ring.show("spark2", "sparkd.service", "ActiveState") == "failed"
    assert ring.show("spark2", "sparkd.service", "NRestarts") == "0"
    ring.said("spark2", "sparkd.service", f"{FILE}: {key}", after=began)


def test_a_good_file_passes_the_check(ring: Ring) -> None:
    good = ring.lab.exec("spark2", "sparkd", "--check-config")
    assert "spark2 is rank 1" in good.stdout


def test_without_a_configuration_the_unit_is_quiet_and_says_what_to_do(ring: Ring) -> None:
    ring.lab.exec("spark2", "mv", FILE, FILE + ".away")
    try:
        began = time.time()
        ring.lab.exec("spark2", "systemctl", "restart", "sparkd", check=False)
        assert ring.show("spark2", "sparkd.service", "ActiveState") == "inactive"
        ring.said("spark2", "sparkd.service", "Not configured", after=began)
        told = ring.lab.exec("spark2", "sparkctl", "status", check=False)
        assert told.returncode != 0
        assert "sparkctl cluster create" in told.stderr
    finally:
        ring.lab.exec("spark2", "mv", FILE + ".away", FILE)


def test_subnet_overlap_is_refused_by_the_check_and_at_a_start(ring: Ring) -> None:
    """Field report subnet-overlap."""
    ring.lab.exec("spark2", "ip", "route", "add", "10.77.2.0/23", "dev", "enP7s7")
    try:
        check = ring.lab.exec("spark2", "sparkd", "--check-config", check=False)
        assert check.returncode == 78
        assert "cluster.base_range" in check.stdout
        assert "10.77.2.0/23 on enP7s7" in check.stdout
        ring.until("spark1", lambda seen: [f["id"] for f in seen["findings"]] == ["subnet-overlap"], 10)
        answer = ring.ask("spark1", "POST", "/v1/ring/start")
        assert answer.status == 409
        found = answer.body["findings"][0]
        assert (found["id"], found["node"]) == ("subnet-overlap", "spark2")
        assert "10.77.2.0/23 on enP7s7" in found["observed"]
        assert "base_range" in found["fix"]
    finally:
        ring.lab.exec("spark2", "ip", "route", "del", "10.77.2.0/23", "dev", "enP7s7")
    ring.until("spark1", lambda seen: seen["findings"] == [], 10)
    ring.start()


def test_config_skew_is_named_with_key_and_both_values(ring: Ring) -> None:
    """Field report config-skew."""
    _edit(ring, r"s/^\[engine\]/[engine]\nrendezvous_port = 20055/")
    ring.lab.exec("spark2", "systemctl", "restart", "sparkd")
    ring.until("spark1", lambda seen: all(p["age"] is not None and p["age"] < 5 for p in seen["peers"]), 20)
    ring.until("spark2", lambda seen: True, 20)
    answer = ring.ask("spark2", "POST", "/v1/ring/start")
    assert answer.status == 409
    skew = next(f for f in answer.body["findings"] if f["id"] == "config-skew")
    assert (skew["node"], skew["subject"]) == ("spark2", "engine.rendezvous_port")
    assert skew["observed"] == "20055"
    assert "20000" in skew["expected"]


def test_config_skew_also_of_the_ranks_code(ring: Ring) -> None:
    """Field report config-skew: other code would run on one node than on the others."""
    told = ring.ask("spark1", "GET", "/v1/host").body["report"]["digests"]
    assert told["environment.NCCL_BUFFSIZE"] == "1048576"
    assert "absent" not in (told["rank.code"], told["rank.launcher"])
    assert not any(key.endswith(("NCCL_IB_HCA", "_SOCKET_IFNAME", "GID_INDEX")) for key in told)
    code = "/usr/lib/sparkd/runtime/exits.py"
    ring.lab.exec("spark2", "sh", "-c", f"cp -p {code} {code}.away; echo '# changed' >> {code}")
    try:
        ring.lab.exec("spark2", "systemctl", "restart", "sparkd")
        ring.until("spark1", lambda seen: any(f["id"] == "config-skew" for f in _refused(ring)), 20)
        skew = next(f for f in _refused(ring) if f["id"] == "config-skew")
        assert (skew["node"], skew["subject"]) == ("spark2", "rank.code")
        assert skew["observed"] != skew["expected"].removesuffix(", as on spark1")
        assert "package sparkd" in skew["fix"]
    finally:
        ring.lab.exec("spark2", "mv", f"{code}.away", code)


def _refused(ring: Ring) -> list[dict[str, str]]:
    """The start must not be accepted: the ring is down, and stays so."""
    findings: list[dict[str, str]] = ring.ask("spark1", "GET", "/v1/doctor").body["findings"]
    return findings
