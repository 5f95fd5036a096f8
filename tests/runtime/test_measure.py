"""Measuring rails: who meets whom, what is measured, and what is said of those who do not come."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.environment import BadEnvironment
from runtime.measure.environment import read_environment
from tests.runtime.measuring import DEVICES, Hosts, errors, rates


@pytest.fixture(autouse=True)
def _without_perftest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def test_three_hosts_measure_all_six_rails_and_know_the_same() -> None:
    hosts = Hosts()
    results = hosts.run(*(hosts.environment(rank) for rank in range(3)))
    assert errors(results) == {}
    assert {rank: set(found) for rank, found in results.items()} == {rank: set(DEVICES) for rank in range(3)}
    for (here, device), (far, remote) in hosts.links.values():
        one, other = results[here][device], results[far][remote]
        assert (one.gbps, one.method, one.mtu_passed) == (other.gbps, "tcp", True)
        assert one.gbps is not None
        assert one.gbps > 0.1, "loopback carries more"
        assert (one.node, one.remote, other.node, other.remote) == (hosts.names[far], remote, hosts.names[here], device)


def test_a_ring_of_four_measures_all_eight() -> None:
    hosts = Hosts(4)
    results = hosts.run(*(hosts.environment(rank) for rank in range(4)))
    assert errors(results) == {}
    assert len(rates(results)) == 16


def test_what_either_side_wants_both_measure() -> None:
    """Rank 0 believes that link 0 is measured, rank 1 that link 1 is. Nobody wants the others, and nobody waits."""
    hosts = Hosts()
    results = hosts.run(hosts.environment(0, {1}), hosts.environment(1, {0}))
    assert errors(results) == {}
    assert {rank: set(found) for rank, found in results.items()} == {0: set(DEVICES[:2]), 1: set(DEVICES[2:])}


def test_a_host_that_does_not_come_is_named_and_the_others_measure() -> None:
    hosts = Hosts(patience=0.5)
    results = hosts.run(hosts.environment(0), hosts.environment(1))
    listening, asked = f"{hosts.address(0)}:20200", f"{hosts.address(2)}:20200"
    absent = f"spark3 did not come to {listening} within 0.5 s"
    assert errors(results) == {
        (0, DEVICES[2]): absent,
        (0, DEVICES[3]): absent,
        (1, DEVICES[0]): f"spark3 did not come to {hosts.address(1)}:20200 within 0.5 s",
        (1, DEVICES[1]): f"spark3 did not come to {hosts.address(1)}:20200 within 0.5 s",
    }
    assert results[0][DEVICES[0]].gbps
    results = hosts.run(hosts.environment(2))
    assert set(errors(results).values()) == {
        f"spark1 did not answer on {listening} within 0.5 s (Connection refused)",
        f"spark2 did not answer on {hosts.address(1)}:20200 within 0.5 s (Connection refused)",
    }
    assert asked not in str(errors(results))


def test_a_host_with_another_key_does_not_take_part() -> None:
    hosts = Hosts(2, patience=0.5)
    results = hosts.run(hosts.environment(0), hosts.environment(1, SPARKD_MEASURE_KEY="cd" * 32))
    assert set(errors({1: results[1]}).values()) == {
        f"spark1 did not answer on {hosts.address(0)}:20200 within 0.5 s: does not know the group key"
    }
    assert all("spark2 did not come" in why for why in errors({0: results[0]}).values())


def test_an_address_that_is_gone_is_said_by_both() -> None:
    hosts = Hosts(2)
    variables = hosts.variables(1)
    # TEST-NET-1: no machine has such an address.
    first = hosts.address(1, DEVICES[2])
    variables["SPARKD_MEASURE_RAILS"] = variables["SPARKD_MEASURE_RAILS"].replace(f":{first}:", ":192.0.2.7:")
    results = hosts.run(hosts.environment(0), read_environment(variables))
    assert errors(results)[1, DEVICES[2]].startswith(f"cannot use 192.0.2.7 on {DEVICES[2]}: ")
    assert errors(results)[0, DEVICES[0]].startswith(f"spark2 cannot use 192.0.2.7 on {DEVICES[2]}: ")
    assert results[0][DEVICES[1]].gbps, "its twin is measured all the same"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARKD_MEASURE_RAILS", "0:enp1s0f0np0:10.77.0.1:1:enp1s0f1np1:10.77.0.2:-:-"),
        ("SPARKD_MEASURE_RAILS", "0:enp1s0f0np0:10.77.0.1:0:enp1s0f1np1:10.77.0.2:-:-:1"),
        ("SPARKD_MEASURE_RAILS", "0:enp1s0f0np0:10.77.0.1:9:enp1s0f1np1:10.77.0.2:-:-:1"),
        ("SPARKD_MEASURE_RAILS", "0:enp1s0f0np0:10.77.0.1:1:enp1s0f1np1:10.77.0.1:-:-:1"),
        ("SPARKD_MEASURE_RAILS", "0:enp1s0f0np0:10.77.0.1:1:enp1s0f1np1:10.77.0.2:roce p:3:1"),
        ("SPARKD_MEASURE_ADDRESSES", "192.168.77.1"),
        ("SPARKD_MEASURE_SECONDS", "nan"),
        ("SPARKD_MEASURE_EXPECTED_TCP", "-1"),
        ("SPARKD_MEASURE_KEY", "ab"),
        ("SPARKD_NODE", "spark2"),
        ("SPARKD_NODES", "spark1,spark1"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(BadEnvironment) as caught:
        Hosts().environment(0, None, **{name: value})
    assert any(problem.startswith(f"{name}: expected ") for problem in caught.value.problems), caught.value.problems


def test_the_program_leaves_its_results_and_tells_systemd_what_it_does(tmp_path: Path) -> None:
    hosts = Hosts(2)
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.settimeout(10)
        processes = []
        for rank in (0, 1):
            (tmp_path / str(rank)).mkdir()
            changed = {"RUNTIME_DIRECTORY": str(tmp_path / str(rank)), "NOTIFY_SOCKET": path if rank == 0 else ""}
            command = [sys.executable, "-m", "runtime.measure"]
            variables = hosts.variables(rank, {1}, **changed)
            processes.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True))
        stories = [process.communicate(timeout=30)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert told.recv(500).decode() == "STATUS=meeting spark2 to measure"
        assert told.recv(500).decode() == f"STATUS=measuring {DEVICES[1]} to spark2"
    for rank, device, remote in ((0, DEVICES[1], DEVICES[3]), (1, DEVICES[3], DEVICES[1])):
        (rail,) = json.loads((tmp_path / str(rank) / "rails.json").read_text())["rails"]
        assert (rail["device"], rail["remote"], rail["boot_id"]) == (device, remote, f"boot-{rank}")
        assert re.fullmatch(
            rf"{device} to spark{2 - rank} \({remote}\): \d+\.\d\d Gb/s \(tcp\), packets of 8972 bytes pass\n",
            stories[rank],
        )


def test_a_bad_environment_is_told_and_has_its_own_status() -> None:
    variables = Hosts(2).variables(0, SPARKD_MEASURE_KEY="short")
    command = [sys.executable, "-m", "runtime.measure"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 64
    assert "SPARKD_MEASURE_KEY: expected at least 32 hex digits" in done.stderr
    assert "short" not in done.stderr
