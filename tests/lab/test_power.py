"""Power cuts of one or all nodes, a conductor that is away, and one that has lost its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.layout import NODES
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab

DROP_IN = "/etc/sparkd/sparkd.toml.d/reset.toml"


@pytest.mark.parametrize("order", [("spark3", "spark1", "spark2"), ("spark2", "spark3", "spark1")], ids="-".join)
def test_after_a_power_cut_of_all_the_ring_comes_back_in_any_boot_order(ring: Ring, order: tuple[str, ...]) -> None:
    """Field report generation-mixed: with no rank of an older epoch."""
    before = ring.fresh()
    for node in NODES:
        ring.lab.power_cut(node)
    for node in order:
        ring.lab.power_on(node)
    after = ring.phase("ready", seconds=60, above=before["epoch"])
    assert all(ring.units(node) == [f"sparkd-rank@{after['epoch']}.service"] for node in NODES)
    assert after["by"] == "recovery"


def test_without_the_conductor_the_others_stop_and_requests_are_refused_with_the_reason(ring: Ring) -> None:
    """Field report peer-lost, of the host that nobody can stand in for."""
    before = ring.fresh()
    others = ("spark2", "spark3")
    cut = time.time()
    ring.lab.power_cut("spark1")
    for node in others:
        ring.until(node, lambda seen: seen["phase"] in ("gated", "stopping"), 30)
        ring.until(node, lambda seen: all(r["state"] != "ready" for r in seen["ranks"]), 30)
        assert not [u for u in ring.units(node) if ring.show(node, u, "ActiveState") == "active"], time.time() - cut
    for node in others:
        for request in ("start", "stop", "clear", "hold"):
            answer = ring.ask(node, "POST", f"/v1/ring/{request}")
            assert (answer.status, answer.body["code"]) == (503, "conductor-unreachable")
            assert answer.body["detail"].startswith("only spark1 issues epochs, and spark1 cannot be asked: ")
    told = ring.lab.exec("spark2", "sparkctl", "down", check=False)
    assert (told.returncode, "only spark1 issues epochs" in told.stderr) == (5, True)
    assert {ring.get(node)["epoch"] for node in others} == {before["epoch"]}
    ring.lab.power_on("spark1")
    ring.phase("ready", seconds=60, above=before["epoch"])


def test_a_conductor_without_its_memory_leaves_the_serving_ring_alone(ring: Ring) -> None:
    before = ring.fresh()
    pids = ring.pids(before["epoch"])
    script = "systemctl stop sparkd; rm -rf /var/lib/sparkd/*; systemctl start sparkd"
    ring.lab.exec("spark1", "sh", "-c", script)
    ring.phase("ready", seconds=20)
    time.sleep(1)
    assert {ring.get(node)["epoch"] for node in NODES} == {before["epoch"]}
    assert ring.pids(before["epoch"]) == pids
    ring.stop()
    assert ring.get("spark2")["epoch"] == before["epoch"] + 1


@pytest.fixture
def watched(ring: Ring) -> Iterator[Ring]:
    """spark3 minds how it boots."""
    drop_in = f"mkdir -p $(dirname {DROP_IN}); printf '[recovery]\\nhard_reset_hours = 6\\n' > {DROP_IN}"
    ring.fresh()
    ring.lab.exec("spark3", "sh", "-c", f"{drop_in}; systemctl restart sparkd")
    yield ring
    ring.lab.exec("spark3", "sh", "-c", f"rm -f {DROP_IN}; systemctl restart sparkd")
    ring.until("spark3", lambda seen: True, 20)


def test_node_hard_reset_twice_holds_the_node_out_until_it_is_cleared(watched: Ring) -> None:
    """Field report node-hard-reset: a reboot in between is none."""
    ring = watched
    epoch = ring.phase("ready")["epoch"]
    for off in (ring.lab.power_cut, ring.lab.reboot):
        off("spark3")
        if off == ring.lab.power_cut:
            ring.lab.power_on("spark3")
        epoch = ring.phase("ready", seconds=60, above=epoch)["epoch"]
    ring.lab.power_cut("spark3")
    ring.lab.power_on("spark3")
    said = "spark3: boots: it was reset 2 times within 6 h, without a shutdown"
    for node in NODES:
        held = ring.until(node, lambda seen: any(said in wait for wait in seen["waits"]), 60)
        assert [f["id"] for f in held["findings"] if f["severity"] == "refuse"] == ["node-hard-reset"]
    assert all(
        "sparkd-rank" not in unit or ring.show("spark1", unit, "ActiveState") != "active"
        for unit in ring.units("spark1")
    )
    ring.lab.exec("spark2", "sparkctl", "clear")
    ring.phase("ready", seconds=60, above=epoch)
