"""The daemon costs almost nothing, and that only falls: an idle one may not cost a fifth more than it did."""

from __future__ import annotations

import pytest

from tests.lab import budget
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab


def test_memory_of_an_idle_daemon_is_within_its_budget(ring: Ring) -> None:
    ring.fresh()
    used = budget.pss(ring)
    assert used < budget.PSS_MIB * budget.ROOM, f"PSS {used:.1f} MiB"


def test_processor_time_of_an_idle_daemon_is_within_its_budget(ring: Ring) -> None:
    ring.phase("ready")
    seen: list[tuple[float, float]] = []
    while len(seen) < budget.LOOKS and (not seen or min(seen)[0] >= budget.PIECES_AN_HOUR * budget.ROOM):
        seen.append(budget.pieces_an_hour(ring))
    pieces, seconds = min(seen)
    assert pieces < budget.PIECES_AN_HOUR * budget.ROOM, f"{pieces:.0f} pieces of work an hour, {seconds:.1f} s"
