"""Groups of real launcher processes that lose their management network."""

import contextlib
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.triangle import Ranks, group, wait_until
from tests.runtime.wires import managed, wired

SILENT = r"ready canary \d+, management to rank {} \(spark{}\) silent for \d+ s"


def canaries(ranks: Ranks) -> int:
    """How many came home so far; the group must be healthy."""
    status, body = ranks.health()
    assert (status, body["status"]) == (200, "ok")
    count = body["canaries"]
    assert isinstance(count, int)
    return count


@contextlib.contextmanager
def cut_off(tmp_path: Path) -> Iterator[Ranks]:
    """A group that goes on although rank 2 cannot be heard and hears nothing on the management network."""
    with group(tmp_path, canary_timeout="1") as ranks, managed(ranks) as wire:
        ranks.start()
        ranks.until_ready()
        wire.swallow.set()
        before, start = canaries(ranks), time.monotonic()
        wait_until(lambda: re.fullmatch(SILENT.format(2, 3), ranks[0].statuses()[-1]), ranks)
        wait_until(lambda: re.fullmatch(SILENT.format(0, 1), ranks[2].statuses()[-1]), ranks)
        wait_until(lambda: time.monotonic() - start > 1.8, ranks)
        assert canaries(ranks) - before >= 5
        assert "management" not in ranks[1].statuses()[-1]
        yield ranks


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (signal.SIGKILL, r"rank 2 \(spark3\) lost: (closed|reset) the connection on rail \w+ of spark{}"),
        (signal.SIGTERM, r"rank 2 \(spark3\) lost: (closed|reset) the connection on rail \w+ of spark{}"),
        (signal.SIGSTOP, r"rank 2 \(spark3\) lost: said nothing for 1 s"),
    ],
)
def test_a_silent_management_network_ends_nothing_and_hides_no_death(
    tmp_path: Path, number: signal.Signals, sentence: str
) -> None:
    with cut_off(tmp_path) as ranks:
        start = time.monotonic()
        ranks[2].signal(number)
        for rank in ranks[:2]:
            assert rank.exit_code() == 70
            # Rank 1 may have seen it itself, or heard it from rank 0.
            assert re.fullmatch(f"failed {sentence.format('[12]')}", rank.statuses()[-1])
        assert time.monotonic() - start < 4
        if number is signal.SIGTERM:
            assert ranks[2].exit_code() == 0


def test_a_member_that_both_networks_lost_is_gone(tmp_path: Path) -> None:
    with group(tmp_path, canary_timeout="1") as ranks, managed(ranks) as management, wired(ranks) as rails:
        start = time.monotonic()
        for wire in (management, *rails):
            wire.swallow.set()
        for rank, lost in zip(ranks, (2, 2, 0), strict=True):
            assert rank.exit_code() == 70
            assert rank.statuses()[-1] == f"failed rank {lost} (spark{lost + 1}) lost: said nothing for 1 s"
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("victim", [0, 2])
def test_in_a_larger_ring_the_dead_are_known_to_those_without_a_rail_to_them(tmp_path: Path, victim: int) -> None:
    with group(tmp_path, 4, 4) as ranks:
        ranks.start()
        ranks.until_ready()
        start = time.monotonic()
        ranks[victim].signal(signal.SIGKILL)
        for rank in ranks:
            if rank.number != victim:
                assert rank.exit_code() == 70
                assert rank.statuses()[-1].startswith(f"failed rank {victim} (spark{victim + 1}) lost: ")
        assert time.monotonic() - start < 4
