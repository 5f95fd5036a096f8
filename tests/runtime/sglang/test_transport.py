"""Proof that NCCL goes over RoCE: its own word, and counters in a directory like the kernel's."""

from pathlib import Path

import pytest

from runtime.environment import read_environment
from runtime.exits import RankFailure
from runtime.sglang.transport import Connections, TransportProof, devices
from tests.runtime.test_environment import GOOD

HCAS = ("rocep1s0f0", "rocep1s0f1")
ENVIRONMENT = read_environment(GOOD)


class Sysfs:
    """The counters of two devices."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for hca in HCAS:
            self.count(hca, 100)

    def count(self, hca: str, value: int) -> None:
        counters = self.path / hca / "ports/1/counters"
        counters.mkdir(parents=True, exist_ok=True)
        (counters / "port_xmit_data").write_text(f"{value}\n")


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


def channels(peer: int, way: str = "NET/IB") -> list[str]:
    head = "spark1:77:99 [0] NCCL INFO Channel 03/0 :"
    return [f"{head} 0[0] -> {peer}[0] [send] via {way}/1", f"{head} {peer}[0] -> 0[0] [receive] via {way}/1(2)/GDRDMA"]


def proof(sysfs: Sysfs, *lines: str, transport: str = "ib", hcas: tuple[str, ...] = HCAS) -> TransportProof:
    connections = Connections(0, 3)
    for line in lines:
        connections.feed(line)
    return TransportProof(ENVIRONMENT, transport, hcas, connections, sysfs.path)


def refusal(made: TransportProof) -> str:
    with pytest.raises(RankFailure) as caught:
        made.check()
    assert caught.value.code == 75
    return caught.value.sentence


def test_every_peer_and_every_device_is_proof(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1), *channels(2))
    for hca in HCAS:
        sysfs.count(hca, 101)
    assert made.check() == ""


def test_a_device_that_rests_is_named_and_no_reason_to_stop(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1), *channels(2))
    sysfs.count(HCAS[0], 101)
    assert made.check() == "rocep1s0f1 sent nothing"


def test_a_peer_without_a_line_is_named(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1))
    sysfs.count(HCAS[0], 101)
    assert "rank 2 (spark3) is reached via NET/IB" in refusal(made)


def test_sockets_are_found_as_soon_as_nccl_tells(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1), *channels(2, "NET/Socket"))
    with pytest.raises(RankFailure, match=r"NCCL reaches rank 2 \(spark3\) via NET/Socket, expected NET/IB"):
        made.check_early()
    proof(sysfs, *channels(1)).check_early()


def test_counters_that_rest_say_that_it_is_not_roce(sysfs: Sysfs) -> None:
    assert "port_xmit_data of rocep1s0f0, rocep1s0f1 has not moved" in refusal(proof(sysfs, *channels(1), *channels(2)))


def test_a_device_that_does_not_exist_is_named(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1), *channels(2), hcas=("rocep9s0f0",))
    assert "NCCL_IB_HCA names rocep9s0f0, whose" in refusal(made)
    assert "names no RDMA device" in refusal(proof(sysfs, *channels(1), *channels(2), hcas=()))


def test_any_transport_asks_for_nothing_and_is_never_called_roce(sysfs: Sysfs) -> None:
    made = proof(sysfs, *channels(1, "NET/Socket"), transport="any")
    made.check_early()
    assert made.check() == ""
    connections = Connections(0, 3)
    for line in channels(1):
        connections.feed(line)
    assert connections.text("any") == "sockets (lab)"
    assert connections.text("ib") == "IB, 2 connections"


def test_connections_of_others_and_of_other_groups_do_not_count() -> None:
    connections = Connections(0, 3)
    for line in (
        "spark1:77:99 [0] NCCL INFO Channel 03/0 : 1[0] -> 2[0] [send] via NET/IB/1",
        "spark1:77:99 [0] NCCL INFO Channel 03/0 : 0[0] -> 7[0] [send] via NET/IB/1",
        "spark1:77:99 [0] NCCL INFO Channel 03/0 : 0[0] -> 1[0] via P2P/IPC",
        "a request that says via NET/IB",
    ):
        connections.feed(line)
    assert connections.ways == {}


@pytest.mark.parametrize(
    ("value", "names"),
    [("=rocep1s0f0,roceP2p1s0f0", ("rocep1s0f0", "roceP2p1s0f0")), ("a:1,a:2", ("a",)), ("", ())],
)
def test_the_devices_are_those_of_nccl_ib_hca(value: str, names: tuple[str, ...]) -> None:
    assert devices({"NCCL_IB_HCA": value}) == names
