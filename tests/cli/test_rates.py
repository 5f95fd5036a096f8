"""The measured rates of rails: in the status, at the ports, and forgotten."""

from __future__ import annotations

import json
import re

import pytest

from ring_mesh import Socket
from sparkd.cli import cables, rates
from sparkd.cli.fabric import table
from sparkd.cli.text import Style
from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing, rail

A = (
    rail("spark1.enp1s0f0np0", "spark2.enp1s0f1np1", 98.14),
    rail("spark1.enP2p1s0f0np0", "spark2.enP2p1s0f1np1", 97.9),
)
C = (
    rail("spark3.enp1s0f0np0", "spark1.enp1s0f1np1", 13.07),
    rail("spark3.enP2p1s0f0np0", "spark1.enP2p1s0f1np1", None, "", False),
)


def test_the_status_has_both_rails_of_each_cable() -> None:
    ring = FakeRing(phase="ready", rails=[*A, *C])
    lines = [re.sub(r"\s+", " ", line.strip()) for line in cables.block(ring.look(), Style(100))]
    assert lines[1:] == [
        "spark1 ok ==== ok spark2 98.1 + 97.9 Gb/s",
        "spark2 ok ==== ok spark3",
        "spark3 ok ==== ok spark1 13.1 + ? Gb/s",
    ]
    assert max(map(len, cables.block(ring.look(), Style(80)))) <= 80


def test_a_rate_over_tcp_says_so() -> None:
    slow = rail("spark2.enp1s0f0np0", "spark3.enp1s0f1np1", 5.4321, "tcp")
    ring = FakeRing(rails=[slow]).look()
    assert (
        rates.of_cable(ring, Socket("spark2", 0)) == rates.of_cable(ring, Socket("spark3", 1)) == "5.43 + ? Gb/s by TCP"
    )
    assert rates.of_cable(ring, Socket("spark1", 0)) == ""


@pytest.mark.parametrize(("gbps", "told"), [(98.02, "98.0"), (3.0, "3.00"), (0.8334, "0.833"), (196.3, "196")])
def test_a_rate_has_three_digits(gbps: float, told: str) -> None:
    ring = FakeRing(rails=[rail("spark2.enp1s0f0np0", "spark3.enp1s0f1np1", gbps)]).look()
    assert rates.of_cable(ring, Socket("spark2", 0)) == f"{told} + ? Gb/s"
    assert rates.of_device(ring, "spark2", "enp1s0f0np0") == f"{told} (rdma)"


def test_the_ports_have_the_rate_from_either_end() -> None:
    ring = FakeRing(phase="ready", rails=[*A, *C])
    lines = table(ring.look(), ring.host(), Style(120)).splitlines()
    assert re.split(r"\s{2,}", lines[1].strip())[5:7] == ["state", "Gb/s"]
    assert [re.split(r"\s{2,}", line.strip())[6] for line in lines[2:]] == [
        "98.1 (rdma)",
        "97.9 (rdma)",
        "13.1 (rdma)",
        "large packets lost",
    ]
    others = FakeRing(phase="ready", rails=[rail("spark2.enp1s0f0np0", "spark3.enp1s0f1np1")])
    lines = table(others.look(), others.host(), Style(120)).splitlines()
    assert [re.split(r"\s{2,}", line.strip())[6] for line in lines[2:]] == ["-"] * 4


def test_measure_forgets(ring: FakeRing, ctl: Ctl) -> None:
    ring.rails = [*A, *C]
    said = "spark1: what was measured of its rails is forgotten; the next start measures them again\n"
    assert ctl("fabric", "measure") == (0, said, "")
    assert json.loads(ctl("fabric", "show", "--json").out)["rails"] == []


@pytest.mark.parametrize("phase", ["starting", "ready"])
def test_measure_is_refused_while_a_rank_runs(ring: FakeRing, ctl: Ctl, phase: str) -> None:
    ring.phase, ring.rails = phase, [*A]
    text = "sparkctl: a rank runs here, and rails are measured only while none does\nhint: sparkctl down --wait\n"
    assert ctl("fabric", "measure") == (3, "", text)
    assert ring.rails == [*A]
