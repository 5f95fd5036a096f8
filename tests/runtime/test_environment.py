"""The environment file of a rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import BadEnvironment, Endpoint, Rail, Tuning, read_environment

GOOD = {
    "SPARKD_ENGINE": "probe",
    "SPARKD_EPOCH": "7",
    "SPARKD_CLUSTER": "lab",
    "SPARKD_NODE": "spark1",
    "SPARKD_RANK": "0",
    "SPARKD_WORLD_SIZE": "3",
    "SPARKD_NODES": "spark1,spark2,spark3",
    "SPARKD_RENDEZVOUS": "192.168.77.1:20000",
    "SPARKD_MANAGEMENT_ADDRESS": "192.168.77.1",
    "SPARKD_API": "127.0.0.1:8888",
    "SPARKD_RAILS": "enp1s0f0np0:10.77.0.1:1:10.77.0.2,enp1s0f1np1:10.77.4.2:2:10.77.4.1",
    "SPARKD_GROUP_KEY": "0123456789abcdef" * 4,
}


def test_a_good_environment_is_read_whole() -> None:
    environment = read_environment({**GOOD, "NCCL_NET": "IB", "SPARKD_CANARY_INTERVAL": "0.5"})
    assert (environment.engine, environment.epoch, environment.cluster) == ("probe", 7, "lab")
    assert (environment.rank, environment.world_size, environment.node) == (0, 3, "spark1")
    assert environment.nodes == ("spark1", "spark2", "spark3")
    assert environment.rendezvous == Endpoint("192.168.77.1", 20000)
    assert environment.api == Endpoint("127.0.0.1", 8888)
    assert environment.rails == (
        Rail("enp1s0f0np0", "10.77.0.1", 1, "10.77.0.2"),
        Rail("enp1s0f1np1", "10.77.4.2", 2, "10.77.4.1"),
    )
    assert environment.group_key == bytes.fromhex(GOOD["SPARKD_GROUP_KEY"])
    assert environment.tuning == Tuning(canary_interval=0.5)
    assert environment.name(1) == "rank 1 (spark2)"
    assert GOOD["SPARKD_GROUP_KEY"] not in repr(environment)
    assert repr(environment.group_key) not in repr(environment)


def test_only_rank_0_needs_an_api() -> None:
    environ = {**GOOD, "SPARKD_RANK": "1", "SPARKD_NODE": "spark2"}
    environ["SPARKD_RAILS"] = "enp1s0f0np0:10.77.0.2:0:10.77.0.1"
    del environ["SPARKD_API"]
    assert read_environment(environ).api is None


@pytest.mark.parametrize("variable", sorted(GOOD))
def test_a_missing_variable_is_named(variable: str) -> None:
    environ = {key: value for key, value in GOOD.items() if key != variable}
    with pytest.raises(BadEnvironment) as caught:
        read_environment(environ)
    assert any(problem.startswith(f"{variable}: expected ") for problem in caught.value.problems)
    assert any("not set" in problem for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SPARKD_EPOCH", "0", "an integer from 1"),
        ("SPARKD_EPOCH", "7 ", "an integer from 1"),
        ("SPARKD_EPOCH", "\u0667", "an integer from 1"),
        ("SPARKD_WORLD_SIZE", "1", "an integer from 2 to 8"),
        ("SPARKD_WORLD_SIZE", "9", "an integer from 2 to 8"),
        ("SPARKD_WORLD_SIZE", "4", "4 unique node names"),
        ("SPARKD_RANK", "3", "an integer from 0 to 2"),
        ("SPARKD_RANK", "-1", "an integer from 0 to 2"),
        ("SPARKD_NODE", "spark2", "'spark1', the name SPARKD_NODES gives rank 0"),
        ("SPARKD_NODES", "spark1,spark1,spark3", "unique node names"),
        ("SPARKD_NODES", "spark1,,spark3", "unique node names"),
        ("SPARKD_CLUSTER", "a b", "the cluster's name"),
        ("SPARKD_RENDEZVOUS", "192.168.77.1", "IPV4:PORT"),
        ("SPARKD_RENDEZVOUS", "spark1:20000", "IPV4:PORT"),
        ("SPARKD_RENDEZVOUS", "192.168.77.1:0", "IPV4:PORT"),
        ("SPARKD_RENDEZVOUS", "192.168.77.1:65536", "IPV4:PORT"),
        ("SPARKD_RENDEZVOUS", "192.168.77.2:20000", "rank 0's own management address 192.168.77.1"),
        ("SPARKD_MANAGEMENT_ADDRESS", "192.168.77", "an IPv4 address"),
        ("SPARKD_API", "8888", "IPV4:PORT"),
        ("SPARKD_RAILS", "", "DEVICE:LOCAL_IP:PEER_RANK:PEER_IP"),
        ("SPARKD_RAILS", "enp1s0f0np0:10.77.0.1:1", "DEVICE:LOCAL_IP:PEER_RANK:PEER_IP"),
        ("SPARKD_RAILS", "enp1s0f0np0:10.77.0.1:1:10.77.0.1", "two different IPv4 addresses"),
        ("SPARKD_RAILS", "enp1s0f0np0:10.77.0.1:1:10.77.0.999", "two different IPv4 addresses"),
        ("SPARKD_RAILS", "enp1s0f0np0:10.77.0.1:0:10.77.0.2", "the rank of another member"),
        ("SPARKD_RAILS", "enp1s0f0np0:10.77.0.1:3:10.77.0.2", "the rank of another member"),
        ("SPARKD_RAILS", "a:10.77.0.1:1:10.77.0.2,a:10.77.4.1:2:10.77.4.2", "each device once"),
        ("SPARKD_RAILS", "a:10.77.0.1:1:10.77.0.2,b:10.77.0.1:2:10.77.4.2", "each local address once"),
        ("SPARKD_GROUP_KEY", "0123", "at least 32 hex digits"),
        ("SPARKD_GROUP_KEY", "g" * 64, "at least 32 hex digits"),
        ("SPARKD_GROUP_KEY", "a" * 33, "at least 32 hex digits"),
        ("SPARKD_CANARY_INTERVAL", "0", "seconds from 0.01 to 3600"),
        ("SPARKD_CANARY_INTERVAL", "nan", "seconds from 0.01 to 3600"),
        ("SPARKD_CONTROL_GRACE", "-1", "seconds from 0 to 86400"),
        ("SPARKD_CANARY_TIMEOUT", "soon", "seconds from 0.1 to 3600"),
        ("SPARKD_CANARY_TIMEOUT", "1.5", "at least twice SPARKD_CANARY_INTERVAL (2)"),
        ("SPARKD_RAIL_PORT", "0", "an integer from 1 to 65535"),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(variable: str, value: str, expected: str) -> None:
    with pytest.raises(BadEnvironment) as caught:
        read_environment({**GOOD, variable: value})
    assert any(expected in problem for problem in caught.value.problems), caught.value.problems


def test_the_management_address_must_not_be_a_rail() -> None:
    environ = {**GOOD, "SPARKD_MANAGEMENT_ADDRESS": "10.77.0.1", "SPARKD_RENDEZVOUS": "10.77.0.1:20000"}
    with pytest.raises(BadEnvironment, match="an address not on fabric device enp1s0f0np0"):
        read_environment(environ)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(BadEnvironment) as caught:
        read_environment({})
    assert {problem.partition(":")[0] for problem in caught.value.problems} == set(GOOD) - {"SPARKD_API"}
    for problem in caught.value.problems:
        assert problem.endswith("not set")


def test_a_bad_key_is_not_repeated() -> None:
    with pytest.raises(BadEnvironment) as caught:
        read_environment({**GOOD, "SPARKD_GROUP_KEY": "hunter2hunter2"})
    assert "hunter2" not in str(caught.value)


@given(st.sampled_from(sorted(GOOD)), st.text(max_size=40))
def test_no_text_breaks_the_reader(variable: str, value: str) -> None:
    try:
        read_environment({**GOOD, variable: value})
    except BadEnvironment as error:
        assert error.problems
        assert all(problem.startswith("SPARKD_") for problem in error.problems)
