"""RDMA rates: how perftest's output is read, and how both ends measure with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runtime.measure.perftest import PerftestError, arguments, parse
from tests.runtime import fake_ib_write_bw
from tests.runtime.measuring import DEVICES, Hosts, errors

RULE = "-" * 87
HEAD = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
ROW = " 65536      1121987          0.00               98.02  \t\t   0.186958"
OLD = f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : rocep1s0f0
 Number of qps   : 1            Transport type : IB
 Connection type : RC           Using SRQ      : OFF
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs     : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x01c8 PSN 0x9ad2f1 RKey 0x1820ff VAddr 0x00ffff9a5d0000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
 remote address: LID 0000 QPN 0x01c9 PSN 0x2d1c55 RKey 0x1820fe VAddr 0x00ffffa3f60000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:02
{RULE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1121987          0.00               98.02              0.186958
{RULE}
"""
NEW = f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rocep1s0f0
 PCIe relax order: ON\t\tLock-free      : OFF
 ibv_wr* API     : ON\t\tUsing DDP      : OFF
 TX depth        : 128
{RULE}
WARNING: BW peak won't be measured in this run.
{HEAD}
{ROW}
{RULE}
"""
CPU = f"{HEAD}  CPU_Util[%]\n{ROW}\t   3.20\n"


@pytest.mark.parametrize("output", [OLD, NEW, CPU, f"{HEAD}\n{ROW}"], ids=["old", "new", "cpu", "bare"])
def test_the_average_is_read(output: str) -> None:
    assert parse(output) == 98.02


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "printed 0 tables, expected one"),
        (
            f"{RULE}\n Couldn't connect to 192.168.77.2:20201\n",
            "its last words: Couldn't connect to 192.168.77.2:20201",
        ),
        (f"{HEAD}\n{RULE}\n", "printed 0 results, expected one"),
        (f"{HEAD}\n{ROW}\n{ROW}\n", "printed 2 results, expected one"),
        (f"{HEAD}\n{ROW}\n{HEAD}\n{ROW}\n", "printed 2 tables, expected one"),
        (f"{HEAD}\n{ROW}".replace("Gb/sec", "MB/sec"), "printed rates in MB/sec, expected Gb/sec"),
        (f"{HEAD}\n{ROW}".replace("98.02", "0.00"), "printed a rate of 0.00 Gb/s, expected more than 0"),
        (f"{HEAD}\n{ROW}".replace("98.02", "nan"), "printed 0 results, expected one"),
        (f"{HEAD}\n{ROW}".replace("98.02", "-98.02"), "printed 0 results, expected one"),
        (f"{HEAD}\n 65536  1121987  98.02\n", "printed 0 results, expected one"),
        (f" #bytes #iterations BW average[Gb/sec]\n{ROW}", "printed 0 tables, expected one"),
    ],
)
def test_what_cannot_be_read_is_no_rate(output: str, why: str) -> None:
    with pytest.raises(PerftestError) as caught:
        parse(output)
    assert why in str(caught.value)


@pytest.mark.parametrize(("seconds", "whole"), [(0.15, "1"), (1.0, "1"), (1.5, "2")])
def test_it_is_asked_for_whole_seconds(seconds: float, whole: str) -> None:
    asked = arguments("rocep1s0f0", 3, seconds, 20201)
    assert asked == ["-d", "rocep1s0f0", "-x", "3", "-D", whole, "-p", "20201", "--report_gbits", "-F"]
    assert arguments("rocep1s0f0", 3, seconds, 20201, "192.168.77.2") == [*asked, "192.168.77.2"]


@pytest.fixture
def perftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ib_write_bw"
    program.write_text(f"#!{sys.executable}\n{Path(fake_ib_write_bw.__file__).read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("perftest")
def test_both_ends_measure_with_it() -> None:
    hosts = Hosts(2)
    results = hosts.run(hosts.environment(0), hosts.environment(1))
    assert errors(results) == {}
    for index, device in ((0, DEVICES[0]), (1, DEVICES[1])):
        found = results[0][device]
        assert (found.method, found.gbps, found.mtu_passed) == ("rdma", 90.0 + index, True)


@pytest.mark.usefixtures("perftest")
def test_without_it_at_one_end_both_measure_over_tcp() -> None:
    hosts = Hosts(2)
    variables = hosts.variables(1)["SPARKD_MEASURE_RAILS"]
    blind = ",".join(":".join([*rail.split(":")[:6], "-", "-", rail[-1]]) for rail in variables.split(","))
    results = hosts.run(hosts.environment(0), hosts.environment(1, SPARKD_MEASURE_RAILS=blind))
    assert errors(results) == {}
    assert {result.method for found in results.values() for result in found.values()} == {"tcp"}


@pytest.mark.usefixtures("perftest")
@pytest.mark.parametrize(("expected", "rate", "runs"), [("0", 5.0, 2), ("30", 90.0, 4), ("95", 90.0, 4)])
def test_a_rate_below_the_expected_one_counts_only_if_it_shows_again(
    expected: str, rate: float, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("FAKE_PERFTEST", f"busy {notes}")
    hosts = Hosts(2)
    ends = [hosts.environment(rank, {0}, SPARKD_MEASURE_EXPECTED_RDMA=expected) for rank in (0, 1)]
    results = hosts.run(*ends)
    assert errors(results) == {}
    assert (results[0][DEVICES[0]].gbps, results[1][DEVICES[2]].gbps) == (rate, rate)
    assert len(notes.read_text().split()) == runs


@pytest.mark.usefixtures("perftest")
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("no-device", "ib_write_bw ended with status 1; its last words: Unable to find the Infiniband/RoCE device"),
        ("mute-server", "ib_write_bw ended with status"),
        ("dies", "ib_write_bw ended with status 1; its last words: Completion with error at client"),
        ("megabytes", "ib_write_bw printed rates in MB/sec, expected Gb/sec"),
    ],
)
def test_both_ends_know_why_there_is_no_rate(mode: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PERFTEST", mode)
    hosts = Hosts(2)
    results = hosts.run(hosts.environment(0), hosts.environment(1))
    told = errors(results)
    assert len(told) == 4
    assert all(why in error for error in told.values()), told
    assert all(result.gbps is None for found in results.values() for result in found.values())
