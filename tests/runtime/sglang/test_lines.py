"""Lines out of a pipe, in whatever pieces they come."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from runtime.sglang.lines import LINE_MAX, Line, Lines
from runtime.sglang.stages import is_bar

BAR = "Loading safetensors checkpoint shards:  50% Completed | 24/48 [03:36<03:36,  9.02s/it]"


def texts(data: bytes, size: int = 1 << 20) -> list[Line]:
    lines = Lines(is_bar)
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    return found + list(lines.finish())


def test_lines_keep_their_indentation_and_empty_ones_are_left_out() -> None:
    assert texts(b'a\n\n  File "x"\r\nlast') == [Line("a"), Line('  File "x"'), Line("last")]


def test_invalid_utf_8_is_replaced_and_a_long_line_is_cut() -> None:
    assert texts(b"\xff\xfeok\n") == [Line("\ufffd\ufffdok")]
    (long,) = texts(b"x" * 1_000_000 + b"\n")
    assert long.text == "x" * LINE_MAX + " [cut]"
    assert texts(b"x" * LINE_MAX + b"\n") == [Line("x" * LINE_MAX)]


def test_a_line_without_an_end_is_not_kept() -> None:
    lines = Lines(is_bar)
    tracemalloc.start()
    for _ in range(100):
        assert list(lines.feed(b"x" * 65536)) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_bar_is_seen_before_anything_ends_it_and_once() -> None:
    lines = Lines(is_bar)
    assert list(lines.feed(b"\r" + BAR.encode())) == [Line(BAR, bar=True)]
    assert list(lines.feed(b"\rnext\n")) == [Line("next")]


def test_half_a_bar_is_none() -> None:
    lines = Lines(is_bar)
    assert list(lines.feed(BAR[:70].encode())) == []
    assert list(lines.feed(BAR[70:].encode())) == [Line(BAR, bar=True)]


@given(st.binary(max_size=400), st.integers(1, 50))
def test_the_pieces_make_no_difference_to_the_lines(data: bytes, size: int) -> None:
    # A carriage return and a line feed that come apart may make an additional empty line, which is left out.
    assert [line.text for line in texts(data, size)] == [line.text for line in texts(data)]
