"""The judge of a soak: that it sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.control import Lab
from tests.lab.watch import PATIENCE, Life, Violation, Watch, lives, overlap

UNIT = "sparkd-rank@{}.service"


def line(at: float, epoch: int, text: str) -> tuple[float, str, str]:
    return at, UNIT.format(epoch), text


def test_lives_are_from_starting_to_the_end_of_the_process_or_of_the_host() -> None:
    told = [
        line(1, 7, "Starting sparkd-rank@7.service - Rank..."),
        line(2, 7, "Started sparkd-rank@7.service - Rank."),
        line(3, 7, "sparkd-rank@7.service: Main process exited, code=killed, status=9/KILL"),
        line(3.1, 7, "sparkd-rank@7.service: Failed with result 'signal'."),
        line(4, 8, "Starting sparkd-rank@8.service - Rank..."),
        line(6, 9, "Starting sparkd-rank@9.service - Rank..."),
        (6.5, "ssh.service", "Starting ssh.service"),
        line(7, 9, "sparkd-rank@9.service: Deactivated successfully."),
        line(8, 10, "Starting sparkd-rank@10.service - Rank..."),
    ]
    assert lives("spark2", told, [5.0], 9.0) == [
        Life("spark2", 7, 1, 3),
        Life("spark2", 8, 4, 5.0),
        Life("spark2", 9, 6, 7),
        Life("spark2", 10, 8, 9.0),
    ]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (Life("spark2", 8, 3.0, 4.0), False),
        (Life("spark2", 7, 1.5, 4.0), False),
        (Life("spark2", 8, 2.9, 4.0), True),
        (Life("spark1", 8, 2.0, 2.5), True),
        (Life("spark2", 6, 0.5, 1.1), True),
    ],
)
def test_two_epochs_at_once_are_found_wherever_they_are(second: Life, found: bool) -> None:
    first = Life("spark1", 7, 1.0, 3.0)
    short = Life("spark3", 7, 1.2, 1.3)
    assert (overlap([second, short, first]) is not None) == found


def ring(epoch: int, want: str = "down", phase: str = "down") -> dict[str, object]:
    return {"epoch": epoch, "want": want, "phase": phase, "summary": f"{phase}: x"}


ALIVE = "sparkd-rank@7.service loaded active running Rank"


def test_a_rank_of_a_ring_that_is_down_has_its_time_to_end_and_no_more(tmp_path: Path) -> None:
    watch = Watch(Lab(tmp_path / "lab"))
    watch.judge("spark2", ALIVE, ring(8), None, 100)
    watch.judge("spark2", ALIVE, ring(9, "up", "starting"), None, 100 + PATIENCE)
    watch.judge("spark2", ALIVE, ring(10), None, 101 + PATIENCE)
    watch.judge("spark2", ALIVE, ring(10), None, 101 + 2 * PATIENCE)
    watch.check_samples()
    watch.judge("spark2", "", ring(10), None, 102 + 2 * PATIENCE)
    watch.check_samples()
    watch.judge("spark2", ALIVE, ring(10), None, 103 + 2 * PATIENCE)
    with pytest.raises(Violation, match="spark2: epochs 7 are alive 17 s after down: x"):
        watch.check_samples()


@pytest.mark.parametrize("cleared", [True, False])
def test_a_held_ring_that_starts_uncleared_is_found_at_any_node(tmp_path: Path, cleared: bool) -> None:
    watch = Watch(Lab(tmp_path / "lab"))
    watch.judge("spark1", "", ring(8, "down", "held"), None, 1)
    assert watch.held == 8
    watch.judge("spark3", "", ring(7, "up", "ready"), watch.held, 2)
    watch.check_samples()
    before = watch.held
    if cleared:
        watch.cleared()
    watch.judge("spark3", "", ring(9, "up", "gated"), before, 3)
    if cleared:
        watch.check_samples()
        return
    with pytest.raises(Violation, match="spark3: epoch 9 is wanted up, and nobody cleared the held 8"):
        watch.check_samples()
