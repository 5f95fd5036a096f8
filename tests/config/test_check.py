"""`sparkd --check-config` with an engine whose profile is a file beside sparkd.toml."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkd.daemon import EX_CONFIG, check
from tests.config.etc import Etc
from tests.engine.site import PROFILE

SGLANG = '[engine]\nname = "sglang"\nprofile = "tiny"\n'


def test_a_faulty_profile_is_told_with_file_and_key(
    configured: Callable[..., Etc], capsys: pytest.CaptureFixture[str]
) -> None:
    etc = configured(SGLANG)
    etc.write("profiles/tiny.toml", PROFILE + "tp-size = 3\n")
    etc.write("engine.toml", "[launch]\ntransport = 'tcp'\n")
    assert check(etc.main) == EX_CONFIG
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": found")[0] for line in lines] == [
        f"{etc.folder}/profiles/tiny.toml: arguments.tp-size",
        f"{etc.folder}/engine.toml: launch.transport",
    ]


def test_a_good_profile_is_no_problem(configured: Callable[..., Etc], capsys: pytest.CaptureFixture[str]) -> None:
    etc = configured(SGLANG)
    etc.write("profiles/tiny.toml", PROFILE)
    assert check(etc.main) == 0
    assert capsys.readouterr().out.endswith("spark1 is rank 0 of a ring of 3\n")


def test_the_probe_needs_no_profile(configured: Callable[..., Etc], capsys: pytest.CaptureFixture[str]) -> None:
    etc = configured("[engine]\nprofile = 'none'\n")
    assert check(etc.main) == 0
    assert "good" in capsys.readouterr().out
