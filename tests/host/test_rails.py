"""Results of measuring on disk, and the unit that leaves them: read, forgotten, and never trusted blindly."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.measure.results import Result, Results
from sparkd.core.model import RankUnit
from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts
from sparkd.host.rails import UnitRails
from sparkd.ports import DoorError
from tests.reconcile.running import in_loop


class Systemd:
    """Units of two templates; like systemd it lists only what is loaded."""

    def __init__(self) -> None:
        self.loaded: dict[str, dict[int, RankUnit]] = {"sparkd-rank": {}, "sparkd-measure": {}}

    async def observe(self, template: str = "sparkd-rank") -> tuple[RankUnit, ...]:
        return tuple(self.loaded[template].values())

    async def start(self, epoch: int, template: str = "sparkd-rank") -> None:
        self.loaded[template][epoch] = RankUnit(epoch, "activating", job="start")

    async def stop(self, epoch: int, template: str = "sparkd-rank") -> None:
        self.loaded[template].pop(epoch, None)

    def say(self, epoch: int, **changed: Any) -> None:
        self.loaded["sparkd-measure"][epoch] = RankUnit(epoch, **{"active": "active", **changed})


class Bench:
    def __init__(self, tmp_path: Path) -> None:
        self.run, self.results = tmp_path / "run", tmp_path / "results"
        self.run.mkdir()
        self.results.mkdir()
        self.systemd = Systemd()

    def door(self) -> UnitRails:
        return UnitRails(self.systemd, self.run, self.results)

    async def facts(self) -> RailFacts:
        door = self.door()
        try:
            return await door.observe()
        finally:
            door.close()

    async def leave(self, *results: Result, boot_id: str = "b0") -> None:
        written = Results(self.results, boot_id)
        for result in results:
            written.add(result)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


GOOD = Result("enp1s0f0np0", "spark2", "enp1s0f1np1", 98.1, "rdma", True, carrier_changes=3)
BAD = Result("enp1s0f1np1", "spark3", "enp1s0f0np0", error="spark3 did not come", carrier_changes=1)


@in_loop
async def test_without_results_nothing_was_measured(bench: Bench) -> None:
    assert await bench.facts() == RailFacts()


@in_loop
async def test_what_the_unit_leaves_is_read_also_by_the_next_daemon(bench: Bench) -> None:
    await bench.leave(GOOD, BAD)
    for _ in range(2):
        one, other = (await bench.facts()).measured
        assert one == RailFact("enp1s0f0np0", "spark2", "enp1s0f1np1", 98.1, "rdma", True, "", "b0", 3, one.at)
        assert (other.error, other.gbps, other.mtu_passed) == ("spark3 did not come", None, None)
    assert (bench.results / "rails.json").stat().st_mode & 0o777 == 0o644


@in_loop
async def test_a_later_run_keeps_what_it_does_not_measure_again(bench: Bench) -> None:
    await bench.leave(GOOD, BAD)
    await bench.leave(Result("enp1s0f1np1", "spark3", "enp1s0f0np0", 97.0, "rdma", True))
    assert {fact.device: fact.gbps for fact in (await bench.facts()).measured} == {
        "enp1s0f0np0": 98.1,
        "enp1s0f1np1": 97.0,
    }
    await bench.leave(BAD, boot_id="b1")
    assert [fact.device for fact in (await bench.facts()).measured] == ["enp1s0f1np1"], "of this boot only"


@in_loop
async def test_what_is_forgotten_counts_no_more_and_what_follows_does(bench: Bench) -> None:
    await bench.leave(GOOD)
    door = bench.door()
    await door.forget()
    assert (await door.observe()).measured == ()
    door.close()
    assert (await bench.facts()).measured == (), "after a restart too"
    while time.monotonic() <= float((bench.run / "rails-forgotten").read_text()):
        await asyncio.sleep(0.001)
    assert (await bench.facts()).measured == ()
    await bench.leave(GOOD)
    for _ in range(2):
        assert len((await bench.facts()).measured) == 1
    assert list(bench.run.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 60000,
        '{"version": 2, "rails": []}',
        '{"version": 1, "rails": {}}',
        '{"version": 1, "rails": [{"device": "enp1s0f0np0"}]}',
        '{"version": 1, "rails": [{"device": "d", "node": "n", "remote": "r", "gbps": "98", "at": 1.0}]}',
        json.dumps({"version": 1, "rails": [{"device": "d" * 70000, "node": "n", "remote": "r", "at": 1.0}]}),
    ],
)
@in_loop
async def test_results_that_are_damaged_are_measured_anew(bench: Bench, text: str) -> None:
    (bench.results / "rails.json").write_text(text)
    assert (await bench.facts()).measured == ()
    await bench.leave(GOOD)
    assert len((await bench.facts()).measured) == 1


@in_loop
async def test_a_pipe_in_place_of_the_results_is_said_and_blocks_nobody(bench: Bench) -> None:
    """The directory belongs to the unit's user."""
    await bench.leave(GOOD)
    (bench.results / "rails.json").unlink()
    os.mkfifo(bench.results / "rails.json")
    door = bench.door()
    with pytest.raises(DoorError, match=r"rails\.json: not a regular file"):
        await door.observe()
    (bench.results / "rails.json").unlink()
    assert (await door.observe()).measured == ()
    door.close()


@in_loop
async def test_the_unit_gets_its_environment_and_loses_it_when_it_has_ended(bench: Bench) -> None:
    door = bench.door()
    await door.start(7, {"SPARKD_MEASURE_KEY": "ab"})
    file = bench.run / "measure-7.env"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("SPARKD_MEASURE_KEY=ab\n", 0o640)
    assert (await door.observe()).running == MeasureUnit(7)
    bench.systemd.say(7, text="measuring enp1s0f0np0 to spark2")
    assert (await door.observe()).running == MeasureUnit(7, "measuring enp1s0f0np0 to spark2")
    bench.systemd.say(7, active="deactivating")
    assert (await door.observe()).running == MeasureUnit(7, "", stopping=True)
    assert file.exists()
    await door.stop(7)
    assert (await door.observe()).running is None
    assert not file.exists(), "it holds a key"
    door.close()


@in_loop
async def test_a_rank_is_no_measuring_unit(bench: Bench) -> None:
    await bench.systemd.start(7)
    assert (await bench.facts()).running is None


@in_loop
async def test_what_cannot_be_read_is_unknown(bench: Bench) -> None:
    (bench.results / "rails.json").mkdir()
    with pytest.raises(DoorError, match="Is a directory"):
        await bench.facts()


def test_an_environment_that_systemd_would_read_otherwise_is_refused(bench: Bench) -> None:
    async def start(environment: Mapping[str, str]) -> None:
        door = bench.door()
        try:
            await door.start(7, environment)
        finally:
            door.close()

    with pytest.raises(ValueError, match="SPARKD_NODE"):
        asyncio.run(start({"SPARKD_NODE": "spark 1"}))
    assert bench.systemd.loaded["sparkd-measure"] == {}
