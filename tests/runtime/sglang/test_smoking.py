"""The profile's smoke tests in a process of their own."""

from pathlib import Path

import pytest

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
        start(rank, tmp_path)
        if ready:
            Ranks([rank]).until_ready()
        else:
            assert ended(rank)[0] == 76
            assert "READY=1" not in rank.said
        assert said in rank.statuses()[-1]
        assert f"warmup 1/{len(names)} smoke {names[0]} of flash" in rank.statuses()
        assert f"smoke 1/{len(names)} {names[0]} of flash" in rank.text()


def test_without_the_module_the_profiles_tests_have_failed(tmp_path: Path) -> None:
    with engine(tmp_path, 0, (), {"smoke": ["arithmetic"]}) as rank:
        rank.start("tests.runtime.sglang.smokeless")
        assert ended(rank)[0] == 76
        assert "failed warmup: this installation has no runtime.smoke" in rank.statuses()[-1]
