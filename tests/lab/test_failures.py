"""How a group fails, by the ids of the field reports: who is stopped, what is said, what is kept, what follows.

With the shorter times of tests.lab.quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.quick import UNIT_D, quicken, relax
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab

# Rank 0's rendezvous alone; the daemons' port is another one.
BLOCK = "table inet test { chain input { type filter hook input priority 0; tcp dport 20000 drop; }; }"


@pytest.fixture(scope="module")
def quick(lab: Lab) -> Iterator[None]:
    # Ranks have the times that were in force when they were started.
    Ring(lab).idle()
    quicken(lab)
    yield
    lab.mend()
    relax(lab)


@pytest.fixture
def ring(lab: Lab, quick: None) -> Ring:
    return Ring(lab)


def _signal(ring: Ring, node: str, name: str, epoch: int) -> None:
    ring.lab.exec(node, "systemctl", "kill", "-s", name, f"sparkd-rank@{epoch}.service")


def _incident(ring: Ring, asked: str, epoch: int, of: tuple[str, ...] = NODES) -> dict[str, dict[str, Any]]:
    """What each node has kept of that epoch, once those of `of` have: one that started no rank keeps nothing."""
    end = time.monotonic() + 10
    while True:
        answer = ring.ask(asked, "GET", f"/v1/incidents/{epoch}")
        nodes = {node["node"]: node for node in answer.body.get("nodes", ())}
        kept = {name: node["incident"] for name, node in nodes.items() if node["incident"]}
        if set(of) <= kept.keys() and all(incident["complete"] for incident in kept.values()):
            return nodes
        assert time.monotonic() < end, answer
        time.sleep(0.2)


def test_rank_hung_leaves_the_evidence_of_all_ranks_and_is_followed_by_one_restart(ring: Ring) -> None:
    epoch = ring.fresh()["epoch"]
    _signal(ring, "spark2", "STOP", epoch)
    after = ring.phase("ready", above=epoch)
    assert after["epoch"] == epoch + 1
    assert "rank 1 (spark2) lost: said nothing for 3 s" in after["reason"]
    kept = _incident(ring, "spark3", epoch)
    assert list(kept) == list(NODES)
    hung = kept["spark2"]
    assert hung["incident"]["first"] == ""
    assert "State:\tT (stopped)" in hung["files"]["processes.txt"]
    assert "192.168.77.1:20000 CLOSE-WAIT to send " in hung["files"]["sockets.txt"], "rank 0 has left, it has not"
    for node in ("spark1", "spark3"):
        assert "rank 1 (spark2) lost: said nothing for 3 s" in kept[node]["incident"]["first"]
        assert "every sum over 4 rings is right" in kept[node]["files"]["journal.txt"]
    told = ring.lab.exec("spark1", "sparkctl", "incidents", "show", str(epoch)).stdout
    assert "first error: rank 0 (spark1): rank 1 (spark2) lost: said nothing for 3 s" in told


def test_generation_mixed_a_rank_of_another_start_is_stopped_and_the_ring_is_not_touched(ring: Ring) -> None:
    """As after a power cut, or by somebody's own hands: it is alive beside a ring that serves."""
    epoch = ring.fresh()["epoch"]
    pids = ring.pids(epoch)
    stale = "sparkd-rank@1000001.service"
    script = f"cd /run/sparkd; cp -p rank-{epoch}.env rank-1000001.env; systemctl start --no-block {stale}"
    began = time.time()
    ring.lab.exec("spark2", "sh", "-c", script)
    ring.until("spark2", lambda seen: ring.units("spark2") == [f"sparkd-rank@{epoch}.service"], 15)
    assert (
        ring.said("spark2", "sparkd.service", f"stopping {stale}: the ring is at epoch {epoch}", after=began) - began
        < 3
    )
    assert ring.phase("ready")["epoch"] == epoch
    assert ring.pids(epoch) == pids


def test_peer_lost_when_both_planes_are_silent_and_not_before(ring: Ring) -> None:
    before = ring.fresh()
    pids = ring.pids(before["epoch"])
    ring.lab.mgmt_cut("spark3")
    time.sleep(1)
    assert ring.pids(before["epoch"]) == pids, "the management network alone says nothing"
    cut = time.time()
    for port in (0, 1):
        ring.lab.unplug("spark3", port)
    unit = f"sparkd-rank@{before['epoch']}.service"
    for node in ("spark1", "spark2"):
        ring.until(node, lambda seen: seen["phase"] == "gated" and "spark3" in seen["summary"], 20)
        assert ring.units(node) == [] or ring.show(node, unit, "ActiveState") != "active"
    ring.until("spark3", lambda seen: seen["phase"] != "ready", 20)
    assert time.time() - cut < 20
    ring.lab.mend()
    after = ring.phase("ready", seconds=60, above=before["epoch"])
    assert {unit for node in NODES for unit in ring.units(node)} == {f"sparkd-rank@{after['epoch']}.service"}


def test_peer_died_loading_the_others_stop_wait_for_it_and_start_once(ring: Ring) -> None:
    ring.idle()
    assert ring.ask("spark1", "POST", "/v1/ring/start").status == 202
    first = ring.until("spark1", lambda seen: seen["phase"] == "starting")["epoch"]
    ring.lab.power_cut("spark3")
    for node in ("spark1", "spark2"):
        ring.until(node, lambda seen: seen["phase"] == "gated" and "spark3" in seen["summary"], 30)
        assert ring.lab.exec(node, "pgrep", "-u", "sparkd-rank", check=False).stdout == ""
    ring.lab.power_on("spark3")
    after = ring.phase("ready", seconds=60, above=first)
    assert [death["ready"] for death in after["deaths"]] == [False] * len(after["deaths"])


@pytest.fixture
def blocked(ring: Ring) -> Iterator[None]:
    """Nobody reaches the rendezvous of rank 0."""
    ring.idle()
    ring.lab.exec("spark1", "nft", "-f", "-", input=BLOCK)
    yield
    ring.lab.exec("spark1", "nft", "delete", "table", "inet", "test", check=False)


@pytest.mark.usefixtures("blocked")
def test_rendezvous_unreachable_is_said_with_peer_address_and_port(ring: Ring) -> None:
    began = time.monotonic()
    epoch = int(ring.ask("spark1", "POST", "/v1/ring/start").body["epoch"])
    after = ring.until("spark1", partial(_beyond, epoch), 30)
    assert time.monotonic() - began < 30
    assert after["deaths"][-1]["formed"] is False
    kept = _incident(ring, "spark1", epoch)
    told = " ".join(str(node["incident"]["first"]) for node in kept.values())
    assert "rank 0 (spark1)" in told and "192.168.77.1:20000" in told


def _starts(node: str, epoch: int, seen: dict[str, Any]) -> bool:
    """Its rank has got as far as to say so."""
    (rank,) = (rank for rank in seen["ranks"] if rank["node"] == node)
    return bool(seen["epoch"] == epoch and rank["state"] == "starting" and rank["stage"])


def _beyond(epoch: int, seen: dict[str, Any]) -> bool:
    return bool(seen["epoch"] > epoch)


@pytest.mark.usefixtures("blocked")
def test_exit_before_formed_goes_back_to_the_gate_and_costs_nothing(ring: Ring) -> None:
    epoch = int(ring.ask("spark1", "POST", "/v1/ring/start").body["epoch"])
    for more in range(4):
        ring.until("spark3", partial(_starts, "spark3", epoch + more), 20)
        pid = ring.show("spark3", f"sparkd-rank@{epoch + more}.service", "MainPID")
        ring.lab.exec("spark3", "kill", "-KILL", pid)
        seen = ring.until("spark1", partial(_beyond, epoch + more), 20)
        assert (seen["want"], seen["deaths"][-1]["formed"]) == ("up", False), "three are the budget of a formed group"
    ring.lab.exec("spark1", "nft", "delete", "table", "inet", "test")
    ring.phase("ready", above=epoch, seconds=60)


@pytest.fixture
def misconfigured(ring: Ring) -> Iterator[None]:
    """spark3's rank refuses its environment."""
    ring.idle()
    wrong = "[Service]\nEnvironment=SPARKD_MEASURE_SECONDS=nonsense\n"
    ring.lab.exec("spark3", "tee", f"{UNIT_D}/wrong.conf", input=wrong)
    ring.lab.exec("spark3", "systemctl", "daemon-reload")
    yield
    ring.lab.exec("spark3", "rm", f"{UNIT_D}/wrong.conf")
    ring.lab.exec("spark3", "systemctl", "daemon-reload")


@pytest.mark.usefixtures("misconfigured")
def test_same_death_twice_is_held_with_its_first_error(ring: Ring) -> None:
    epoch = int(ring.ask("spark1", "POST", "/v1/ring/start").body["epoch"])
    held = ring.phase("held", seconds=40)
    assert "the same end twice while coming up: rank 2 (spark3) ended: SPARKD_MEASURE_SECONDS" in held["reason"]
    assert [death["epoch"] for death in held["deaths"]] == [epoch, epoch + 1]
    assert held["deaths"][0]["signature"] == held["deaths"][1]["signature"]
    kept = _incident(ring, "spark2", epoch, of=("spark3",))
    assert "SPARKD_MEASURE_SECONDS" in kept["spark3"]["incident"]["first"]
    assert ring.ask("spark2", "POST", "/v1/ring/start").body["code"] == "held"


def test_restart_storm_ends_after_three_restarts_and_stays_ended(ring: Ring) -> None:
    epoch = ring.fresh()["epoch"]
    for restart in range(3):
        _signal(ring, "spark2", "KILL", epoch + restart)
        assert ring.phase("ready", above=epoch + restart)["epoch"] == epoch + restart + 1
    _signal(ring, "spark2", "KILL", epoch + 3)
    held = ring.phase("held")
    assert "3 restarts within 60 min were not enough: rank 1 (spark2) ended: it was killed by SIGKILL" in held["reason"]
    for node in NODES:
        assert ring.units(node) == []
        answer = ring.ask(node, "POST", "/v1/ring/start")
        assert (answer.status, answer.body["code"]) == (409, "held")
    ring.lab.exec("spark1", "systemctl", "restart", "sparkd")
    ring.until("spark1", lambda seen: seen["phase"] == "held", 20)
    assert ring.ask("spark2", "POST", "/v1/ring/clear").status == 202
    ring.phase("down")
    ring.start()


@pytest.fixture
def other_supervisor(ring: Ring) -> Iterator[None]:
    """Another unit of spark1 serves where the engine is to serve."""
    ring.idle()
    serve = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8888"]
    ring.lab.exec("spark1", "systemd-run", "--quiet", "--unit=other-engine", *serve)
    # The host is examined every minute, and when the daemon starts.
    time.sleep(0.5)
    ring.lab.exec("spark1", "systemctl", "restart", "sparkd")
    yield
    ring.lab.exec("spark1", "systemctl", "stop", "other-engine")
    ring.lab.exec("spark1", "systemctl", "restart", "sparkd")


@pytest.mark.usefixtures("other_supervisor")
def test_second_supervisor_is_refused_and_left_alone(ring: Ring) -> None:
    ring.until("spark1", lambda seen: any(f["id"] == "second-supervisor" for f in seen["findings"]), 20)
    ring.until("spark1", lambda seen: all(peer["age"] is not None for peer in seen["peers"]), 20)
    found = [f for f in ring.refusal() if f["id"] == "second-supervisor"]
    assert [finding["node"] for finding in found] == ["spark1"]
    # Whose socket it is, root alone may see.
    assert found[0]["subject"] == "port 8888" and "root" in found[0]["observed"]
    assert "ss -ltnp 'sport = :8888'" in found[0]["fix"]
    assert ring.show("spark1", "other-engine", "ActiveState") == "active", "it is named, and never killed"
