"""What the kernel says of a client that had no CPU."""

import os
from pathlib import Path

import pytest

from runtime.bench.measure import Settings
from runtime.bench.run import run
from runtime.bench.waiting import waited
from tests.runtime.fake_engine import FakeEngine


def test_the_kernel_is_asked() -> None:
    before = waited()
    assert before is not None
    os.sched_yield()
    after = waited()
    assert after is not None
    assert 0 <= before <= after


@pytest.mark.parametrize("text", [None, "", "17", "1 x 2"])
def test_a_kernel_that_does_not_count_is_no_failure(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "schedstat"
    if text is not None:
        path.write_text(text)
    assert waited(path) is None


def test_the_second_number_is_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "schedstat"
    path.write_text("123 2500000000 9\n")
    assert waited(path) == 2.5


@pytest.mark.parametrize(("step", "noted"), [(0.0, False), (5.0, True)])
def test_a_client_without_a_cpu_is_named(step: float, noted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [0.0]

    def kernel() -> float:
        spent[0] += step
        return spent[0]

    monkeypatch.setattr("runtime.bench.measure.waited", kernel)
    with FakeEngine(decode=0.002) as engine:
        (case,) = run(engine.url, "", Settings((1,), (), tokens=8, rounds=1), lambda _: None).decode
    assert any(note.startswith("this client waited for a CPU in up to ") for note in case.notes) == noted
