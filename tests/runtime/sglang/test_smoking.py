"""The profile's smoke tests in a process of their own."""

import asyncio
from pathlib import Path

import pytest

from runtime.sglang.record import KEPT, directory, keep
from runtime.sglang.smoking import Outcome
from sparkd.core.smokes import SmokeRun
from sparkd.host.smokes import SmokeFiles
from tests.runtime.sglang.bench import engine
from tests.runtime.sglang.test_engine import ended
from tests.runtime.triangle import Rank, Ranks

MODULE = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    seconds: float
    sentence: str
@dataclass(frozen=True)
class SmokeResult:
    ok: bool
    results: tuple
def run(base_url, names, *, model, timeout, report):
    assert base_url.startswith("http://127."), base_url
    checks = []
    for number, name in enumerate(names, 1):
        report(f"smoke {number}/{len(names)} {name} of {model}")
        if name == "crash":
            raise ZeroDivisionError("in a test")
        if name == "slow":
            import time
            # The launcher looks at its processes once a second, and this is none of the engine's.
            time.sleep(1.5)
        if name == "vanish":
            import os
            os._exit(9)
        checks.append(Check(name, name != "wrong", 0.1, "17 * 3 is 51, got 50" if name == "wrong" else "right"))
    return SmokeResult(all(check.ok for check in checks), tuple(checks))
"""


def start(rank: Rank, tmp_path: Path) -> None:
    """With a runtime.smoke of the test's own."""
    (tmp_path / "own_smoke.py").write_text(MODULE)
    rank.environ["PYTHONPATH"] = str(tmp_path)
    rank.start("tests.runtime.sglang.smoked")


@pytest.mark.parametrize(
    ("names", "required", "ready", "said"),
    [
        (["arithmetic", "slow"], True, True, "ready idle, canary "),
        (["arithmetic", "wrong"], True, False, "failed warmup: wrong: 17 * 3 is 51, got 50"),
        (["wrong"], False, True, "smoke failed: wrong: 17 * 3 is 51, got 50"),
        (["crash"], True, False, "failed warmup: ZeroDivisionError: in a test"),
        (["vanish"], True, False, "failed warmup: the process of the smoke tests ended without a result"),
    ],
)
def test_a_failed_smoke_test_keeps_the_rank_from_ready_if_the_profile_says_so(
    tmp_path: Path, names: list[str], required: bool, ready: bool, said: str
) -> None:
    launch: dict[str, object] = {"smoke": names, "smoke_required": required}
    with engine(tmp_path, 0, ("--served-model-name", "flash"), launch) as rank:
        rank.environ["STATE_DIRECTORY"] = str(tmp_path)
        start(rank, tmp_path)
        if ready:
            Ranks([rank]).until_ready()
        else:
            assert ended(rank)[0] == 76
            assert "READY=1" not in rank.said
        assert said in rank.statuses()[-1]
        assert f"warmup 1/{len(names)} smoke {names[0]} of flash" in rank.statuses()
        assert f"smoke 1/{len(names)} {names[0]} of flash" in rank.text()
        # By the daemon's own reader: they share the file and no code.
        [kept] = asyncio.run(kept_runs(tmp_path / "smoke"))
        assert (kept.epoch, kept.profile, kept.model, kept.required) == (7, "test", "flash", required)
        assert kept.ok is (ready and "wrong" not in names)
        assert kept.ok or kept.sentence in said
        if "wrong" in names:
            assert [(check.name, check.ok) for check in kept.results] == [(name, name != "wrong") for name in names]


async def kept_runs(directory: Path) -> tuple[SmokeRun, ...]:
    files = SmokeFiles(directory)
    try:
        return await files.read()
    finally:
        files.close()


def test_only_the_newest_results_are_kept_and_what_is_damaged_hides_none(tmp_path: Path) -> None:
    place = tmp_path / "smoke"
    told = {"at": 1.0, "profile": "p", "model": "m", "required": True}
    assert asyncio.run(kept_runs(place)) == ()
    for epoch in range(1, KEPT + 12):
        keep(place, epoch, Outcome(True, "2 smoke tests passed"), told)
    (place / "60.json").write_text("{")
    (place / "note.json").write_text("{}")
    keep(
        place, 99, Outcome(False, "wrong: no", ({"name": "wrong", "ok": False, "seconds": 1, "sentence": "no"},)), told
    )
    runs = asyncio.run(kept_runs(place))
    assert [run.epoch for run in runs][:3] == [99, 61, 59]
    assert len(runs) == KEPT - 1 and runs[-1].epoch == 13
    assert runs[0].results[0].sentence == "no"
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


def test_a_place_that_cannot_be_written_is_told_and_keeps_no_rank_from_ready(tmp_path: Path) -> None:
    with engine(tmp_path, 0, ("--served-model-name", "flash"), {"smoke": ["arithmetic"]}) as rank:
        (tmp_path / "smoke").write_text("in the way")
        rank.environ["STATE_DIRECTORY"] = str(tmp_path)
        start(rank, tmp_path)
        Ranks([rank]).until_ready()
        assert "the results of the smoke tests are not kept: " in rank.text()


def test_outside_a_unit_nothing_is_kept() -> None:
    assert directory({}) is None
    assert directory({"STATE_DIRECTORY": "/var/lib/sparkd-rank:/other"}) == Path("/var/lib/sparkd-rank/smoke")


def test_without_the_module_the_profiles_tests_have_failed(tmp_path: Path) -> None:
    with engine(tmp_path, 0, (), {"smoke": ["arithmetic"]}) as rank:
        rank.start("tests.runtime.sglang.smokeless")
        assert ended(rank)[0] == 76
        assert "failed warmup: this installation has no runtime.smoke" in rank.statuses()[-1]
