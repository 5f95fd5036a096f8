from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sparkd.core.model import RoceFact
from sparkd.host.sysfs import SysfsRoce
from sparkd.ports import DoorError


def observe(root: Path) -> tuple[RoceFact, ...]:
    roce = SysfsRoce(root)
    try:
        return asyncio.run(roce.observe())
    finally:
        roce.close()


def add(root: Path, hca: str, state: str = "4: ACTIVE", net: str = "", ndevs: tuple[str, ...] = ()) -> Path:
    device = root / "class/infiniband" / hca
    (device / "ports/1/gid_attrs/ndevs").mkdir(parents=True)
    (device / "ports/1/state").write_text(state + "\n")
    if net:
        (device / "device/net" / net).mkdir(parents=True)
    for slot, name in enumerate(ndevs):
        (device / f"ports/1/gid_attrs/ndevs/{slot}").write_text(name + "\n")
    return device


def test_a_host_without_rdma_has_no_devices(tmp_path: Path) -> None:
    assert observe(tmp_path) == ()
    (tmp_path / "class/infiniband").mkdir(parents=True)
    assert observe(tmp_path) == ()


def test_devices_in_order_with_port_state_and_network_device(tmp_path: Path) -> None:
    add(tmp_path, "rocep1s0f1", "1: DOWN", net="enp1s0f1np1")
    add(tmp_path, "rocep1s0f0", net="enp1s0f0np0")
    assert observe(tmp_path) == (
        RoceFact("rocep1s0f0", "ACTIVE", "enp1s0f0np0"),
        RoceFact("rocep1s0f1", "DOWN", "enp1s0f1np1"),
    )


def test_soft_roce_is_found_by_its_gid_table(tmp_path: Path) -> None:
    add(tmp_path, "rocep1s0f0", ndevs=("enp1s0f0np0", "enp1s0f0np0"))
    add(tmp_path, "rocep1s0f1")
    assert [fact.netdev for fact in observe(tmp_path)] == ["enp1s0f0np0", ""]


def test_soft_roce_on_a_port_that_is_down_has_no_gid_and_is_found_by_its_parent(tmp_path: Path) -> None:
    """As of Linux 6.1: a rxe device is below devices/virtual, and has neither `device` nor any GID then."""
    device = add(tmp_path, "rocep1s0f0", "1: DOWN")
    (device / "parent").write_text("enp1s0f0np0\n")
    assert observe(tmp_path) == (RoceFact("rocep1s0f0", "DOWN", "enp1s0f0np0"),)


def test_a_device_that_cannot_be_read_is_an_error_and_not_an_absence(tmp_path: Path) -> None:
    device = add(tmp_path, "rocep1s0f0", net="enp1s0f0np0")
    (device / "ports/1/state").unlink()
    with pytest.raises(DoorError, match=r"^sysfs: .*ports/1/state: No such file or directory$"):
        observe(tmp_path)
    (device / "ports/1/state").mkdir()
    with pytest.raises(DoorError, match=r"^sysfs: .*ports/1/state: Is a directory$"):
        observe(tmp_path)


def test_the_directory_itself_may_not_be_unreadable(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class/infiniband").touch()
    with pytest.raises(DoorError, match="Not a directory"):
        observe(tmp_path)


def test_a_read_that_hangs_is_given_up(tmp_path: Path) -> None:
    device = add(tmp_path, "rocep1s0f0")
    (device / "ports/1/state").unlink()
    os.mkfifo(device / "ports/1/state")
    roce = SysfsRoce(tmp_path, deadline=0.1)

    async def body() -> None:
        with pytest.raises(DoorError, match=r"sysfs did not answer within 0\.1 s"):
            await roce.observe()
        with pytest.raises(DoorError, match="has not answered for"):
            await roce.observe()

    asyncio.run(body())
    (device / "ports/1/state").write_text("4: ACTIVE\n")  # lets the reader go
    roce.close()


def test_bytes_over_rdma_where_they_are_counted(tmp_path: Path) -> None:
    counters = add(tmp_path, "rocep1s0f0", net="enp1s0f0np0") / "ports/1/counters"
    counters.mkdir()
    (counters / "port_rcv_data").write_text("10\n")
    (counters / "port_xmit_data").write_text("4611686018427387903\n")
    add(tmp_path, "rocep1s0f1", net="enp1s0f1np1")
    assert [(fact.received, fact.sent) for fact in observe(tmp_path)] == [(40, 2**64 - 4), (None, None)]
