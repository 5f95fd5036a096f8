"""sparkctl run in this process against a fake daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkd.cli import main
from tests.cli.fakes import FakeRing, serve
from tests.config.conftest import ca, etc, spark1

__all__ = ["ca", "etc", "spark1"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Ctl = Callable[..., Ended]


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[FakeRing]:
    fake = FakeRing()
    with serve(fake, tmp_path / "api.sock"):
        yield fake


@pytest.fixture
def ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Runs a command that talks to the fake; other commands take no --socket."""

    def run(*arguments: str, daemon: bool = True) -> Ended:
        where = ["--socket", str(tmp_path / "api.sock")] if daemon else []
        code = main([*arguments, *where])
        return Ended(code, *capsys.readouterr())

    return run
