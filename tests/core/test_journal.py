"""The lines of several clocks in one order."""

from __future__ import annotations

import pytest

from sparkd.core.journal import CURSOR, ahead, merged


@pytest.mark.parametrize(
    ("now", "before", "after", "offset"),
    [
        (1000.5, 1000.0, 1001.0, 0.0),
        (1000.9, 1000.0, 1001.0, 0.0),  # it may as well have been read at the end of the answer
        (1003.5, 1000.0, 1001.0, 3.0),
        (990.5, 1000.0, 1001.0, -10.0),
        (1000.0, 1000.0, 1000.0, 0.0),
        (2000.0, 1001.0, 1000.0, 999.5),  # the own clock was set back while it was waited for
    ],
)
def test_how_far_a_clock_is_ahead(now: float, before: float, after: float, offset: float) -> None:
    assert ahead(now, before, after) == offset


def test_lines_stand_where_they_belong_by_the_own_clock() -> None:
    own = (0.0, [(10.0, "a"), (11.0, "c"), (12.0, "e")])
    fast = (100.0, [(110.5, "b"), (111.5, "d")])
    assert list(merged([own, fast])) == [(10.0, "a"), (10.5, "b"), (11.0, "c"), (11.5, "d"), (12.0, "e")]


def test_the_lines_of_one_journal_stay_in_its_order() -> None:
    """Its clock was set back by a minute, between the second line and the third."""
    stepped = (0.0, [(70.0, "before"), (71.0, "step"), (11.0, "after"), (72.0, "later")])
    other = (0.0, [(71.5, "other")])
    assert [line for _, line in merged([stepped, other])] == ["before", "step", "after", "other", "later"]
    assert [at for at, _ in merged([stepped])] == [70.0, 71.0, 71.0, 72.0]
    assert list(merged([])) == []


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("s=0f9e;i=2a;b=77;m=12;t=5b;x=9c", True),
        ("s=0f9e", False),
        ("s=0f9e;i=2a --output=verbose", False),
        ("../x", False),
        ("", False),
    ],
)
def test_cursors(text: str, fits: bool) -> None:
    assert bool(CURSOR.fullmatch(text)) == fits
