"""sparkctl hold and resume on three hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab


@pytest.fixture
def ring(lab: Lab) -> Iterator[Ring]:
    ring = Ring(lab)
    yield ring
    assert ring.ask("spark1", "POST", "/v1/ring/resume").status == 202


def test_under_hold_a_death_is_shown_and_nothing_follows_until_resume(ring: Ring) -> None:
    before = ring.fresh()
    ring.lab.exec("spark2", "sparkctl", "hold", "--reason", "a new cable")
    for node in NODES:
        held = ring.until(node, lambda seen: seen["maintenance"] is not None)
        assert held["maintenance"]["by"].startswith("root (uid 0) on spark2")
        assert held["maintenance"]["reason"] == "a new cable"
        assert (held["phase"], held["epoch"]) == ("ready", before["epoch"])
        assert "a new cable" in ring.lab.exec(node, "sparkctl", "status").stdout
    answer = ring.ask("spark3", "POST", "/v1/ring/stop")
    assert (answer.status, answer.body["code"]) == (409, "maintenance")
    unit = f"sparkd-rank@{before['epoch']}.service"
    began = time.time()
    ring.lab.exec("spark3", "systemctl", "kill", "-s", "KILL", unit)
    ring.phase("maintenance", seconds=20)
    # The daemon of a host that has not been told by anybody reads of the hold on its disk.
    ring.lab.exec("spark1", "systemctl", "restart", "sparkd")
    time.sleep(8)
    shown = ring.phase("maintenance")
    assert "rank 2 (spark3): it was killed by SIGKILL" in shown["waits"]
    assert shown["epoch"] == before["epoch"]
    assert all(set(ring.units(node)) <= {unit} for node in NODES)
    for node in NODES:
        assert not [
            line for at, line in ring.journal(node, "sparkd.service") if at > began and "stopping spark" in line
        ]
    ring.lab.exec("spark3", "sparkctl", "resume")
    after = ring.phase("ready", above=before["epoch"])
    assert (after["epoch"], after["maintenance"]) == (before["epoch"] + 1, None)
