"""sparkctl token: what is shown once, what is kept, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkd.cli import token
from sparkd.cli.command import main
from sparkd.cli.failure import Exit, Failure
from sparkd.config.tokens import TokenFile, parse

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """With a group in place of the daemon's that every machine has."""
    before, token.GROUP = token.GROUP, "root"
    try:
        yield tmp_path / "tokens.json"
    finally:
        token.GROUP = before


def test_a_token_is_shown_once_and_kept_only_as_a_digest(file: Path, capsys: Captured) -> None:
    assert token.create("laptop", "operate", None, file) == Exit.OK
    shown = capsys.readouterr()
    secret = shown.out.strip()
    assert re.fullmatch(r"sparkd_[A-Za-z0-9_-]{43}", secret), "256 random bits"
    assert shown.out == f"{secret}\n"
    assert "the token laptop may change the ring; it is shown only now" in shown.err
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(file.parent) == [file.name], "nothing half written is left"
    (kept,) = parse(file.read_bytes())
    assert (kept.name, kept.role, kept.last4, kept.expires) == ("laptop", "operate", secret[-4:], None)
    assert abs(kept.created - time.time()) < 60
    grant = TokenFile(file).find(secret)
    assert grant is not None
    assert (grant.name, grant.role) == ("laptop", "operate")
    assert TokenFile(file).find(kept.sha256) is None, "what is kept opens nothing"


def test_list_and_revoke(file: Path, capsys: Captured) -> None:
    token.create("grafana", "read", 90 * 86400.0, file)
    token.create("ci", "operate", None, file)
    secret = capsys.readouterr().out.split()[1]
    assert token.show(file, as_json=False) == Exit.OK
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["NAME", "ROLE"], ["grafana", "read"], ["ci", "operate"]]
    assert rows[2].endswith(secret[-4:])
    assert rows[0].index("ROLE") == rows[1].index("read") == rows[2].index("operate")
    token.show(file, as_json=True)
    listed = json.loads(capsys.readouterr().out)["tokens"]
    assert [set(each) for each in listed] == [{"name", "role", "created", "last4", "expires"}] * 2
    assert abs(listed[0]["expires"] - time.time() - 90 * 86400) < 60

    tokens = TokenFile(file)
    assert tokens.find(secret) is not None
    assert token.revoke("ci", file) == Exit.OK
    assert tokens.find(secret) is None, "the same daemon, without a restart"
    with pytest.raises(Failure, match="there is no token 'ci'"):
        token.revoke("ci", file)
    assert [kept.name for kept in parse(file.read_bytes())] == ["grafana"]


def test_an_expired_token_is_marked(file: Path, capsys: Captured) -> None:
    token.create("old", "read", -5.0, file)
    token.show(file, as_json=False)
    assert "(expired)" in capsys.readouterr().out


def test_a_name_is_taken_once(file: Path) -> None:
    token.create("laptop", "read", None, file)
    before = file.read_bytes()
    with pytest.raises(Failure, match="there is a token laptop already") as caught:
        token.create("laptop", "operate", None, file)
    assert caught.value.exit_code == Exit.CONFIG
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["", "two words", "a/b", "-x", "ü", "x" * 64, "a\nb"])
def test_names_that_cannot_be(name: str, file: Path) -> None:
    with pytest.raises(Failure, match="is no name"):
        token.create(name, "read", None, file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON"),
        ("[]", "expected an object"),
        ('{"version": 2, "tokens": []}', "version: found 2, expected 1"),
        ('{"version": 1, "tokens": [{"name": "a", "role": "root", "sha256": "", "created": 0, "last4": ""}]}', "role"),
        (
            '{"version": 1, "tokens": [{"name": "a", "role": "read", "sha256": "", "created": 0, "last4": ""}]}',
            "sha256",
        ),
    ],
)
def test_a_spoilt_file_is_not_written_over(text: str, sentence: str, file: Path) -> None:
    file.write_text(text)
    attempts: list[Callable[[], Exit]] = [
        lambda: token.create("x", "read", None, file),
        lambda: token.revoke("x", file),
    ]
    for attempt in attempts:
        with pytest.raises(Failure, match=sentence) as caught:
            attempt()
        assert str(file) in caught.value.text
    assert file.read_text() == text


def test_without_a_configuration_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no such file") as caught:
        token.create("x", "read", None, tmp_path / "missing/tokens.json")
    assert "sparkctl cluster install" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800.0), ("12h", 43200.0), ("90d", 7776000.0), ("4w", 2419200.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert token._duration(text) == seconds


@pytest.mark.parametrize("words", [["create", "x"], ["create", "x", "--role", "root"], ["revoke"], []])
def test_usage(words: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["token", *words])
    assert caught.value.code == Exit.USAGE


@pytest.mark.parametrize("span", ["90", "d", "0d", "1y", "1.5h"])
def test_durations_that_cannot_be(span: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["token", "create", "x", "--role", "read", "--expires", span])
    assert caught.value.code == Exit.USAGE
    assert "such as 90d" in capsys.readouterr().err
