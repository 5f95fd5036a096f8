"""What is told while a command waits, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from sparkd.cli.ticker import Ticker, shape


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("epoch 7 starts in 18 s", "epoch 7 starts in 0 s"),
        ("warmup 3/6, measuring enp1s0f0np0", "warmup 4/6, measuring enp1s0f0np0"),
        ("silent for 1.5 s (and 3 more)", "silent for 12 s (and 2 more)"),
    ],
)
def test_sentences_that_differ_in_their_numbers_only(one: str, other: str) -> None:
    assert shape(one) == shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("waits for spark1", "waits for spark2"),
        ("measuring enp1s0f0np0", "measuring enp1s0f1np1"),
        ("no cable at port 0", "no cable at port 1"),
        ("rank 1 (spark2)", "rank 2 (spark2)"),
        ("epoch 7 waits", "epoch 12 waits"),
        ("no answer of 192.168.77.1", "no answer of 192.168.77.2"),
        ("192.168.77.1:7475 is silent", "192.168.77.1:7476 is silent"),
        ("10.77.0.0/24 overlaps", "10.77.0.0/21 overlaps"),
        ("spark1.0~spark2.1", "spark1.0~spark2.0"),
        ("sparkd-rank@7.service", "sparkd-rank@8.service"),
    ],
)
def test_digits_in_names_count(one: str, other: str) -> None:
    assert shape(one) != shape(other)


def test_elsewhere_a_line_for_each_sentence_that_says_more_than_numbers() -> None:
    out = io.StringIO()
    with Ticker(out, "epoch 8 waits: for spark3") as ticker:
        ticker.tell(0.1, "epoch 8 waits: for spark3")
        ticker.tell(1, "it starts in 18 s")
        ticker.tell(2, "it starts in 17 s")
        ticker.note(3, "now epoch 9: a restart")
        ticker.tell(4, "all ranks serve")
    assert out.getvalue().splitlines() == [
        "    1.0 s  it starts in 18 s",
        "    3.0 s  now epoch 9: a restart",
        "    4.0 s  all ranks serve",
    ]


def test_a_terminal_has_one_line_which_stays_whole_at_the_end() -> None:
    out = Terminal()
    with Ticker(out, "it starts in 18 s") as ticker:
        ticker.tell(1, "it starts in 17 s")
        ticker.note(2, "now epoch 9: a restart")
        ticker.tell(3, f"it waits for {'x' * 40}")
    assert out.getvalue() == (
        "\r    1.0 s  it starts in 17 s\x1b[K"
        "\r\x1b[K    2.0 s  now epoch 9: a restart\n"
        f"\r    3.0 s  it waits for {'x' * 12}...\x1b[K"
        f"\r\x1b[K    3.0 s  it waits for {'x' * 40}\n"
    )


def test_a_failure_begins_on_a_line_of_its_own() -> None:
    out = Terminal()

    def interrupted() -> None:
        with Ticker(out) as ticker:
            ticker.tell(1, "it waits")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.getvalue().endswith("it waits\n")


def test_a_terminal_without_a_cursor_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with Ticker(out) as ticker:
        ticker.tell(1, "it waits")
        ticker.tell(1.2, "it waits")
    assert out.getvalue() == "    1.0 s  it waits\n"
