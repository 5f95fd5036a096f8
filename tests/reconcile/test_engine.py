"""A start under real Loops with a profile on disk: refused, mended without a restart, and what the ranks are given."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.config import Engine, Listen, Paths, Settings
from sparkd.core.hardware import HardwareFacts
from sparkd.core.snapshot import Policy
from sparkd.engine import CONFIG, Sglang
from sparkd.host.engine import EngineFiles
from sparkd.reconcile.examiner import Examiner
from sparkd.reconcile.refusal import Refusal
from tests.core.builders import CLUSTER, NODES
from tests.engine.site import PROFILE, PYTHON, Site
from tests.fakes.hardware import FakeHardware
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until
from tests.reconcile.test_examiner import LONG, NoReach


class EngineHardware(FakeHardware):
    """With the real door to the engine, as sparkd.host.hardware has it."""

    def __init__(self, engine: Sglang) -> None:
        super().__init__()
        self.engine = engine

    async def observe(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, serving: int = 0
    ) -> HardwareFacts:
        return replace(await super().observe(rank_pid, addresses, serving), engine=await self.engine.observe())

    async def supervisors(self, known: HardwareFacts) -> HardwareFacts:
        return replace(await super().supervisors(known), engine=await self.engine.observe())


class Bench:
    def __init__(self, ring: Cluster, root: Path) -> None:
        self.ring = ring
        self.sites = {name: Site(root / name) for name in NODES}
        self.engines: dict[str, Sglang] = {}
        for name, site in self.sites.items():
            site.profile()
            site.install()
            paths = Paths.beside(site.etc / "sparkd.toml", {})
            engine = Engine("sglang", profile="tiny", python=PYTHON)
            settings = Settings(name, CLUSTER, Policy(), 60.0, engine, Listen(), paths, b"")
            self.engines[name] = Sglang(settings, EngineFiles(site.root), site.share)

    async def refusal(self) -> list[tuple[str, str, str]]:
        with pytest.raises(Refusal) as caught:
            await self.ring.ask("start")
        assert caught.value.code == "start-refused"
        return [(finding.id, finding.node, finding.subject) for finding in caught.value.findings]

    def given(self, name: str) -> Mapping[str, str]:
        """What the rank of the last epoch was started with."""
        files = self.ring[name].files.files
        return files[max(files)]


@contextlib.asynccontextmanager
async def engines(root: Path) -> AsyncIterator[Bench]:
    """A ring that is down, each host with an SGLang and a profile of its own, and looked at once."""
    async with cluster() as ring:
        await ring.reach("down")
        bench = Bench(ring, root)
        tasks = []
        for name in NODES:
            engine = bench.engines[name]
            await engine.begin()
            ring[name].engine = engine
            examiner = Examiner(ring[name].loop, EngineHardware(engine), NoReach(), LONG)
            ring[name].loop.before_start(examiner.afresh)
            tasks.append(asyncio.create_task(examiner.run()))
        await until(lambda: all(machine.loop.hardware is not None for machine in ring))
        try:
            yield bench
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for engine in bench.engines.values():
                engine.close()


@in_loop
async def test_the_next_start_takes_a_changed_profile_without_a_restart_of_sparkd(tmp_path: Path) -> None:
    async with engines(tmp_path) as bench:
        await bench.ring.ask("start")
        await bench.ring.reach("ready")
        assert [json.loads(bench.given(name)[CONFIG])["arguments"] for name in NODES] == [
            ["--model-path", "/srv/models/tiny"]
        ] * 3
        await bench.ring.ask("stop")
        await bench.ring.reach("down")
        for site in bench.sites.values():
            site.override("[arguments]\ncontext-length = 4096\n")
        await bench.ring.ask("start")
        await bench.ring.reach("ready")
        assert [json.loads(bench.given(name)[CONFIG])["arguments"][2:] for name in NODES] == [
            ["--context-length", "4096"]
        ] * 3


@pytest.mark.parametrize("node", NODES)
@in_loop
async def test_a_difference_between_two_hosts_is_refused_by_key_and_gone_once_it_is_mended(
    tmp_path: Path, node: str
) -> None:
    """Field report config-skew."""
    async with engines(tmp_path) as bench:
        bench.sites[node].override("[arguments]\ncontext-length = 4096\n")
        refused = await bench.refusal()
        assert {(id_, subject) for id_, _, subject in refused} == {("config-skew", "engine.arguments.context-length")}
        (bench.sites[node].etc / "engine.toml").unlink()
        await bench.ring.ask("start")
        await bench.ring.reach("ready")


@pytest.mark.parametrize("node", NODES)
@in_loop
async def test_another_version_on_any_host_is_refused(tmp_path: Path, node: str) -> None:
    async with engines(tmp_path) as bench:
        packages = bench.sites[node].packages
        (packages / "sglang-0.5.23.dist-info").rename(packages / "sglang-0.5.24.dist-info")
        refused = await bench.refusal()
        assert ("engine-version", node, "SGLang") in refused
        assert {id_ for id_, _, _ in refused} == {"engine-version", "config-skew"}


@in_loop
async def test_another_version_that_all_hosts_have_and_allow_starts(tmp_path: Path) -> None:
    async with engines(tmp_path) as bench:
        for site in bench.sites.values():
            (site.packages / "sglang-0.5.23.dist-info").rename(site.packages / "sglang-0.5.24.dist-info")
        assert {id_ for id_, _, _ in await bench.refusal()} == {"engine-version"}
        for site in bench.sites.values():
            site.override('allow_sglang = ["0.5.24"]')
        await bench.ring.ask("start")
        await bench.ring.reach("ready")
        assert json.loads(bench.given("spark2")[CONFIG])["version"] == "0.5.24"


@in_loop
async def test_an_option_that_sglang_does_not_have_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async with engines(tmp_path) as bench:
        for site in bench.sites.values():
            site.profile(PROFILE + "contxt-length = 1\n")
        refused = await bench.refusal()
        assert [(id_, node) for id_, node, _ in refused] == [("engine-options", name) for name in NODES]
        assert all(subject.endswith("tiny.toml: arguments.contxt-length") for _, _, subject in refused)
        assert not any(machine.units.loaded() for machine in bench.ring)
