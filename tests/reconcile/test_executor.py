"""Each action, in the order that a crash in between forgives, and with what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sparkd.core.actions import (
    Action,
    AddAddress,
    Adopt,
    ApplyFabric,
    ForgetRank,
    Measure,
    Record,
    SetUp,
    StartRank,
    StopRank,
)
from sparkd.core.model import Attempt, Intent
from sparkd.ports import DoorError
from sparkd.reconcile.events import EventLog
from sparkd.reconcile.executor import Executor, State
from tests.core.builders import NOW
from tests.fakes import FakeClock, FakeDisk, FakeLinks, FakeRails, FakeRankFiles, FakeStore, FakeUnits
from tests.reconcile.running import in_loop, turns

ATTEMPT = Attempt(7, "boot-spark1", NOW)
DEVICE = "enp1s0f0np0"


class WatchedUnits(FakeUnits):
    """Notes what lay on the disk and in /run when systemd was asked to start."""

    def __init__(self, disk: FakeDisk, files: FakeRankFiles) -> None:
        super().__init__()
        self._disk = disk
        self._files = files
        self.found: tuple[Attempt | None, dict[str, str] | None] | None = None

    async def start(self, epoch: int) -> None:
        self.found = self._disk.attempt, self._files.files.get(epoch)
        await super().start(epoch)


class Bench:
    def __init__(self, attempt: Attempt | None = None) -> None:
        self.clock = FakeClock(NOW)
        self.disk = FakeDisk()
        self.disk.attempt = attempt
        self.files = FakeRankFiles()
        self.units = WatchedUnits(self.disk, self.files)
        self.links = FakeLinks(DEVICE)
        self.rails = FakeRails()
        self.events = EventLog("spark1", self.clock)
        self.state = State(Intent(), attempt)
        self.executor = Executor(
            self.state,
            units=self.units,
            links=self.links,
            store=FakeStore(self.disk),
            files=self.files,
            clock=self.clock,
            events=self.events,
            environment=self.environment,
            gids=self.gids,
            rails=self.rails,
            rail_environment=self.rail_environment,
        )

    @staticmethod
    async def gids(hcas: tuple[str, ...]) -> Mapping[str, str]:
        if "rocep1s0f1" in hcas:
            raise DoorError("gid-missing: only link-local (fe80) GIDs in rocep1s0f1's table")
        return {hca: f"{index} 10.77.0.{index}" for index, hca in enumerate(hcas)}

    @staticmethod
    async def environment(epoch: int, hcas: tuple[str, ...]) -> Mapping[str, str]:
        return {"SPARKD_EPOCH": str(epoch), "NCCL_IB_HCA": ",".join(hcas)}

    @staticmethod
    async def rail_environment(measure: Measure) -> Mapping[str, str]:
        return {"SPARKD_EPOCH": str(measure.epoch), "DEVICES": ",".join(measure.devices)}

    async def do(self, action: Action) -> str:
        return await self.executor.do(action)

    async def running(self) -> None:
        """The rank of epoch 7 runs."""
        await self.do(StartRank(ATTEMPT, ()))
        await turns()
        assert [unit.active for unit in self.units.loaded()] == ["activating"]

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event.kind, event.text) for event in self.events.since(0, 500).events]


@in_loop
async def test_an_intent_is_on_the_disk_before_it_is_in_force() -> None:
    bench = Bench()
    intent = Intent(7, "up", "operator", "start asked for", NOW)
    assert await bench.do(Adopt(intent)) == ""
    assert bench.disk.intent == bench.state.intent == intent
    assert bench.told == [("intent", "epoch 7: up, by operator: start asked for")]


@in_loop
async def test_an_intent_that_cannot_be_saved_is_not_in_force() -> None:
    bench = Bench()
    bench.disk.full = True
    with pytest.raises(DoorError, match="No space left"):
        await bench.do(Adopt(Intent(7, "up")))
    assert bench.state.intent == Intent()
    assert bench.told == []


@in_loop
async def test_a_held_intent_says_so() -> None:
    bench = Bench()
    await bench.do(Adopt(Intent(9, "down", "recovery", "gave up", NOW, held=True)))
    assert bench.told == [("intent", "epoch 9: down, held, by recovery: gave up")]


@in_loop
async def test_a_start_finds_the_attempt_on_the_disk_and_the_environment_written() -> None:
    bench = Bench()
    assert await bench.do(StartRank(ATTEMPT, ("rocep1s0f0", "roceP2p1s0f0"))) == "units"
    attempt = replace(ATTEMPT, gids={"rocep1s0f0": "0 10.77.0.0", "roceP2p1s0f0": "1 10.77.0.1"})
    assert bench.units.found == (attempt, {"SPARKD_EPOCH": "7", "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0"})
    assert bench.state.attempt == attempt
    assert bench.told == [("action", "starting sparkd-rank@7.service")]


@in_loop
async def test_a_start_without_a_gid_is_an_attempt_that_ended() -> None:
    """Field report gid-missing."""
    bench = Bench()
    with pytest.raises(DoorError, match="gid-missing: only link-local"):
        await bench.do(StartRank(ATTEMPT, ("rocep1s0f1",)))
    assert (bench.units.started, bench.files.files) == ([], {})
    assert bench.disk.attempt is not None
    assert bench.disk.attempt.ended_at is not None
    assert bench.told[-1][1].startswith("sparkd-rank@7.service has ended: it could not be started: gid-missing")


@in_loop
async def test_a_start_whose_attempt_cannot_be_saved_does_not_happen() -> None:
    bench = Bench()
    bench.disk.full = True
    with pytest.raises(DoorError, match="No space left"):
        await bench.do(StartRank(ATTEMPT, ()))
    assert (bench.units.started, bench.files.files, bench.state.attempt) == ([], {}, None)


@in_loop
async def test_a_start_that_systemd_refuses_is_an_attempt_that_ended() -> None:
    bench = Bench()
    bench.units.installed = False
    bench.clock.advance(3)
    with pytest.raises(DoorError, match=r"sparkd-rank@7.service could not be started: .* not found"):
        await bench.do(StartRank(ATTEMPT, ()))
    ended = bench.disk.attempt
    assert ended is not None
    assert bench.state.attempt == ended
    assert (ended.ended_at, ended.signature, ended.stopped) == (NOW + 3, "exit:not-started", "")
    assert ended.sentence == (
        "it could not be started: cannot start sparkd-rank@7.service: Unit sparkd-rank@7.service not found"
    )
    assert bench.files.files == {}


@in_loop
async def test_a_start_without_an_environment_file_is_an_attempt_that_ended() -> None:
    bench = Bench()
    bench.files.broken = "/run/sparkd is full"
    with pytest.raises(DoorError):
        await bench.do(StartRank(ATTEMPT, ()))
    assert bench.units.started == []
    assert bench.disk.attempt is not None
    assert bench.disk.attempt.sentence == "it could not be started: /run/sparkd is full"


@in_loop
async def test_an_environment_that_systemd_would_misread_is_an_attempt_that_ended() -> None:
    bench = Bench()
    with pytest.raises(DoorError, match="NCCL_IB_HCA"):
        await bench.do(StartRank(ATTEMPT, ("a 'b'",)))
    assert bench.units.started == []
    assert bench.disk.attempt is not None
    assert bench.disk.attempt.signature == "exit:not-started"


@in_loop
async def test_progress_is_saved_and_is_no_news() -> None:
    bench = Bench()
    await bench.running()
    before = bench.told
    formed = replace(ATTEMPT, formed=True)
    assert await bench.do(Record(formed)) == ""
    assert bench.disk.attempt == bench.state.attempt == formed
    assert bench.told == before
    assert 7 in bench.files.files


@in_loop
async def test_an_end_is_told_once_and_takes_the_environment_file_along() -> None:
    bench = Bench()
    await bench.running()
    ended = replace(ATTEMPT, ended_at=NOW, signature="signal:9", sentence="it was killed by SIGKILL")
    for _ in range(2):
        await bench.do(Record(ended))
    assert bench.disk.attempt == ended
    assert bench.files.files == {}
    assert bench.told[-1] == ("action", "sparkd-rank@7.service has ended: it was killed by SIGKILL")
    assert len(bench.told) == 2


@in_loop
async def test_a_record_that_cannot_be_saved_changes_nothing() -> None:
    bench = Bench()
    await bench.running()
    bench.disk.full = True
    with pytest.raises(DoorError):
        await bench.do(Record(replace(ATTEMPT, ended_at=NOW)))
    assert bench.state.attempt == ATTEMPT


@in_loop
async def test_a_file_that_stays_does_not_keep_an_end_from_being_recorded() -> None:
    bench = Bench()
    await bench.running()
    bench.files.broken = "rank files did not answer within 2 s"
    ended = replace(ATTEMPT, ended_at=NOW, sentence="it was killed by SIGKILL")
    await bench.do(Record(ended))
    assert bench.disk.attempt == bench.state.attempt == ended
    assert bench.told[1:] == [
        ("error", "the environment file of epoch 7 stays: rank files did not answer within 2 s"),
        ("action", "sparkd-rank@7.service has ended: it was killed by SIGKILL"),
    ]


@in_loop
async def test_fabric_changes_reach_the_kernel_in_order_and_are_named() -> None:
    bench = Bench()
    changes = (SetUp(DEVICE), AddAddress(DEVICE, "10.77.0.1/24", f"{DEVICE}:s"))
    assert await bench.do(ApplyFabric(changes)) == "network"
    assert bench.links.applied == list(changes)
    assert bench.told == [("action", f"fabric: {DEVICE} up, +10.77.0.1/24 on {DEVICE}")]


@in_loop
async def test_a_stop_says_why() -> None:
    bench = Bench()
    await bench.running()
    assert await bench.do(StopRank(7, "stop asked for")) == "units"
    await turns()
    assert bench.units.loaded() == ()
    assert bench.told[-1] == ("action", "stopping sparkd-rank@7.service: stop asked for")


@in_loop
async def test_a_stop_that_systemd_does_not_answer_is_an_error() -> None:
    bench = Bench()
    await bench.running()
    bench.units.broken = "systemd did not answer within 5 s"
    with pytest.raises(DoorError, match="did not answer"):
        await bench.do(StopRank(7, "stop asked for"))
    assert [unit.active for unit in bench.units.loaded()] == ["activating"]


@in_loop
async def test_a_forgotten_rank_leaves_no_file() -> None:
    bench = Bench()
    await bench.running()
    bench.units.die(7, status=1)
    assert [unit.active for unit in bench.units.loaded()] == ["failed"]
    assert await bench.do(ForgetRank(7)) == "units"
    assert bench.units.loaded() == ()
    assert bench.files.files == {}
