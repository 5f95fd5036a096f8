"""The environment of a rank, as systemd and NCCL read it."""

import re
from ipaddress import IPv4Interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import (
    PORTS,
    Cabling,
    Cluster,
    ClusterError,
    adopt,
    engine_environment,
    parse_cluster,
    plan,
    planned_environment,
    rank_environment,
)
from tests.ring_mesh.samples import addresses, lab, rings, wired

HCAS = [port.hca for port in PORTS]


def test_the_engine_is_told_to_use_roce_on_exactly_the_four_devices() -> None:
    environment = engine_environment(plan(parse_cluster(lab())), "spark1", hcas=HCAS)

    assert environment == {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_SUBNET_PREFIX_LEN": "24",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_IB_USE_INLINE": "0",
        "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS": "0",
        "NCCL_SOCKET_IFNAME": "enP7s7",
        "GLOO_SOCKET_IFNAME": "enP7s7",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_BUFFSIZE": "1048576",
        "NCCL_LL128_BUFFSIZE": "262144",
        "NCCL_PROTO": "^LL128",
        "NCCL_MAX_NCHANNELS": "8",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET",
    }


def test_without_rdma_devices_nothing_claims_roce() -> None:
    planned = plan(parse_cluster(lab()))

    environment = engine_environment(planned, "spark1", hcas=[])

    assert not [key for key in environment if key == "NCCL_NET" or key.startswith("NCCL_IB_")]
    assert environment.items() < engine_environment(planned, "spark1", hcas=HCAS).items()


def test_devices_are_listed_in_the_order_of_the_ports() -> None:
    environment = engine_environment(plan(parse_cluster(lab())), "spark1", hcas=["rocep1s0f1", "rocep1s0f0"])

    assert environment["NCCL_IB_HCA"] == "=rocep1s0f0,rocep1s0f1"


@pytest.mark.parametrize(
    ("indices", "value"),
    [
        ([3, 3, 3, 3], "3"),
        ([0, 0, 0, 0], "0"),
        ([3, 3, 5, 3], None),
        ([3, None, 3, 3], None),
        ([None, None, None, None], None),
        ([], None),
    ],
)
def test_a_gid_index_is_set_only_if_all_are_known_and_equal(indices: list[int | None], value: str | None) -> None:
    environment = engine_environment(plan(parse_cluster(lab())), "spark1", hcas=HCAS, gid_indices=indices)

    assert environment.get("NCCL_IB_GID_INDEX") == value


@pytest.mark.parametrize(
    ("hcas", "indices", "text"),
    [
        (["rocep1s0f0", "mlx5_0"], [], "mlx5_0 is not a fabric device of spark1"),
        (["rocep1s0f"], [], "rocep1s0f is not a fabric device"),
        (["rocep1s0f0", "rocep1s0f0"], [], "named twice"),
        (HCAS, [3, 3], "2 GID indices for 4 RDMA devices"),
        ([], [3], "1 GID indices for 0 RDMA devices"),
    ],
)
def test_devices_that_nccl_would_pass_over_are_errors(hcas: list[str], indices: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        engine_environment(plan(parse_cluster(lab())), "spark1", hcas=hcas, gid_indices=indices)


def test_the_bootstrap_interface_is_the_nodes_own() -> None:
    table = lab() | {"management_interface": "eno1"}
    table["node"][1]["management_interface"] = "wlP9s9"
    planned = plan(parse_cluster(table))

    for node, interface in (("spark1", "eno1"), ("spark2", "wlP9s9"), ("spark3", "eno1")):
        environment = engine_environment(planned, node, hcas=HCAS)
        assert environment["NCCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"] == interface


def test_a_rank_is_told_its_place() -> None:
    planned = plan(parse_cluster(lab()))

    assert rank_environment(planned, "spark2", 7, engine="probe", group_key="c0ffee") == {
        "SPARKD_ENGINE": "probe",
        "SPARKD_EPOCH": "7",
        "SPARKD_CLUSTER": "lab",
        "SPARKD_NODE": "spark2",
        "SPARKD_RANK": "1",
        "SPARKD_WORLD_SIZE": "3",
        "SPARKD_NODES": "spark1,spark2,spark3",
        "SPARKD_RENDEZVOUS": "192.168.77.1:20000",
        "SPARKD_MANAGEMENT_ADDRESS": "192.168.77.2",
        "SPARKD_API": "127.0.0.1:8888",
        "SPARKD_RAILS": (
            "enp1s0f0np0:10.77.2.2:2:10.77.2.3,enP2p1s0f0np0:10.77.3.2:2:10.77.3.3,"
            "enp1s0f1np1:10.77.0.2:0:10.77.0.1,enP2p1s0f1np1:10.77.1.2:0:10.77.1.1"
        ),
        "SPARKD_GROUP_KEY": "c0ffee",
    }
    other = rank_environment(
        planned, "spark2", 7, engine="probe", group_key="c0ffee", rendezvous_port=21000, api="0.0.0.0:80"
    )
    assert (other["SPARKD_RENDEZVOUS"], other["SPARKD_API"]) == ("192.168.77.1:21000", "0.0.0.0:80")


@pytest.mark.parametrize("value", ["", "x y", 'x"y', "x'y", "x\\y", "x\ny", "x#y", "x$y"])
def test_a_value_that_systemd_would_read_differently_is_an_error(value: str) -> None:
    planned = plan(parse_cluster(lab()))

    with pytest.raises(ValueError, match="SPARKD_ENGINE is empty or"):
        rank_environment(planned, "spark1", 1, engine=value, group_key="c0ffee")
    with pytest.raises(ValueError, match="SPARKD_GROUP_KEY is empty or") as caught:
        rank_environment(planned, "spark1", 1, engine="probe", group_key=value)
    assert not value or value not in str(caught.value)


def test_an_unknown_node_is_an_error() -> None:
    planned = plan(parse_cluster(lab()))

    with pytest.raises(ClusterError):
        engine_environment(planned, "spark9", hcas=[])
    with pytest.raises(ClusterError):
        rank_environment(planned, "spark9", 1, engine="probe", group_key="c0ffee")


@given(rings(), st.integers(1, 10**9))
def test_no_value_needs_quoting_and_both_ends_of_a_rail_agree(ring: tuple[Cluster, Cabling], epoch: int) -> None:
    planned = plan(*ring)

    rails = set()
    for node in planned.cluster.nodes:
        hcas = [end.hca for end in planned.ends_of(node.name)]
        environment = rank_environment(planned, node.name, epoch, engine="probe", group_key="c0ffee")
        environment |= engine_environment(planned, node.name, hcas=hcas, gid_indices=[3] * len(hcas))
        assert all(re.fullmatch(r"[A-Za-z0-9.:,=^_-]+", value) for value in environment.values())
        assert planned_environment(planned, node.name).items() <= environment.items()
        assert environment["SPARKD_WORLD_SIZE"] == str(len(environment["SPARKD_NODES"].split(",")))
        for rail in environment["SPARKD_RAILS"].split(","):
            _, local, peer, remote = rail.split(":")
            rails.add((node.rank, local, int(peer), remote))
    assert len(rails) == 2 * len(planned.links)
    assert rails == {(peer, remote, rank, local) for rank, local, peer, remote in rails}


def test_between_two_nodes_only_the_cabled_devices_are_used() -> None:
    planned = plan(parse_cluster(lab(2)), wired("spark1.1-spark2.0"))

    assert planned_environment(planned, "spark1")["NCCL_IB_HCA"] == "=rocep1s0f1,roceP2p1s0f1"
    assert planned_environment(planned, "spark2")["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"
    assert planned_environment(planned, "spark1")["SPARKD_RAILS"] == (
        "enp1s0f1np1:10.77.0.1:1:10.77.0.2,enP2p1s0f1np1:10.77.1.1:1:10.77.1.2"
    )
    with pytest.raises(ValueError, match="rocep1s0f0 is not a fabric device of spark1: the plan has rocep1s0f1, roceP"):
        engine_environment(planned, "spark1", hcas=HCAS)


def test_nothing_restricts_nccl_to_a_ring_before_a_ring_of_four_is_supported() -> None:
    three, four = (planned_environment(plan(parse_cluster(lab(nodes))), "spark1") for nodes in (3, 4))

    assert four.keys() == three.keys()
    assert not {"NCCL_ALGO", "NCCL_SKIP_TREE_CONNECT", "NCCL_SWITCHLESS_RING_ONLY"} & four.keys()


def test_the_prefix_length_is_that_of_the_plan() -> None:
    cluster = parse_cluster(lab())
    found = {key: [IPv4Interface(f"{one.ip}/29")] for key, (one,) in addresses(plan(cluster)).items()}
    planned = adopt(cluster, None, found)

    for node in cluster.nodes:
        assert engine_environment(planned, node.name, hcas=HCAS)["NCCL_IB_SUBNET_PREFIX_LEN"] == "29"
