"""The configured SGLang as the daemon sees it: what a look finds, when it looks again, and what a rank is given."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparkd.config import Engine, Listen, Paths, Settings
from sparkd.config.settings import Keeping
from sparkd.core import checks
from sparkd.core.doctor import shared
from sparkd.core.enginefacts import EngineFacts
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import Intent
from sparkd.core.snapshot import Policy
from sparkd.engine import CONFIG, Sglang
from sparkd.environments import StartGids, environment_of_ranks
from sparkd.host.engine import EngineFiles
from sparkd.host.gids import SysfsGids
from sparkd.host.hardware import Hardware
from sparkd.host.rankfiles import render
from sparkd.ports import DoorError
from sparkd.reconcile.executor import State
from tests.checks.spark import Spark
from tests.core.builders import CLUSTER
from tests.engine.site import PROFILE, PYTHON, Site
from tests.reconcile.running import in_loop, until

OF_ONE_HOST = ("memory", "gids", "owners", "rank", "supervisors", "rails", "engine")
CHECKS = ("profile-bad", "engine-missing", "engine-version", "engine-options")


class CountedFiles(EngineFiles):
    """`children`: how often SGLang's options were read. They are read while `go` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.children = 0
        self.go = threading.Event()
        self.go.set()

    def options(self, *question: Any) -> dict[str, Any]:
        self.children += 1
        assert self.go.wait(10)
        return super().options(*question)


class Bench:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.files = CountedFiles(site.root)
        paths = Paths.beside(site.etc / "sparkd.toml", {})
        engine = Engine("sglang", profile="tiny", python=PYTHON)
        self.settings = Settings("spark1", CLUSTER, Policy(), 5.0, engine, Listen(), paths, b"", Keeping())
        self.engine = Sglang(self.settings, self.files, site.share)

    async def verdicts(self) -> dict[str, str]:
        facts = await self.engine.observe()
        results = checks.run(checks.Seen("spark1", HardwareFacts(engine=facts)))
        return {result.id: result.verdict for result in results if result.id in CHECKS}


@pytest.fixture
def bench(site: Site) -> Bench:
    site.install()
    return Bench(site)


def with_bench(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test whose door is closed in the end, within the loop."""

    @functools.wraps(test)
    async def closed(bench: Bench, **arguments: str) -> None:
        try:
            await test(bench, **arguments)
        finally:
            bench.engine.close()

    return in_loop(closed)


@with_bench
async def test_a_profile_and_its_sglang_pass_every_check(bench: Bench) -> None:
    facts = await bench.engine.observe()
    told = dict(bench.engine.digests())
    assert facts == EngineFacts("sglang", "tiny", PYTHON, "0.5.23", version="0.5.23", strangers=(), digests=told)
    assert await bench.verdicts() == dict.fromkeys(CHECKS, "pass")


@with_bench
async def test_nothing_is_read_again_that_has_not_changed(bench: Bench) -> None:
    first = await bench.engine.observe()
    for _ in range(3):
        assert await bench.engine.observe() == first
    assert bench.files.children == 1
    bench.site.install()  # the same version once more
    os.utime(bench.site.packages / "sglang-0.5.23.dist-info", (1, 1))
    assert await bench.engine.observe() == first
    assert bench.files.children == 2


@with_bench
async def test_a_change_on_disk_is_taken_with_the_next_look(bench: Bench) -> None:
    await bench.engine.observe()
    assert bench.engine.digests()["engine.arguments.model-path"] == "/srv/models/tiny"
    bench.site.override("[arguments]\nmodel-path = '/other'\ngemm = 'best'\n")
    facts = await bench.engine.observe()
    assert [fault.key for fault in facts.strangers or ()] == ["arguments.gemm"]
    assert bench.engine.digests()["engine.arguments.model-path"] == "/other"
    bench.site.override("[arguments]\nmodel-path = '/other'\n")
    assert (await bench.engine.observe()).strangers == ()
    (bench.site.etc / "engine.toml").unlink()
    await bench.engine.observe()
    assert bench.engine.digests()["engine.arguments.model-path"] == "/srv/models/tiny"
    assert bench.files.children == 4


@with_bench
async def test_a_first_look_has_the_digests_and_leaves_the_options_for_later(bench: Bench) -> None:
    await bench.engine.begin()
    assert bench.engine.digests()["engine.version"] == "0.5.23"
    assert bench.engine.digests()["engine.launch.transport"] == "ib"
    assert bench.files.children == 0


@with_bench
async def test_a_rank_is_given_what_the_hosts_have_compared(bench: Bench) -> None:
    bench.site.override('[environment]\nNCCL_BUFFSIZE = 4194304\nA = "it\'s $5"\n')
    await bench.engine.observe()
    bench.site.profile(PROFILE + "later = true\n")  # written after the hosts have looked
    given = bench.engine.environment()
    assert given["NCCL_BUFFSIZE"] == "4194304"
    told = json.loads(given[CONFIG])
    assert told["arguments"] == ["--model-path", "/srv/models/tiny"]
    assert told["environment"] == {"NCCL_BUFFSIZE": "4194304", "A": "it's $5"}
    assert render({CONFIG: given[CONFIG]}) == f"{CONFIG}='{given[CONFIG]}'\n"


@with_bench
async def test_adapters_are_among_what_hosts_compare_and_a_rank_is_given(bench: Bench) -> None:
    assert (await bench.engine.observe()).adapters == ()
    assert "SPARKD_ADAPTERS" not in bench.engine.environment()
    bench.site.override(
        '[adapters]\ntp3_pad = true\nserving_guards = false\n[adapters.engram_rows]\ndirectory = "/a"\n'
    )
    facts = await bench.engine.observe()
    assert facts.adapters == ("engram_rows", "tp3_pad")
    assert bench.engine.digests()["engine.adapters.engram_rows.directory"] == "/a"
    told = bench.engine.environment()["SPARKD_ADAPTERS"]
    given = json.loads(told)
    assert render({"SPARKD_ADAPTERS": told}) == f"SPARKD_ADAPTERS='{told}'\n"
    assert given == {"tp3_pad": {}, "engram_rows": {"directory": "/a"}}


@with_bench
async def test_a_bad_profile_is_a_finding_and_starts_nothing(bench: Bench) -> None:
    bench.site.profile(PROFILE + "tp-size = 3\n")
    assert await bench.verdicts() == {
        "profile-bad": "fail",
        "engine-missing": "pass",
        "engine-version": "unknown",
        "engine-options": "unknown",
    }
    with pytest.raises(DoorError, match=r"the profile tiny cannot be used: .*tiny\.toml: arguments\.tp-size: found"):
        bench.engine.environment()
    assert bench.engine.digests() == {
        "engine.profile": "tiny, which cannot be used",
        "engine.version": "0.5.23",
    }
    bench.site.profile()
    assert await bench.verdicts() == dict.fromkeys(CHECKS, "pass")


@with_bench
async def test_no_engine_is_a_finding(bench: Bench) -> None:
    (bench.site.packages / "sglang-0.5.23.dist-info").rename(bench.site.packages / "other-1.dist-info")
    verdicts = {"profile-bad": "pass", "engine-missing": "fail"}
    rest = dict.fromkeys(("engine-version", "engine-options"), "not-applicable")
    assert await bench.verdicts() == verdicts | rest
    assert bench.engine.digests()["engine.version"] == "missing"


@with_bench
async def test_an_engine_without_its_interpreter_is_a_finding(bench: Bench) -> None:
    (bench.site.root / "opt/sparkd/engine/bin/python").unlink()
    assert (await bench.verdicts())["engine-missing"] == "fail"


@with_bench
async def test_another_version_is_refused_unless_it_is_allowed_by_name(bench: Bench) -> None:
    await bench.engine.observe()
    (bench.site.packages / "sglang-0.5.23.dist-info").rename(bench.site.packages / "sglang-0.5.24.dist-info")
    assert await bench.verdicts() == {
        "profile-bad": "pass",
        "engine-missing": "pass",
        "engine-version": "fail",
        "engine-options": "not-applicable",
    }
    bench.site.override('allow_sglang = ["0.5.24"]')
    assert await bench.verdicts() == dict.fromkeys(CHECKS, "pass")
    assert json.loads(bench.engine.environment()[CONFIG])["version"] == "0.5.24"


@with_bench
async def test_what_cannot_be_told_is_unknown(bench: Bench) -> None:
    bench.site.write("opt/sparkd/engine/lib/python3.11/site-packages/sglang-0.5.22.dist-info/METADATA", "")
    unknown = dict.fromkeys(("engine-missing", "engine-version", "engine-options"), "unknown")
    assert await bench.verdicts() == {"profile-bad": "pass"} | unknown
    assert bench.engine.digests()["engine.version"] == "unknown"
    facts = await bench.engine.observe()
    assert facts.why.startswith(f"several SGLang are installed beside {PYTHON}: ")


@pytest.mark.parametrize("spoil", ["srt/arg_groups/fields/all.py", "srt/environ.py"])
@with_bench
async def test_options_that_cannot_be_read_are_unknown_and_asked_for_again(bench: Bench, spoil: str) -> None:
    file = bench.site.packages / "sglang" / spoil
    text = file.read_text()
    file.write_text("class :\n")
    assert (await bench.verdicts())["engine-options"] == "unknown"
    file.write_text(text)
    assert (await bench.verdicts())["engine-options"] == "pass"


@with_bench
async def test_a_package_without_its_source_is_unknown(bench: Bench) -> None:
    (bench.site.packages / "sglang").rename(bench.site.packages / "elsewhere")
    assert (await bench.verdicts())["engine-options"] == "unknown"


@with_bench
async def test_an_answer_that_comes_too_late_for_one_look_is_there_for_the_next(bench: Bench) -> None:
    bench.files.go.clear()
    late = asyncio.create_task(bench.engine.observe())
    await until(lambda: bench.files.children == 1)
    late.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    with pytest.raises(DoorError, match="has not answered for"):
        await bench.engine.observe()
    bench.files.go.set()
    facts = None
    end = time.monotonic() + 5
    while facts is None:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
        with contextlib.suppress(DoorError):
            facts = await bench.engine.observe()
    assert facts.strangers == ()
    assert bench.files.children == 1


# Where it is used.


@with_bench
async def test_a_rank_is_given_the_plan_the_tuning_and_the_profile(bench: Bench) -> None:
    bench.site.override("[environment]\nNCCL_BUFFSIZE = 4194304\n")
    await bench.engine.begin()
    state = State(Intent(), None)
    gids = StartGids(bench.settings, state, SysfsGids(bench.site.root))
    given = await environment_of_ranks(bench.settings, state, gids, bench.engine)(7, ())
    planned = await environment_of_ranks(bench.settings, state, gids)(7, ())
    changed = {name for name in given if given[name] != planned.get(name)}
    assert changed == {"NCCL_BUFFSIZE", CONFIG}
    assert (given["SPARKD_ENGINE"], given["NCCL_BUFFSIZE"]) == ("sglang", "4194304")
    assert render(given).count("\n") == len(given)


@with_bench
async def test_a_rank_whose_profile_has_become_bad_is_given_nothing(bench: Bench) -> None:
    bench.site.override("[launch]\ntransport = 'tcp'\n")
    await bench.engine.begin()
    state = State(Intent(), None)
    environment = environment_of_ranks(
        bench.settings, state, StartGids(bench.settings, state, SysfsGids(bench.site.root)), bench.engine
    )
    with pytest.raises(DoorError, match=r"the profile tiny cannot be used: .*launch\.transport"):
        await environment(7, ())


@with_bench
async def test_each_look_at_the_host_has_the_engine_also_the_quick_one_before_a_start(bench: Bench) -> None:
    hardware = Hardware([20000], Spark(bench.site.root / "host").root, engine=bench.engine)
    try:
        facts = await hardware.observe()
        assert facts.engine is not None
        assert facts.engine.strangers == ()
        bench.site.profile(PROFILE + "tp-size = 3\n")
        glanced = await hardware.supervisors(facts)
        assert glanced.engine is not None
        assert [fault.key for fault in glanced.engine.faults] == ["arguments.tp-size"]
        assert glanced.kernel is facts.kernel
        told = shared(glanced)
        assert told is not None
        assert [name for name in OF_ONE_HOST if getattr(told, name) is not None] == []
        assert told.kernel is facts.kernel
        bench.engine.close()
        lost = await hardware.supervisors(facts)
        assert (lost.engine, lost.why("engine")) == (None, "the engine's files is closed")
    finally:
        hardware.close()


@in_loop
async def test_without_a_door_the_engine_is_the_probe(tmp_path: Path) -> None:
    hardware = Hardware([20000], Spark(tmp_path).root)
    try:
        assert (await hardware.observe()).engine == EngineFacts("probe")
    finally:
        hardware.close()
