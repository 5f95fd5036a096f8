"""What the completions of the shells are told, at once and from this machine alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparkd.cli import main, words
from sparkd.cli.client import Client
from sparkd.config.keys import KEYS
from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing


@pytest.mark.parametrize(
    ("kind", "told"),
    [("ranks", ["0", "1", "2", "spark1", "spark2", "spark3"]), ("epochs", ["5", "7"]), ("keys", sorted(KEYS))],
)
def test_words(kind: str, told: list[str], ring: FakeRing, ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_INCIDENTS", Path("/nonexistent"))
    ring.deaths = [{"epoch": 5}]
    assert ctl("_words", kind).out.split() == told


def test_incidents_on_this_machine_are_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "lost+found").mkdir()
    monkeypatch.setattr(words, "_INCIDENTS", tmp_path)
    assert main(["_words", "epochs", "--socket", str(tmp_path / "none")]) == 0
    assert capsys.readouterr() == ("12\n", "")


def test_a_name_that_a_shell_would_carry_out_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("10-a.toml", "$(id).toml", "`id`.toml", "a b.toml", "-x.toml", "a;b.toml", "*.toml"):
        (tmp_path / name).touch()
    monkeypatch.setattr(words, "_DROP_INS", tmp_path)
    assert main(["_words", "dropins", "--socket", str(tmp_path / "none")]) == 0
    assert capsys.readouterr() == ("10-a.toml\n", "")


def test_a_daemon_that_is_only_starting_is_not_waited_for(ring: FakeRing, tmp_path: Path) -> None:
    ring.starting = 1000
    began = time.monotonic()
    assert words.tell("ranks", Client(tmp_path / "api.sock", timeout=0.5, patience=0)) == 0
    assert time.monotonic() - began < 5
    assert len(ring.asked) <= 2


def test_it_is_in_no_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert words.COMMAND not in capsys.readouterr().out
