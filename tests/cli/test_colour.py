"""--color, on every command: on a terminal, always or never."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing


@pytest.mark.parametrize(("when", "coloured"), [("always", True), ("never", False), ("auto", False)])
def test_colour_as_it_is_asked_for(when: str, coloured: bool, ring: FakeRing, ctl: Ctl) -> None:
    ring.phase = "ready"
    assert ("\x1b[32m" in ctl("status", "--color", when).out) == coloured
    assert ("\x1b" in ctl("doctor", "--color", when).out) == coloured
    # It holds for one command.
    assert "\x1b" not in ctl("status").out
