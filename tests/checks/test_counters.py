"""What changes over time under a serving ring: traffic of each rail, PCIe links, firmware, functions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.core import checks
from sparkd.core.actions import Record, StartRank
from sparkd.core.checks.pci import mark
from sparkd.core.decide import decide
from sparkd.core.hardware import HardwareFacts, RailFact
from sparkd.host.counters import RailCounters
from tests.checks.spark import FUNCTIONS, NODE, Spark
from tests.core.builders import attempt, snapshot
from tests.core.test_decide import serving

HCAS = tuple(hca for _, hca in FUNCTIONS.values())
SLOT = "sys/bus/pci/devices/0002:01:00.1"


def traffic(**sent_mb: float) -> checks.CheckResult:
    rails = tuple(RailFact(hca, int(mb * 1e6), 60.0) for hca, mb in sent_mb.items())
    return _result(checks.Seen(NODE, HardwareFacts(rails=rails), hcas=HCAS), "rail-idle")


def _result(seen: checks.Seen, id_: str) -> checks.CheckResult:
    return next(result for result in checks.run(seen) if result.id == id_)


def test_rail_idle_while_others_carry_traffic_is_told_and_blocks_nothing() -> None:
    """Field report rail-idle."""
    result = traffic(rocep1s0f0=2400, rocep1s0f1=2300, roceP2p1s0f0=0.01, roceP2p1s0f1=2350)
    (finding,) = result.findings
    assert (finding.id, finding.node, finding.severity, finding.subject) == ("rail-idle", NODE, "warn", "roceP2p1s0f0")
    assert finding.observed == "sent 0.0 MB in 60 s, while rocep1s0f0 sent 2400 MB"


def test_rails_that_share_the_work_unevenly_are_fine() -> None:
    assert traffic(rocep1s0f0=2400, rocep1s0f1=40, roceP2p1s0f0=2400, roceP2p1s0f1=900).verdict == "pass"


def test_a_ring_that_is_asked_nothing_blames_no_rail() -> None:
    assert traffic(rocep1s0f0=3, rocep1s0f1=0, roceP2p1s0f0=3, roceP2p1s0f1=3).verdict == "not-applicable"


def test_a_port_that_the_plan_does_not_use_is_no_rail() -> None:
    rails = (RailFact("rocep1s0f0", 10**10, 60.0), RailFact("rocep1s0f1", 0, 60.0))
    seen = checks.Seen(NODE, HardwareFacts(rails=rails), hcas=("rocep1s0f0", "roceP2p1s0f0"))
    assert _result(seen, "rail-idle").verdict == "pass"


class Meter:
    """Counters of a recorded tree, and a clock."""

    def __init__(self, spark: Spark) -> None:
        self.spark = spark
        self.now = 0.0
        self.door = RailCounters(spark.root, clock=lambda: self.now)

    def at(self, now: float, words: int, serving: int = 7) -> tuple[RailFact, ...]:
        self.now = now + 300
        self.spark.put(f"sys/class/infiniband/{HCAS[0]}/ports/1/counters/port_xmit_data", f"{words}\n")
        return asyncio.run(self.door.observe(serving))


@pytest.fixture
def meter(tmp_path: Path) -> Meter:
    return Meter(Spark(tmp_path))


def test_counts_are_over_whole_windows_of_one_epoch_that_serves(meter: Meter) -> None:
    for before in (70, 140, 210):
        assert meter.at(before - 300, 10**6 + before, serving=0) == ()
    assert meter.at(100, 10**9) == ()  # it has only just begun to serve
    assert meter.at(130, 10**9 + 5) == ()
    assert meter.at(160, 10**9 + 50) == (RailFact(HCAS[0], 200, 60.0),)
    assert meter.at(170, 10**9 + 99) == (RailFact(HCAS[0], 200, 60.0),)
    assert meter.at(225, 10**9 + 60) == (RailFact(HCAS[0], 40, 65.0),)
    assert meter.at(290, 10**9 + 99, serving=8) == ()
    assert meter.at(300, 10**9 + 99, serving=0) == ()
    meter.door.close()


def test_a_counter_that_went_back_is_no_idle_rail(meter: Meter) -> None:
    meter.at(0, 10**9)
    assert meter.at(60, 5) == ()
    assert meter.at(120, 6) == (RailFact(HCAS[0], 4, 60.0),)
    meter.door.close()


def at_start(spark: Spark) -> dict[str, str]:
    facts = spark.facts().pci
    assert facts is not None
    return {function.address: mark(function) for function in facts.functions}


@pytest.mark.parametrize(
    ("file", "text", "id_", "observed"),
    [
        ("current_link_width", "2\n", "pcie-changed", "32 GT/s x2 now"),
        ("current_link_speed", "8.0 GT/s PCIe\n", "pcie-changed", "8 GT/s x4 now"),
    ],
)
def test_a_link_that_gets_narrower_while_a_rank_runs_is_told(
    tmp_path: Path, file: str, text: str, id_: str, observed: str
) -> None:
    spark = Spark(tmp_path)
    before = at_start(spark)
    spark.put(f"{SLOT}/{file}", text)
    seen = replace(spark.seen(ranks_alive=True), pci_before=before)
    (finding,) = _result(seen, "pcie-changed").findings
    assert (finding.id, finding.severity, finding.observed) == (id_, "warn", observed)
    assert finding.subject == "enP2p1s0f1np1 (0002:01:00.1)"
    assert finding.expected == "the link at the start: 32 GT/s x4"
    assert _result(replace(seen, ranks_alive=False), "pcie-changed").verdict == "not-applicable"


def test_firmware_that_changes_under_a_rank_is_told_and_a_link_that_does_not_tell_is_not(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    before = at_start(spark)
    assert before["0002:01:00.1"] == "32 GT/s x4, firmware 28.45.4028"
    spark.put("sys/class/infiniband/roceP2p1s0f1/fw_ver", "28.47.1026\n")
    spark.put(f"{SLOT}/current_link_width", "63\n")
    result = _result(replace(spark.seen(ranks_alive=True), pci_before=before), "pcie-changed")
    assert [(f.id, f.observed, f.expected) for f in result.findings] == [
        ("firmware-changed", "firmware 28.47.1026 now", "the firmware at the start: firmware 28.45.4028")
    ]


def test_the_functions_at_the_start_are_kept_with_the_attempt(tmp_path: Path) -> None:
    s = snapshot("spark2", hardware=HardwareFacts(pci=Spark(tmp_path).facts().pci))
    started = next(a.attempt for a in decide(s).actions if isinstance(a, StartRank))
    assert set(started.pci) == set(FUNCTIONS)


def test_cx7_functions_missing_by_pci_function_under_a_group_is_an_incident(tmp_path: Path) -> None:
    """Field report cx7-functions-missing, while serving: its network device may still be shown for a while."""
    spark = Spark(tmp_path)
    own = attempt("spark1", formed=True, ready=True, pci=at_start(spark))
    s = replace(serving("spark1"), attempt=own, hardware=spark.facts())
    assert not any(isinstance(action, Record) for action in decide(s).actions)
    spark.remove(SLOT)
    record = decide(replace(s, hardware=spark.facts())).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident == "cx7-functions-missing: 0002:01:00.1 no longer on the PCI bus"
    silent = replace(s.hardware or HardwareFacts(), pci=None, unknown={"pci": "did not answer within 2 s"})
    assert not any(isinstance(action, Record) for action in decide(replace(s, hardware=silent)).actions)


def test_pcie_fatal_refuses_until_the_node_has_rebooted(tmp_path: Path) -> None:
    """Field report pcie-fatal, before a start. The kernel counts from the boot on."""
    spark = Spark(tmp_path)
    assert _result(spark.seen(), "pcie-fatal").verdict == "pass"
    spark.fatal_errors("0002:01:00.1", 2)
    (finding,) = _result(spark.seen(), "pcie-fatal").findings
    assert (finding.severity, finding.subject) == ("refuse", "enP2p1s0f1np1 (0002:01:00.1)")
    assert finding.observed == "2 fatal PCIe errors since the boot"
    assert finding.fix.startswith("reboot the node")


def test_a_kernel_that_counts_no_errors_is_no_fault(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    for address in FUNCTIONS:
        spark.remove(f"sys/bus/pci/devices/{address}/aer_dev_fatal")
    assert _result(spark.seen(), "pcie-fatal").verdict == "not-applicable"


def test_pcie_fatal_under_a_group_is_an_incident(tmp_path: Path) -> None:
    """Field report pcie-fatal, while serving."""
    spark = Spark(tmp_path)
    own = attempt("spark1", formed=True, ready=True, pci=at_start(spark))
    spark.fatal_errors("0000:01:00.0", 1)
    record = decide(replace(serving("spark1"), attempt=own, hardware=spark.facts())).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident == "pcie-fatal: 0000:01:00.0 has reported 1 fatal PCIe errors"
