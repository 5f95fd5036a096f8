"""The engine's command line and environment."""

import json
from pathlib import Path

import pytest

from runtime.environment import BadEnvironment, Endpoint, read_environment
from runtime.sglang.command import ask_address, asked, bind_address, command, engine_environ
from runtime.sglang.config import EngineConfig, read_engine_config
from tests.runtime.sglang.bench import config
from tests.runtime.test_environment import GOOD

WORKER = {**GOOD, "SPARKD_RANK": "1", "SPARKD_NODE": "spark2", "SPARKD_RAILS": "enp1s0f0np0:10.77.0.2:0:10.77.0.1"}


def engine(tmp_path: Path, environment: dict[str, str] | None = None, transport: str = "any") -> EngineConfig:
    value = json.loads(config(tmp_path, {"transport": transport}, {}))
    value["environment"] = environment or {}
    return read_engine_config({"SPARKD_ENGINE_CONFIG": json.dumps(value)})


def test_the_launcher_adds_what_makes_it_this_rank_of_this_group(tmp_path: Path) -> None:
    argv = command(read_environment(GOOD), engine(tmp_path))
    assert argv[1:3] == ("-m", "sglang.launch_server")
    own = ("--nnodes", "3", "--node-rank", "0", "--tp-size", "3", "--dist-init-addr", "192.168.77.1:20000")
    assert argv[-12:] == (*own, "--host", "127.0.0.1", "--port", "8888")
    assert "--enable-metrics" in argv


def test_only_rank_0_serves_and_the_others_answer_on_loopback_alone() -> None:
    api = {"SPARKD_API": "0.0.0.0:8889"}
    assert bind_address(read_environment({**GOOD, **api})) == Endpoint("0.0.0.0", 8889)
    assert ask_address(read_environment({**GOOD, **api})) == Endpoint("127.0.0.1", 8889)
    assert bind_address(read_environment({**WORKER, **api})) == Endpoint("127.0.0.1", 8889)
    without = {name: value for name, value in WORKER.items() if name != "SPARKD_API"}
    assert bind_address(read_environment(without)) == Endpoint("127.0.0.1", 8888)


def test_no_secret_and_nothing_of_systemd_reaches_the_engine(tmp_path: Path) -> None:
    own = {"NOTIFY_SOCKET": "/run/x", "JOURNAL_STREAM": "1:2", "WATCHDOG_USEC": "1", "PATH": "/bin", "HOME": "/x"}
    environ = engine_environ({**GOOD, **own, "NCCL_NET": "IB"}, {"SGLANG_X": "1"})
    assert not [name for name in environ if name.startswith("SPARKD_")]
    assert GOOD["SPARKD_GROUP_KEY"] not in "".join(environ.values())
    assert {"NOTIFY_SOCKET", "JOURNAL_STREAM", "WATCHDOG_USEC"}.isdisjoint(environ)
    assert (environ["PATH"], environ["HOME"], environ["NCCL_NET"], environ["SGLANG_X"]) == ("/bin", "/x", "IB", "1")
    # Otherwise the processes' environment cannot be looked at once they have given themselves a title.
    assert environ["SPT_NOENV"] == "1"


def test_what_is_asked_is_the_plan_and_the_profile(tmp_path: Path) -> None:
    environ = {**GOOD, "NCCL_NET": "IB", "GLOO_SOCKET_IFNAME": "enP7s7", "PATH": "/bin"}
    wanted = asked(environ, engine(tmp_path, {"SGLANG_X": "1", "NCCL_NET": "IB"}))
    assert wanted == {"NCCL_NET": "IB", "GLOO_SOCKET_IFNAME": "enP7s7", "SGLANG_X": "1", "SGLANG_PLUGINS": "-"}


def test_leftovers_of_an_nccl_conf_are_overridden_on_roce_alone(tmp_path: Path) -> None:
    wanted = asked(GOOD, engine(tmp_path, transport="ib"))
    assert (wanted["NCCL_IB_USE_INLINE"], wanted["NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS"]) == ("0", "0")
    assert not [name for name in asked(GOOD, engine(tmp_path)) if name.startswith("NCCL_")]


def test_a_profile_that_contradicts_the_plan_is_refused_with_both_values(tmp_path: Path) -> None:
    with pytest.raises(BadEnvironment) as caught:
        asked({"NCCL_IB_HCA": "=rocep1s0f0"}, engine(tmp_path, {"NCCL_IB_HCA": "mlx5_0"}))
    assert "environment.NCCL_IB_HCA: 'mlx5_0', but the plan of the fabric has '=rocep1s0f0'" in str(caught.value)


def test_adapters_reach_the_engine_with_the_path_to_what_installs_them(tmp_path: Path) -> None:
    adapters = {"SPARKD_ADAPTERS": '{"tp3_pad":{}}'}
    own = {**GOOD, "PYTHONPATH": "/x"}
    environ = engine_environ({**own, **adapters}, asked({**own, **adapters}, engine(tmp_path)))
    assert environ["SPARKD_ADAPTERS"] == adapters["SPARKD_ADAPTERS"]
    assert environ["PYTHONPATH"].endswith("/plugin")
    assert "PYTHONPATH" not in engine_environ(own, asked(own, engine(tmp_path)))
