"""Where what is printed cannot go, and what a program reads in place of it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkd.cli import config, token
from sparkd.cli.command import main
from tests.config.etc import Etc

Captured = pytest.CaptureFixture[str]


@contextlib.contextmanager
def full() -> Iterator[None]:
    """Standard output is a file on a disk that is full."""
    stream = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - what it could not write it would try again
    with contextlib.redirect_stdout(stream):
        yield
    with contextlib.suppress(OSError):
        stream.close()


def test_a_full_disk_is_said_in_a_sentence(etc: Etc, capsys: Captured) -> None:
    with full():
        assert main(["config", "check", "--config", str(etc.main)]) == 1
    assert capsys.readouterr().err == "sparkctl: standard output: No space left on device\n"


def test_an_output_that_is_closed_is_like_one_that_nobody_reads(etc: Etc) -> None:
    command = f"{sys.executable} -m sparkd.cli config check --config {etc.main} >&-"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_token_that_nobody_has_seen_does_not_count(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token, "GROUP", "root")
    file = tmp_path / "tokens.json"
    with full(), pytest.raises(OSError, match="No space left"):
        token.create("laptop", "read", None, file, as_json=as_json)
    assert json.loads(file.read_text())["tokens"] == []


def test_a_letter_that_the_terminal_does_not_have(etc: Etc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="iso-8859-1", write_through=True))
    target = etc.main.rename(etc.main.with_name("sparkd-Ωé.toml"))
    main(["config", "check", "--config", str(target)])
    assert rb"sparkd-\u03a9" + b"\xe9.toml: good" in raw.getvalue()


@pytest.mark.parametrize("arguments", [["status", "--bogus", "--json"], ["--json"], ["hold", "--json", "x"]])
def test_wrong_usage_is_one_document_too(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["error"]["kind"] == "usage"
    assert told.err.startswith("usage: ")


def test_an_interruption_is_one_document_too(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(config, "check", interrupted)
    assert main(["config", "check", "--json"]) == 130
    told = capsys.readouterr()
    assert json.loads(told.out)["error"] == {
        "exit": 130,
        "kind": "interrupted",
        "text": "interrupted",
        "hint": "",
        "findings": [],
    }
    assert told.err == "sparkctl: interrupted\n"
