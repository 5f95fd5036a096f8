"""A new user with a terminal, the README and --help: a ring, a start that is refused, a failure and its evidence.

Nothing is typed that the README does not have, or that a --help on the screen has not just shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.control import Lab
from tests.lab.install import REPOSITORY
from tests.lab.ring import Ring
from tests.lab.terminal import Terminal

pytestmark = pytest.mark.lab
LAB = "tests/lab/lab exec spark1 -- "
README = " ".join((REPOSITORY / "README.md").read_text("utf-8").split())


class User:
    """Types what they have read somewhere. read: the help that they have looked at."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.read = README

    def types(self, line: str, seconds: float = 30) -> tuple[int, str]:
        self._knows(line)
        return self._terminal.type(line, seconds)

    def asks(self, line: str) -> str:
        """--help, which everybody knows of, and reads from then on."""
        status, shown = self._terminal.type(f"{line} --help")
        assert status == 0
        self.read += " " + " ".join(shown.split())
        return shown

    def until(self, line: str, word: str, seconds: float = 20) -> tuple[int, str]:
        """The same again, until it is there: cables are heard and evidence is kept in a moment."""
        end = time.monotonic() + seconds
        while True:
            status, shown = self.types(line)
            if word in shown:
                return status, shown
            assert time.monotonic() < end, f"{line}: no {word!r} in {shown}"

    def _knows(self, line: str) -> None:
        command = line.removeprefix(LAB)
        if line in self.read:
            return
        # A command with its options, each of which has been read; a number or a value is the user's own.
        head, *words = command.split()
        assert head in ("sparkctl", "tests/lab/lab"), line
        for word in words:
            there = re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", self.read)
            assert there or word.isdecimal(), f"{line}: where is {word} from?"


@pytest.fixture
def user(down: Ring, tmp_path: Path) -> Iterator[User]:
    environment = {"SPARKD_LAB_DIR": str(down.lab.places.directory)}
    with Terminal(tmp_path, REPOSITORY, environment) as terminal:
        yield User(terminal)


def test_a_new_user(user: User, lab: Lab, clock: Callable[[str], None]) -> None:
    told = user.asks(f"{LAB}sparkctl")
    assert "up " in told
    assert "exit codes:" in told

    # One cable is wrong: what the start is refused for says which end to move.
    status, _ = user.types("tests/lab/lab recable spark1.p0-spark3.p0,spark1.p1-spark2.p0,spark2.p1-spark3.p1")
    assert status == 0
    user.until(f"{LAB}sparkctl plan --discover", "cable-same-port")
    status, told = user.types(f"{LAB}sparkctl up --wait")
    assert status == 3, told
    assert re.search(r"refuse +spark1 port 0 and spark3 port 0: cable-same-port", told)
    assert re.search(r"fix +at spark\d, ", told)
    clock("until the start was refused, with which end to move")

    status, _ = user.types("tests/lab/lab recable usual")
    assert status == 0
    status, told = user.until(f"{LAB}sparkctl plan --discover", "One ring of 3 nodes over 3 cables")
    assert status == 0
    status, told = user.types(f"{LAB}sparkctl up --wait", 60)
    assert status == 0, told
    assert "is ready: all 3 ranks serve" in told.splitlines()[-1]
    clock("until the ring was ready")

    status, told = user.types("tests/lab/lab exec spark2 -- sparkctl status")
    assert status == 0
    assert told.startswith("READY ")
    assert "spark1 rank 0" in told
    assert "Gb/s" in told

    # Something dies, and there is evidence.
    status, _ = user.types("tests/lab/lab exec spark2 -- systemctl kill -s KILL 'sparkd-rank@*'")
    assert status == 0
    status, told = user.until(f"{LAB}sparkctl incidents", "spark2")
    newest = re.search(r"^(\d+) +\d{4}-\d\d-\d\d [\d:]+ +spark2 +(.*)", told, re.MULTILINE)
    assert newest is not None, told
    assert "SIGKILL" in newest[2]
    user.asks(f"{LAB}sparkctl incidents")
    status, told = user.until(f"{LAB}sparkctl incidents show {newest[1]}", "journal.txt")
    assert status == 0
    assert f"epoch {newest[1]} ended:" in told
    assert "on spark2, rank 1" in told
    assert "first error:" in told

    user.asks(f"{LAB}sparkctl logs")
    status, told = user.types(f"{LAB}sparkctl logs --epoch {newest[1]} --lines 3")
    assert status == 0
    assert {line.split()[0] for line in told.splitlines() if re.match(r"\d spark\d ", line)} == {"0", "1", "2"}
    clock("until the evidence of a death was found")
