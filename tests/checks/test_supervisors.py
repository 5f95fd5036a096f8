"""Others on the ring's ports, and engines outside of rank units."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from sparkd.core.hardware import Engine, Listener
from sparkd.core.model import Finding
from sparkd.host.supervisors import Supervisors, unit_of
from tests.checks.spark import NODE, Spark

EXPECTED = "only ranks of sparkd-rank@.service"
SYSTEMD = "0::/system.slice/sglang.service"
RANK = "0::/system.slice/system-sparkd\\x2drank.slice/sparkd-rank@7.service"
DOCKER = f"0::/system.slice/docker-{'3f' * 32}.scope"
SGLANG = ("python3", "-m", "sglang.launch_server", "--port", "8888")


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def test_a_port_held_by_a_process_that_may_be_seen(spark: Spark) -> None:
    spark.listen("0100007F:22B8", uid=1000, inode=77)
    spark.process(900, "/usr/bin/nginx", "-g", "daemon off;", cgroup="0::/system.slice/nginx.service", sockets=(5, 77))
    assert spark.check("second-supervisor").findings == (
        Finding(
            "second-supervisor",
            NODE,
            "refuse",
            "port 8888",
            "/usr/bin/nginx -g daemon off; (pid 900, nginx.service, user spark) listens on 127.0.0.1:8888",
            EXPECTED,
            "systemctl disable --now nginx.service",
        ),
    )


def test_a_port_held_by_a_process_that_only_root_may_see(spark: Spark) -> None:
    spark.listen("014DA8C0:4E20", uid=0, inode=78)
    assert spark.check("second-supervisor").findings == (
        Finding(
            "second-supervisor",
            NODE,
            "refuse",
            "port 20000",
            "a process of user root; which one only root may see listens on 192.168.77.1:20000",
            EXPECTED,
            "sudo ss -ltnp 'sport = :20000' names the process: stop it and whatever starts it again",
        ),
    )


def test_the_ports_of_our_own_rank(spark: Spark) -> None:
    spark.listen("0100007F:22B8", uid=990, inode=80)
    assert spark.check("second-supervisor").verdict == "pass"
    spark.process(901, *SGLANG, cgroup=RANK, uid=990, sockets=(80,))
    assert spark.check("second-supervisor").verdict == "pass"


def test_the_processes_of_our_own_rank(spark: Spark) -> None:
    spark.process(901, *SGLANG, cgroup=RANK, uid=990)
    spark.process(902, "sglang::scheduler_TP0", cgroup=f"3:cpu:/\n{RANK}/inner", uid=990)
    assert spark.check("second-supervisor").verdict == "pass"


def test_the_ranks_user_outside_of_a_rank_unit(spark: Spark) -> None:
    spark.listen("0100007F:22B8", uid=990, inode=80)
    spark.process(901, "python3", "-m", "http.server", cgroup="0::/user.slice/session-4.scope", uid=990, sockets=(80,))
    (finding,) = spark.check("second-supervisor").findings
    assert finding.observed == (
        "python3 -m http.server (pid 901, session-4.scope, user sparkd-rank) listens on 127.0.0.1:8888"
    )
    assert finding.fix == "end pid 901 and whatever starts it again"


def test_other_ports_and_sockets_that_do_not_listen(spark: Spark) -> None:
    spark.listen("0100007F:1F90", uid=0, inode=81)
    table = (spark.root / "proc/net/tcp").read_text()
    spark.put("proc/net/tcp", table + table.splitlines()[1].replace("1F90", "22B8").replace(" 0A ", " 01 ") + "\n")
    assert spark.check("second-supervisor").verdict == "pass"


def test_a_listener_on_all_ipv6_addresses(spark: Spark) -> None:
    spark.listen("0100007F:1F90", uid=0, inode=82)
    row = (spark.root / "proc/net/tcp").read_text().replace("0100007F:1F90", f"{'0' * 32}:4E20")
    spark.put("proc/net/tcp6", row)
    (finding,) = spark.check("second-supervisor").findings
    assert finding.observed.endswith("listens on [::]:20000")


@pytest.mark.parametrize(
    ("cgroup", "unit", "fix"),
    [
        (SYSTEMD, "sglang.service", "systemctl disable --now sglang.service"),
        (DOCKER, "container 3f3f3f3f3f3f", "docker update --restart=no 3f3f3f3f3f3f && docker stop 3f3f3f3f3f3f"),
        ("0::/", "no unit", "end pid 902 and whatever starts it again"),
    ],
)
def test_an_engine_of_somebody_else(spark: Spark, cgroup: str, unit: str, fix: str) -> None:
    spark.process(902, *SGLANG, cgroup=cgroup)
    observed = f"python3 -m sglang.launch_server --port 8888 runs in {unit} as spark"
    assert spark.check("second-supervisor").findings == (
        Finding("second-supervisor", NODE, "refuse", "pid 902", observed, EXPECTED, fix),
    )


def test_an_engine_on_our_port_is_told_once(spark: Spark) -> None:
    spark.listen("0100007F:22B8", uid=1000, inode=83)
    spark.process(902, *SGLANG, cgroup=SYSTEMD, sockets=(83,))
    assert [finding.subject for finding in spark.check("second-supervisor").findings] == ["port 8888"]


@pytest.mark.parametrize(
    ("arguments", "engine"),
    [
        (("sglang::scheduler_TP0",), True),
        (("/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "model"), True),
        (("vllm", "serve", "model"), True),
        (("python3", "-m", "runtime.launch"), True),
        (("vim", "sglang.launch_server.md"), False),
        (("grep", "-r", "sglang", "."), False),
        (("vllm", "--help"), False),
        ((), False),
    ],
)
def test_what_is_an_engine(spark: Spark, arguments: tuple[str, ...], engine: bool) -> None:
    spark.process(903, *arguments)
    facts = spark.facts().supervisors
    assert facts is not None
    assert [found.pid for found in facts.engines] == [903] * engine


def test_a_long_command_is_cut(spark: Spark) -> None:
    spark.process(904, *SGLANG, "--model-path", "x" * 200, uid=4242)
    facts = spark.facts().supervisors
    assert facts is not None
    (found,) = facts.engines
    assert found == Engine(904, "uid 4242", found.command, "")
    assert len(found.command) == 80
    assert found.command.endswith("xxx...")


def test_a_proc_that_hides_other_users(spark: Spark) -> None:
    spark.remove("proc/1")
    spark.process(905, "bash")
    result = spark.check("second-supervisor")
    assert (result.verdict, result.why) == ("unknown", "/proc hides the processes of other users (hidepid)")


def test_units_in_a_control_group_path() -> None:
    assert (
        unit_of("12:pids:/a.service\n1:name=systemd:/user.slice/user@1000.service/app.slice/x.service\n") == "x.service"
    )
    assert unit_of(f"0::/machine.slice/libpod-{'ab' * 32}.scope/container") == "container abababababab"
    assert unit_of(f"1:name=systemd:/docker/{'ab' * 32}\n") == "container abababababab"
    assert unit_of("0::/\n") == ""


def test_a_real_listener_is_found_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        door = Supervisors([port])
        try:
            facts = asyncio.run(door.observe())
        finally:
            door.close()
    (found,) = facts.listeners
    assert (found.port, found.address, found.uid, found.pid) == (port, "127.0.0.1", os.getuid(), os.getpid())
    assert found.command
    assert found.ours is False
    assert Listener(port, "127.0.0.1", 990, "sparkd-rank").ours is True
