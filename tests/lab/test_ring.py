"""The main job, from the installed package on three hosts with a real systemd: up, down, death, reboot, upgrade."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.lab.layout import NODES
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab


ENDS = ("Deactivated successfully", "Failed with result")


@pytest.mark.parametrize("node", NODES)
def test_a_start_and_a_stop_work_from_any_node_and_every_node_shows_them(ring: Ring, node: str) -> None:
    ring.idle()
    answer = ring.ask(node, "POST", "/v1/ring/start")
    assert answer.status == 202
    assert answer.headers["location"] == answer.body["operation"] == f"/v1/operations/{answer.body['epoch']}"
    ring.phase("ready")
    for asked in NODES:
        seen = ring.get(asked)
        assert (seen["node"], seen["want"], seen["epoch"]) == (asked, "up", answer.body["epoch"])
        assert seen["waits"] == []
        assert [(r["rank"], r["node"], r["state"], r["stage"]) for r in seen["ranks"]] == [
            (rank, name, "ready", "ready") for rank, name in enumerate(NODES)
        ]
        assert ring.ask(asked, "GET", "/readyz").status == 200
        assert ring.ask(asked, "GET", answer.headers["location"]).body["state"] == "done"
    ring.stop(node)
    assert ring.ask(node, "GET", "/readyz").status == 503


def test_workers_start_first_and_rank_0_does_not_wait_for_them_to_be_ready(ring: Ring) -> None:
    ring.idle()
    epoch = ring.start()["epoch"]
    unit = f"sparkd-rank@{epoch}.service"
    starting = {node: ring.said(node, unit, "Starting ") for node in NODES}
    ready = {node: ring.said(node, unit, "Started ") for node in NODES}
    assert max(starting["spark2"], starting["spark3"]) < starting["spark1"] < min(ready.values())
    assert ring.said("spark1", "sparkd.service", f"starting {unit}") >= max(starting["spark2"], starting["spark3"])


@pytest.mark.parametrize("victim", NODES)
def test_rank_exited_stops_the_others_within_a_second_and_the_ring_comes_back(ring: Ring, victim: str) -> None:
    """Field report rank-exited."""
    before = ring.fresh()
    unit = f"sparkd-rank@{before['epoch']}.service"
    killed = time.time()
    ring.lab.exec(victim, "systemctl", "kill", "-s", "KILL", unit)
    after = ring.phase("ready", above=before["epoch"])
    for node in NODES:
        if node != victim:
            # Its group may be gone for it before it is told to stop, and then it leaves with a status of its own.
            assert ring.said(node, unit, *ENDS, after=killed) - killed < 1.0
    assert after["epoch"] == before["epoch"] + 1
    assert after["deaths"][-1]["node"] == victim
    assert "SIGKILL" in after["deaths"][-1]["sentence"]
    assert f"restart: rank {NODES.index(victim)} ({victim}) ended: it was killed by SIGKILL" in after["reason"]
    assert all(ring.units(node) == [f"sparkd-rank@{after['epoch']}.service"] for node in NODES)


def test_a_stop_leaves_no_unit_port_address_or_route(ring: Ring) -> None:
    ring.idle()
    before = {node: _network(ring, node) for node in NODES}
    ring.start()
    for node in NODES:
        assert len(ring.lab.exec(node, "ip", "route", "show", "proto", "173").stdout.splitlines()) == 4
    ring.stop("spark3")
    for node in NODES:
        assert ring.units(node) == []
        assert _network(ring, node) == before[node]
        assert ring.lab.exec(node, "ip", "route", "show", "proto", "173").stdout == ""
        here = f"192.168.77.{NODES.index(node) + 1}"
        assert _listeners(ring, node) == {"127.0.0.1:7474", f"{here}:7475", f"{here}:chosen"}
        assert ring.lab.exec(node, "pgrep", "-u", "sparkd-rank", check=False).stdout == ""
        assert ring.lab.exec(node, "ls", "/run/sparkd").stdout.split() == ["api.sock"]


def _network(ring: Ring, node: str) -> str:
    return "".join(ring.lab.exec(node, "ip", "-4", *what).stdout for what in (["-br", "addr"], ["route"]))


def _listeners(ring: Ring, node: str) -> set[str]:
    """Where somebody listens; a port that the kernel has chosen on the management address goes by "chosen"."""
    lines = ring.lab.exec(node, "ss", "-H", "-ltn").stdout.splitlines()
    return {
        re.sub(r"^(192\.168\.77\.\d):(32[7-9]|3[3-9]\d|[4-6]\d\d)\d\d$", r"\1:chosen", line.split()[3])
        for line in lines
    }


def test_nothing_but_the_peers_listener_and_the_rank_is_reachable_from_the_network(ring: Ring) -> None:
    ring.fresh()
    for node in NODES:
        open_to_all = {where for where in _listeners(ring, node) if not where.startswith(("127.", "[::1]"))}
        allowed = r"192\.168\.77\.\d:(7475|20000|chosen)|10\.77\.\d\.\d:20100"
        assert [where for where in open_to_all if not re.fullmatch(allowed, where)] == []


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_sparkd_comes_back_without_touching_a_serving_ring(ring: Ring, node: str, how: str) -> None:
    before = ring.fresh()
    pids = ring.pids(before["epoch"])
    daemon = ring.show(node, "sparkd.service", "MainPID")
    if how == "restart":
        ring.lab.exec(node, "systemctl", "restart", "sparkd")
    else:
        ring.lab.exec(node, "systemctl", "kill", "-s", "KILL", "sparkd")
    ring.until(node, lambda ring_: ring_["phase"] == "ready", 20)
    assert ring.show(node, "sparkd.service", "MainPID") != daemon
    after = ring.phase("ready")
    assert after["epoch"] == before["epoch"]
    assert ring.pids(after["epoch"]) == pids


@pytest.mark.parametrize("node", ["spark1", "spark3"])
def test_a_reboot_of_one_node_ends_in_a_ready_ring(ring: Ring, node: str) -> None:
    before = ring.fresh()
    ring.lab.reboot(node)
    after = ring.phase("ready", seconds=60, above=before["epoch"])
    assert all(ring.units(each) == [f"sparkd-rank@{after['epoch']}.service"] for each in NODES)


def test_a_reboot_is_told_as_one(ring: Ring) -> None:
    """Field report node-hard-reset: a boot id that has changed."""
    before = ring.fresh()
    boots = {}
    for node in NODES:
        boots[node] = ring.lab.exec(node, "cat", "/proc/sys/kernel/random/boot_id").stdout.strip()
        assert ring.ask(node, "GET", "/v1/host").body["host"]["boot_id"] == boots[node]
    assert len(set(boots.values())) == 3
    ring.lab.power_cut("spark3")
    ring.lab.power_on("spark3")
    ring.phase("ready", seconds=60, above=before["epoch"])
    assert ring.ask("spark3", "GET", "/v1/host").body["host"]["boot_id"] != boots["spark3"]
    ring.said("spark3", "sparkd.service", "has ended: the host has rebooted")


@pytest.mark.parametrize("node", ["spark1", "spark2"])
def test_a_power_cut_ends_in_a_ready_ring_once_power_is_back(ring: Ring, node: str) -> None:
    before = ring.fresh()
    ring.lab.power_cut(node)
    others = tuple(each for each in NODES if each != node)
    for other in others:
        ring.until(other, lambda ring_: ring_["phase"] == "gated", 30)
        assert ring.until(other, lambda ring_: node in ring_["summary"], 30)
    ring.lab.power_on(node)
    ring.phase("ready", seconds=60, above=before["epoch"])


def test_cable_missing_refuses_the_start_and_names_node_and_port(ring: Ring) -> None:
    """Field report cable-missing."""
    ring.idle()
    epoch = ring.get("spark1")["epoch"]
    ring.lab.unplug("spark2", 0)
    ring.until("spark1", lambda seen: {f["node"] for f in seen["findings"]} == {"spark2", "spark3"}, 10)
    answer = ring.ask("spark3", "POST", "/v1/ring/start")
    assert (answer.status, answer.body["code"]) == (409, "start-refused")
    assert answer.headers["content-type"] == "application/problem+json"
    named = {(f["id"], f["node"], f["subject"]) for f in answer.body["findings"]}
    assert named == {("cable-missing", "spark2", "port 0"), ("cable-missing", "spark3", "port 1")}
    assert all(f["observed"] and f["expected"] and f["fix"] for f in answer.body["findings"])
    assert "spark2: port 0: no carrier" in answer.body["detail"]
    told = ring.lab.exec("spark1", "sparkctl", "up", check=False)
    assert told.returncode == 3
    assert "seat the cable between spark2 port 0 and spark3 port 1" in " ".join((told.stdout + told.stderr).split())
    assert ring.get("spark1")["epoch"] == epoch
    assert all(ring.units(node) == [] for node in NODES)
    ring.lab.cable("spark2", 0)
    ring.until("spark1", lambda seen: seen["findings"] == [], 10)
    ring.start()


def test_a_start_while_running_changes_nothing(ring: Ring) -> None:
    """Field report start-while-running."""
    before = ring.fresh()
    pids = ring.pids(before["epoch"])
    for node in NODES:
        answer = ring.ask(node, "POST", "/v1/ring/start")
        assert (answer.status, answer.body["epoch"]) == (202, before["epoch"])
    assert ring.pids(before["epoch"]) == pids


def test_a_stop_in_the_middle_of_a_start_frees_every_node(ring: Ring) -> None:
    """Field report stop-in-any-state."""
    ring.idle()
    assert ring.ask("spark1", "POST", "/v1/ring/start").status == 202
    ring.until("spark2", lambda seen: seen["phase"] == "starting")
    ring.stop("spark2")
    assert all(ring.units(node) == [] for node in NODES)


def test_the_journal_alone_tells_a_start_and_a_failure(ring: Ring) -> None:
    ring.idle()
    began = time.time()
    epoch = ring.start("spark2")["epoch"]
    ring.lab.exec("spark3", "systemctl", "kill", "-s", "KILL", f"sparkd-rank@{epoch}.service")
    ring.phase("ready", above=epoch)
    story = [
        f"epoch {epoch}: up, by root (uid 0) on spark2: start asked for",
        "fabric: ",
        f"starting sparkd-rank@{epoch}.service",
        f"epoch {epoch} is starting: ",
        f"epoch {epoch} is ready: all 3 ranks serve",
        f"stopping sparkd-rank@{epoch}.service: rank 2 (spark3) ended: it was killed by SIGKILL",
        f"epoch {epoch + 1}: up, by recovery: restart: rank 2 (spark3) ended: it was killed by SIGKILL",
        f"epoch {epoch + 1} is ready: all 3 ranks serve",
    ]
    told = [began]
    for words in story:
        told.append(ring.said("spark1", "sparkd.service", words, after=told[-1]))
    assert told == sorted(told)


def test_status_is_one_sentence_on_every_surface(ring: Ring) -> None:
    ring.fresh()
    for node in NODES:
        sentence = ring.get(node)["summary"]
        assert ring.show(node, "sparkd.service", "StatusText") == sentence
        assert sentence in ring.lab.exec(node, "sparkctl", "status").stdout
        assert ring.ask(node, "GET", "/readyz").body.strip() == sentence
        assert sentence in [line for _, line in ring.journal(node, "sparkd.service")]


def test_the_rank_has_the_planned_environment(ring: Ring) -> None:
    epoch = ring.fresh()["epoch"]
    for node, pid in ring.pids(epoch).items():
        environment = dict(
            entry.split("=", 1)
            for entry in ring.lab.exec(node, "cat", f"/proc/{pid}/environ").stdout.split("\0")
            if entry
        )
        planned = ring.ask(node, "GET", "/v1/plan").body["environment"][node]
        assert environment["SPARKD_EPOCH"] == str(epoch)
        assert environment["SPARKD_RAILS"] == planned["SPARKD_RAILS"]
        assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "enP7s7"
        # The lab has no RDMA devices, and nothing may make it look as if it had.
        assert [name for name in environment if name.startswith("NCCL_IB")] == []
        assert ring.ask(node, "GET", "/v1/host").body["roce"] == []


def test_the_probe_reports_every_rail_and_goes_on_proving_them(ring: Ring) -> None:
    ring.fresh()
    first = _health(ring)
    time.sleep(2.5)
    second = _health(ring)
    assert second["canaries"] >= first["canaries"] + 1
    assert len(second["rails"]) == 6
    for rail in second["rails"]:
        assert rail["latency_us"] > 0
        assert rail["forward_gbps"] > 0
        assert rail["backward_gbps"] > 0


def _health(ring: Ring) -> dict[str, Any]:
    text = ring.lab.exec("spark1", "curl", "-sS", "-f", "http://127.0.0.1:8888/health").stdout
    body: dict[str, Any] = json.loads(text)
    return body
