"""What load makes of a sound configuration, and which file, key and words it answers a faulty one with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.config import ConfigError, Engine, Listen, check_host, load_cluster
from sparkd.core.railfacts import RailPolicy
from sparkd.core.snapshot import Policy
from tests.config.etc import CLUSTER, NODE, Etc, unprivileged

Configured = Callable[..., Etc]


def test_defaults(etc: Etc) -> None:
    settings = etc.load()
    assert settings.node == "spark1"
    assert [node.name for node in settings.cluster.nodes] == ["spark1", "spark2", "spark3"]
    assert (settings.engine, settings.listen, settings.policy) == (Engine(), Listen(), Policy(rails=RailPolicy()))
    assert settings.tick == 5.0
    assert settings.cluster_key == bytes.fromhex("ab" * 32)
    assert settings.paths.tls == etc.folder / "tls"
    assert (settings.paths.state, settings.paths.run) == (Path("/var/lib/sparkd"), Path("/run/sparkd"))


def test_every_key_is_used(configured: Configured) -> None:
    settings = configured(
        """
        [engine]
        name = "sglang"
        profile = "tiny"
        python = "/opt/mine/bin/python3"
        rendezvous_port = 20001
        api = "127.0.0.1:8889"
        [listen]
        operator = "127.0.0.2:7000"
        peer_port = 7001
        [recovery]
        backoff_seconds = 1
        backoff_max_seconds = 2.5
        restarts = 0
        window_minutes = 10
        memory_back_percent = 80
        memory_back_seconds = 30
        memory_floor_mib = 2048
        hard_reset_hours = 1.5
        [peers]
        fresh_seconds = 4
        tick_seconds = 2
        [fabric]
        address_plan = "adopt"
        measure_seconds = 0.5
        rail_min_gbps = 50
        rail_min_tcp_gbps = 20
        node_slow_ratio = 0.25
        """
    ).load()
    assert settings.engine == Engine("sglang", 20001, "127.0.0.1:8889", "tiny", "/opt/mine/bin/python3")
    assert settings.listen == Listen("127.0.0.2:7000", 7001)
    rails = RailPolicy(0.5, 50.0, 20.0, 0.25)
    assert settings.policy == Policy(1.0, 2.5, 0, 600.0, 4.0, True, 0.8, 30.0, 2048 * 1024, rails, 5400.0)
    assert settings.tick == 2.0


def test_rails_are_not_measured_without_time_to_do_so(configured: Configured) -> None:
    assert configured("[fabric]\nmeasure_seconds = 0").load().policy.rails is None


def test_directories_of_systemd(etc: Etc) -> None:
    paths = etc.load({"STATE_DIRECTORY": "/srv/a:/srv/b", "RUNTIME_DIRECTORY": "/run/other"}).paths
    assert (paths.state, paths.run) == (Path("/srv/a"), Path("/run/other"))


def test_secrets_stay_out_of_logs(etc: Etc) -> None:
    shown = repr(etc.load())
    assert "t0ken" not in shown
    assert repr(bytes.fromhex("ab" * 32)) not in shown


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("[engine]\nname = 'vllm'", 'engine.name: found "vllm", expected one of probe, sglang'),
        (
            "[engine]\nname = 'sglang'",
            "engine.profile: found nothing, expected the name of a profile (sparkctl profile list)",
        ),
        (
            "[engine]\nname = 'sglang'\nprofile = '../x'",
            'engine.profile: found "../x", expected the name of a profile (sparkctl profile list)',
        ),
        (
            "[engine]\npython = 'python3'",
            'engine.python: found "python3", expected a path such as "/opt/sparkd/engine/bin/python"',
        ),
        (
            "[engine]\npython = '/a b'",
            'engine.python: found "/a b", expected a path such as "/opt/sparkd/engine/bin/python"',
        ),
        ("[engine]\nname = ''", 'engine.name: found "", expected one of probe, sglang'),
        ("[engine]\nname = 3", "engine.name: found 3, expected one of probe, sglang"),
        ("[engine]\nrendezvous_port = 80", "engine.rendezvous_port: found 80, expected an integer from 1024 to 65535"),
        (
            "[engine]\nrendezvous_port = true",
            "engine.rendezvous_port: found true, expected an integer from 1024 to 65535",
        ),
        ("[engine]\napi = 8888", 'engine.api: found 8888, expected ADDRESS:PORT, such as "127.0.0.1:8888"'),
        (
            "[engine]\napi = 'localhost'",
            'engine.api: found "localhost", expected ADDRESS:PORT, such as "127.0.0.1:8888"',
        ),
        (
            "[engine]\napi = '127.0.0.1:65536'",
            'engine.api: found "127.0.0.1:65536", expected ADDRESS:PORT, such as "127.0.0.1:8888", '
            "with a port up to 65535",
        ),
        (
            "[engine]\napi = '127.0.0.1:7474'",
            "engine.api: found port 7474, as in listen.operator, expected a port that nothing else here uses",
        ),
        (
            "[engine]\nrendezvous_port = 7475",
            "engine.rendezvous_port: found port 7475, as in listen.peer_port, "
            "expected a port that nothing else here uses",
        ),
        (
            "[listen]\noperator = '0.0.0.0:7474'",
            'listen.operator: found "0.0.0.0:7474", expected "127.0.0.1:7474" (for other hosts there is [api] listen)',
        ),
        (
            "[listen]\noperater = '127.0.0.1:1'",
            'listen.operater: found an unknown key, expected "operator"? Known keys: operator, peer_port',
        ),
        ("[recovery]\nrestarts = 2.5", "recovery.restarts: found 2.5, expected an integer from 0 to 100"),
        (
            "[recovery]\nbackoff_seconds = true",
            "recovery.backoff_seconds: found true, expected a number from 0 to 3600",
        ),
        (
            "[listen]\noperator = '127.0.0.1:8888'\n[engine]\napi = 'nowhere'",
            'engine.api: found "nowhere", expected ADDRESS:PORT, such as "127.0.0.1:8888"',
        ),
        (
            "[recovery]\nbackoff_seconds = -1\nbackoff_max_seconds = 1",
            "recovery.backoff_seconds: found -1, expected a number from 0 to 3600",
        ),
        ("[recovery]\nwindow_minutes = inf", "recovery.window_minutes: found inf, expected a number from 1 to 10080"),
        ("[recovery]\nbackoff_seconds = nan", "recovery.backoff_seconds: found nan, expected a number from 0 to 3600"),
        (
            f"[recovery]\nbackoff_seconds = {10**400}",
            "recovery.backoff_seconds: found a very large integer, expected a number from 0 to 3600",
        ),
        (
            "[recovery]\nbackoff_max_seconds = 1",
            "recovery.backoff_max_seconds: found 1, expected at least backoff_seconds, 5",
        ),
        ("[incidents]\nkeep_mib = 0", "incidents.keep_mib: found 0, expected a number from 1 to 65536"),
        ("[incidents]\nkeep_days = -1", "incidents.keep_days: found -1, expected a number from 0 to 3650"),
        ("[peers]\nfresh_seconds = 9", "peers.fresh_seconds: found 9, expected at least twice tick_seconds, 10"),
        ("[peers]\ntick_seconds = 60", "peers.tick_seconds: found 60, expected a number from 0.5 to 10"),
        (
            "[recover]\nrestarts = 1",
            'recover: found an unknown key, expected "recovery"? Known keys: node, cluster, '
            "fabric, engine, listen, api, recovery, peers, incidents",
        ),
        ("[fabric]\nmeasure_seconds = 0.01", "fabric.measure_seconds: found 0.01, expected 0, or from 0.05 to 10"),
        ("[fabric]\nnode_slow_ratio = 2", "fabric.node_slow_ratio: found 2, expected a number from 0 to 1"),
        ('[fabric]\naddress_plan = "mine"', 'fabric.address_plan: found "mine", expected base or adopt'),
        ("[[recovery]]\nrestarts = 1", "recovery: found a list of 1, expected one [recovery] table"),
    ],
)
def test_one_fault(configured: Configured, extra: str, line: str) -> None:
    etc = configured(extra)
    assert [str(problem) for problem in etc.problems()] == [f"{etc.main}: {line}"]


@pytest.mark.parametrize(
    ("node", "cluster", "places"),
    [
        ("", CLUSTER, ["node.name"]),
        ("node = 'spark1'\n", CLUSTER, ["node"]),
        ("[node]\nname = 'spark4'\n", CLUSTER, ["node.name"]),
        ("[node]\nname = 'spark1'\nrank = 0\n", CLUSTER, ["node.rank"]),
        (NODE, "", ["cluster"]),
        (NODE, "[[cluster]]\nname = 'lab'\n", ["cluster"]),
        (NODE, CLUSTER.replace("rank = 2", "rank = 1"), ["cluster.node[2].rank"]),
        (NODE, CLUSTER.replace("77.3", "77.2"), ["cluster.node[2].address"]),
        (NODE, CLUSTER.replace("/21", "/24"), ["cluster.base_range"]),
        (NODE, CLUSTER.replace("base_range", "base"), ["cluster.base", "cluster.base_range"]),
    ],
)
def test_node_and_cluster(configured: Configured, node: str, cluster: str, places: list[str]) -> None:
    etc = configured(node=node, cluster=cluster)
    assert etc.places() == [("sparkd.toml", place) for place in places]


def test_everything_wrong_is_told_at_once(configured: Configured) -> None:
    etc = configured("[engine]\nname = 'x'\n[recovery]\nrestarts = -1\n", node="", cluster=CLUSTER.replace("lab", "L!"))
    (etc.folder / "cluster.key").unlink()
    (etc.folder / "tls/node.key").unlink()
    assert etc.places() == [
        ("sparkd.toml", "node.name"),
        ("sparkd.toml", "cluster.name"),
        ("sparkd.toml", "engine.name"),
        ("sparkd.toml", "recovery.restarts"),
        ("cluster.key", "file"),
        ("node.key", "file"),
    ]


def test_drop_ins_merge_in_order_and_are_named(etc: Etc) -> None:
    etc.write("sparkd.toml.d/20-b.toml", "[recovery]\nrestarts = 7\n")
    etc.write("sparkd.toml.d/10-a.toml", "[recovery]\nrestarts = 5\nbackoff_seconds = 1\n")
    etc.write("sparkd.toml.d/.30-c.toml", "[recovery]\nwindow_minutes = 9\n")
    etc.write("sparkd.toml.d/40-d.toml.old", "[recovery]\nrestarts = 9\n")
    policy = etc.load().policy
    assert (policy.restarts, policy.backoff, policy.window) == (7, 1.0, 3600.0)

    etc.write("sparkd.toml.d/20-b.toml", "[recovery]\nrestarts = -7\n[cluster]\nbase_range = 1\nnam = 'x'\n")
    etc.write("sparkd.toml.d/10-a.toml", "[recovery]\nwindow_minutes = 0\n")
    assert etc.places() == [
        ("20-b.toml", "cluster.nam"),
        ("20-b.toml", "cluster.base_range"),
        ("20-b.toml", "recovery.restarts"),
        ("10-a.toml", "recovery.window_minutes"),
    ]


def test_a_drop_in_replaces_the_list_of_nodes(etc: Etc) -> None:
    etc.write("sparkd.toml.d/nodes.toml", "[[cluster.node]]\nname = 'spark1'\nrank = 0\naddress = '192.168.77.1'\n")
    assert etc.places() == [("nodes.toml", "cluster.node")]
    etc.write("sparkd.toml.d/nodes.toml", "cluster = 1\n")
    assert etc.places() == [("nodes.toml", "cluster")]
    etc.write("sparkd.toml.d/nodes.toml", "cluster = 1\n")
    etc.write("sparkd.toml.d/zz.toml", "[cluster]\nname = 'lab'\n")
    assert etc.places() == [("zz.toml", "cluster.base_range"), ("zz.toml", "cluster.node")]


def test_syntax_errors_of_all_files(etc: Etc) -> None:
    etc.write("sparkd.toml", '[node]\nname = spark1"\n')
    etc.write("sparkd.toml.d/a.toml", b"# \xff\n")
    etc.write("sparkd.toml.d/b.toml", "[[[")
    etc.write("sparkd.toml.d/c.toml", "a = " + "[" * 100_000)
    problems = etc.problems()
    assert [Path(problem.file).name for problem in problems] == ["sparkd.toml", "a.toml", "b.toml", "c.toml"]
    assert [problem.key for problem in problems[:2]] == ["line 2, column 8", "line 1"]
    assert problems[0].found == "a syntax error (Invalid value)"


def test_unreadable_files(etc: Etc) -> None:
    (etc.folder / "sparkd.toml.d").mkdir()
    (etc.folder / "sparkd.toml.d/gone.toml").symlink_to("nowhere")
    (etc.folder / "sparkd.toml.d/folder.toml").mkdir()
    etc.main.unlink()
    assert [str(problem) for problem in etc.problems()] == [
        f"{etc.main}: file: found nothing, expected the configuration of this node, "
        "made by `sparkctl cluster create` and put here by `sparkctl cluster install`",
        f"{etc.folder}/sparkd.toml.d/folder.toml: file: found is a directory, expected a readable TOML file",
        f"{etc.folder}/sparkd.toml.d/gone.toml: file: found nothing, expected a readable TOML file",
    ]


def test_no_permission(etc: Etc) -> None:
    etc.write("sparkd.toml.d/a.toml", "")
    with unprivileged():
        places = etc.places()
        first = str(etc.problems()[0])
    assert places == [("sparkd.toml.d", "file"), ("sparkd.toml", "file")]
    assert first == f"{etc.main}.d: file: found no permission to read it, expected a directory of drop-ins"


def test_no_permission_to_read_a_secret(etc: Etc) -> None:
    # pytest's own directories are closed to others.
    with tempfile.TemporaryDirectory() as name:
        there = Etc(Path(shutil.copytree(etc.folder, Path(name) / "etc")))
        for path in (Path(name), there.folder, there.folder / "tls"):
            path.chmod(0o755)
        for path in (there.main, there.folder / "tls/ca.crt", there.folder / "tls/node.crt"):
            path.chmod(0o644)
        with unprivileged():
            places = there.places()
            first = there.problems()[0]
    assert places == [(name, "file") for name in ("cluster.key", "node.key")]
    assert first.expected == "the cluster's key, readable by group sparkd (root:sparkd, mode 0640)"


def test_a_description_for_all_nodes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    assert load_cluster(path).name == "lab"
    path.write_text(NODE + CLUSTER + "[recovery]\nrestarts = -1\n[listen]\noperator = '10.0.0.1:1'\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    assert [problem.key for problem in caught.value.problems] == ["node", "listen.operator", "recovery.restarts"]
    assert {problem.file for problem in caught.value.problems} == {str(path)}


def test_routes_of_the_host(etc: Etc) -> None:
    settings = etc.load()
    usual = [("0.0.0.0/0", "enP7s7"), ("192.168.77.0/24", "enP7s7"), ("10.77.1.0/24", "enP2p1s0f0np0")]
    assert check_host(settings, usual) == []
    problems = check_host(settings, [*usual, ("10.77.0.0/16", "wlP9s9"), ("10.77.3.128/25", "docker0")])
    assert [(problem.file, problem.key) for problem in problems] == [(str(etc.main), "cluster.base_range")] * 2
    assert problems[0].found == '"10.77.0.0/21", which overlaps 10.77.0.0/16 on wlP9s9'
    assert problems[1].found == '"10.77.0.0/21", which overlaps 10.77.3.128/25 on docker0'
    assert problems[0].expected == 'a range that this host has no route to, such as "10.78.0.0/21"'


def test_routes_name_the_drop_in(etc: Etc) -> None:
    drop_in = etc.write("sparkd.toml.d/range.toml", "[cluster]\nbase_range = '10.9.0.0/21'\n")
    settings = etc.load()
    assert [problem.file for problem in check_host(settings, [("10.9.5.0/24", "br0")])] == [str(drop_in)]
    assert check_host(replace(settings, sources={}), [("10.9.6.0/24", "br0")]) == []
