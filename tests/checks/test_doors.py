"""The doors themselves: deadlines, files that cannot be read, and facts that travel."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sparkd.codec import decode, encode
from sparkd.core import checks
from sparkd.core.hardware import HardwareFacts
from sparkd.host import tree
from sparkd.host.hardware import Hardware
from tests.checks.spark import ADDRESSES, EINVAL, PORTS, Spark

SOURCES = {
    "kernel": "proc/cmdline",
    "pci": "sys/bus/pci/devices/0000:01:00.0/current_link_speed",
    "memory": "proc/meminfo",
    "gids": "sys/class/infiniband/rocep1s0f0/ports/1/gids/0",
    "owners": "etc/netplan/01-network-manager-all.yaml",
    "rank": "etc/nccl.conf",
    "supervisors": "proc/net/tcp",
}


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


@pytest.mark.parametrize("source", SOURCES)
def test_a_door_that_hangs_hides_no_other(spark: Spark, source: str) -> None:
    file = spark.put(SOURCES[source])
    file.unlink()
    os.mkfifo(file)
    hardware = Hardware(PORTS, spark.root, deadline=0.3)

    async def body() -> tuple[HardwareFacts, HardwareFacts]:
        return await hardware.observe(addresses=ADDRESSES), await hardware.observe(addresses=ADDRESSES)

    first, second = asyncio.run(body())
    assert list(first.unknown) == list(second.unknown) == [source]
    assert first.unknown[source].endswith("did not answer within 0.3 s")
    assert "has not answered for" in second.unknown[source]
    assert [name for name in SOURCES if getattr(second, name) is None] == [source]
    file.write_text("")  # lets the reader go
    hardware.close()


@pytest.mark.parametrize("source", ["kernel", "pci", "memory", "gids", "supervisors"])
def test_a_file_that_cannot_be_read_is_named(spark: Spark, source: str) -> None:
    spark.seal(SOURCES[source])
    facts = spark.facts()
    assert list(facts.unknown) == [source]
    assert f"{spark.root}/{SOURCES[source]}: Too many levels" in facts.unknown[source]
    assert {result.verdict for result in checks.run(checks.Seen("spark1", facts))} >= {"unknown"}


def test_files_that_must_be_there(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    spark.put("proc/meminfo", "MemTotal: 5 kB\nMemFree: 4 kB\n")
    spark.put("proc/sys/kernel/osrelease", "\n")
    assert spark.facts().unknown == {
        "memory": "/proc/meminfo has no MemAvailable and no SwapTotal",
        "kernel": "/proc/sys/kernel/osrelease is empty",
    }


def test_a_file_that_makes_no_sense_is_no_crash(spark: Spark) -> None:
    spark.put("proc/net/tcp", "header\n   0: 0100007F:XYZ 00000000:0000 0A 0 0 0 0 0 1\n")
    facts = spark.facts()
    assert facts.unknown == {
        "supervisors": "supervisors: not understood: invalid literal for int() with base 16: 'XYZ'"
    }
    results = {result.id: result for result in checks.run(checks.Seen("spark1", facts))}
    assert results["second-supervisor"].verdict == "unknown"


def test_this_machine_can_be_looked_at() -> None:
    hardware = Hardware(PORTS)
    try:
        facts = asyncio.run(hardware.observe())
    finally:
        hardware.close()
    assert facts.unknown == {}
    assert facts.kernel is not None
    assert facts.kernel.release == os.uname().release
    assert facts.memory is not None
    assert facts.memory.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def test_facts_travel(spark: Spark) -> None:
    spark.put("etc/nccl.conf", "NCCL_IB_USE_INLINE=1\n")
    spark.put("etc/netplan/9.yaml", "network:\n  ethernets:\n    enp1s0f0np0: {dhcp4: true}\n")
    spark.listen("0100007F:22B8", uid=0, inode=1)
    spark.process(900, "sglang::scheduler")
    spark.seal("proc/meminfo")
    facts = spark.facts(addresses=ADDRESSES)
    assert decode(HardwareFacts, encode(facts)) == facts
    assert facts.memory is None


def test_an_attribute_without_a_value_is_none_and_a_refusal_is_an_error(spark: Spark) -> None:
    assert tree.attribute(EINVAL) == ""
    assert tree.attribute(spark.root / "no/such") == ""
    spark.seal("sys/x")
    with pytest.raises(OSError, match="Too many levels"):
        tree.attribute(spark.root / "sys/x")
    with pytest.raises(OSError, match="Is a directory"):
        tree.text(spark.root / "sys")
    with pytest.raises(OSError, match="Not a directory"):
        os.listdir(spark.root / "proc/cmdline")
    assert tree.names(spark.root / "proc/cmdline") == []
    assert tree.modified(spark.root / "no/such") == ""
    assert tree.target(spark.root / "proc/cmdline") == ""
