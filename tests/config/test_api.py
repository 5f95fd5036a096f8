"""`[api]` and the list of tokens: what --check-config says of each that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkd.config.secrets import check_tokens
from sparkd.config.settings import Api, Problem
from sparkd.config.tokens import Token, digest, render
from tests.config.etc import Etc
from tests.config.test_load import Configured


def test_an_address_for_operators_elsewhere(configured: Configured) -> None:
    etc = configured('[api]\nlisten = "192.168.77.1:7476"\n')
    assert etc.load().api == Api("192.168.77.1:7476")
    assert configured("").load().api == Api()


@pytest.mark.parametrize(
    ("lines", "key", "found"),
    [
        ('listen = "spark1:7476"', "api.listen", '"spark1:7476"'),
        ('listen = "0.0.0.0"', "api.listen", '"0.0.0.0"'),
        ('listen = "0.0.0.0:70000"', "api.listen", '"0.0.0.0:70000"'),
        ("listen = 7476", "api.listen", "7476"),
        ('listen = "0.0.0.0:7474"', "api.listen", "port 7474, which is taken"),
        ('listen = "192.168.77.1:7475"', "api.listen", "port 7475, which is taken"),
        ('listen = "0.0.0.0:7476"\ncertificate = "/etc/ssl/x.crt"', "api.key", "nothing"),
        ('listen = "0.0.0.0:7476"\nkey = "/etc/ssl/x.key"', "api.certificate", "nothing"),
        ('listen = "0.0.0.0:7476"\nkey = "x.key"\ncertificate = "/x"', "api.key", '"x.key"'),
        ("tls = false", "api.tls", "an unknown key"),
    ],
)
def test_what_cannot_be(configured: Configured, lines: str, key: str, found: str) -> None:
    problems = configured(f"[api]\n{lines}\n").problems()
    assert (problems[0].key, problems[0].found) == (key, found)


def test_a_certificate_that_cannot_serve(configured: Configured, tmp_path: Path) -> None:
    certificate, key = tmp_path / "x.crt", tmp_path / "x.key"
    etc = configured(f'[api]\nlisten = "0.0.0.0:7476"\ncertificate = "{certificate}"\nkey = "{key}"\n')
    assert [(problem.file, problem.found) for problem in etc.problems()] == [
        (str(certificate), "nothing"),
        (str(key), "nothing"),
    ]
    certificate.write_bytes((etc.folder / "tls/ca.crt").read_bytes())
    key.write_bytes((etc.folder / "tls/node.key").read_bytes())
    key.chmod(0o640)
    (problem,) = etc.problems()
    assert problem.file == str(certificate)
    assert "KEY_VALUES_MISMATCH" in problem.found
    certificate.write_bytes((etc.folder / "tls/node.crt").read_bytes())
    assert etc.load().api.certificate == str(certificate)
    key.chmod(0o644)
    assert [problem.file for problem in etc.problems()] == [str(key)], "open to every user"


def told(path: Path) -> list[Problem]:
    problems: list[Problem] = []
    check_tokens(path, problems)
    return problems


def test_a_list_of_tokens_that_cannot_be_used(etc: Etc) -> None:
    path = etc.folder / "tokens.json"
    assert told(path) == []
    good = Token("a", "read", digest("x"), 0.0, "x")
    etc.write("tokens.json", render((good,)))
    assert told(path) == []
    for spoilt, words in (
        (b"", "not JSON"),
        (b'{"version": 1, "tokens": 3}', "expected a list"),
        (render((good, good)), "expected a name that no other token has"),
        (b"\xff", "not JSON"),
    ):
        etc.write("tokens.json", spoilt)
        (problem,) = told(path)
        assert words in problem.found
        assert problem.expected == "as `sparkctl token` writes it"
    assert etc.load().node == "spark1", "and yet the daemon starts: a ring may be serving"


def test_a_list_that_everybody_reads(etc: Etc) -> None:
    path = etc.write("tokens.json", render(()), mode=0o644)
    assert [problem.file for problem in etc.problems()] == [str(path)]
