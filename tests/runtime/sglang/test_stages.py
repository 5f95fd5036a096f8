"""Stages out of SGLang's log: a whole boot replayed, and what must not be taken for one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.notify import Stage
from runtime.sglang.lines import Lines
from runtime.sglang.stages import Landmark, Stages, Step, is_bar, read
from runtime.sglang.transport import Connections

BOOT = Path(__file__).with_name("replay-gpu-boot.log")
STAMP = "[2026-11-20 08:00:29 TP0] "


def replay(data: bytes) -> tuple[list[Step], Stages]:
    stages, lines = Stages(), Lines(is_bar)
    steps = [step for line in lines.feed(data) if (step := stages.feed(line.text)) is not None]
    return steps, stages


def test_a_boot_on_other_hardware_drives_the_stages() -> None:
    assert BOOT.read_text().startswith("# Composed by hand")
    steps, stages = replay(BOOT.read_bytes())
    seen: list[Stage] = []
    for step in steps:
        if not seen or seen[-1] is not step.stage:
            seen.append(step.stage)
    assert seen == [Stage.RENDEZVOUS, Stage.FORMED, Stage.LOAD, Stage.CAPTURE, Stage.WARMUP]
    loads = [step.count for step in steps if step.stage is Stage.LOAD and step.count]
    assert loads == [(number, 48) for number in range(49)]
    assert [step.count for step in steps if step.stage is Stage.CAPTURE and step.count] == [(n, 6) for n in range(7)]
    assert Step(Stage.LOAD, "KV cache for 750000 tokens") in steps
    assert stages.landmarks == {Landmark.SERVING}
    assert stages.now.stage is Stage.WARMUP


def test_the_connections_of_that_boot_are_counted() -> None:
    connections = Connections(0, 3)
    for line in BOOT.read_text().splitlines():
        connections.feed(line)
    assert connections.text("ib") == "IB, 64 connections"
    assert connections.ways == {1: {"NET/IB": 32}, 2: {"NET/IB": 32}}


def test_cut_anywhere_a_boot_is_in_a_stage_that_it_had_reached() -> None:
    data = BOOT.read_bytes()
    order = list(Stage)
    before = 0
    for end in range(0, len(data), 997):
        now = order.index(replay(data[:end])[1].now.stage)
        assert now >= before
        before = now


def test_a_worker_waits_for_work_when_it_says_so() -> None:
    stages = Stages()
    stages.feed("[2026-11-20 08:09:09] Dummy health check server started in background thread at 127.0.0.1:8888")
    assert stages.landmarks == {Landmark.WAITING}


def test_a_draft_model_that_loads_after_the_graphs_does_not_take_the_stage_back() -> None:
    stages = Stages()
    stages.feed(STAMP + "Capture target decode CUDA graph begin. backend=full, ")
    assert stages.feed(STAMP + "Load weight begin. avail mem=9.00 GB") is None
    assert stages.now.stage is Stage.CAPTURE


@pytest.mark.parametrize(
    "line",
    [
        "Init parallel begin.",
        "2026-11-20 08:00:29 INFO Init parallel begin.",
        STAMP + "init parallel begin.",
        STAMP + "Receive: text='The server is fired up and ready to roll!'",
        STAMP + "Loading safetensors checkpoint shards:  50% Completed | 24/48 [",
        "Fetching 48 files:  50%|#####     | 24/48 [00:10<00:10,  2.4it/s]",
        "Loading safetensors checkpoint shards:  50% Completed | 49/48 [00:01<00:01]",
        "Loading safetensors checkpoint shards:   0% Completed | 0/0 [00:01<00:01]",
        STAMP + "Capture cuda graph failed: out of memory",
        "INFO 11-20 08:00:29 [gpu_worker.py:298] Available KV cache memory: 2.63 GiB",
    ],
)
def test_what_only_looks_like_a_stage_is_none(line: str) -> None:
    assert read(line) is None


@given(st.text(max_size=200))
def test_an_unknown_log_leaves_the_stage_where_it_is(text: str) -> None:
    stages = Stages()
    assert stages.feed(text) is None
    assert stages.now.stage is Stage.INIT


@pytest.mark.parametrize(
    ("bar", "count"),
    [
        ("Multi-thread loading shards:  50% Completed | 24/48 [03:36<03:36,  9.02s/it]", (24, 48)),
        ("Loading pt checkpoint shards: 100% Completed | 2/2 [00:01<00:00,  1.5it/s]", (2, 2)),
        ("Loading safetensors using Fastsafetensor loader:  50%|#####     | 1/2 [00:01<00:01, 1.0s/it]", (1, 2)),
    ],
)
def test_the_bars_of_other_loaders_count_as_well(bar: str, count: tuple[int, int]) -> None:
    step = read(bar)
    assert step is not None
    assert (step.stage, step.count) == (Stage.LOAD, count)
