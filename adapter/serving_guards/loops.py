"""Whether a sequence of tokens, or a text, has begun to repeat itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence

EQUAL_TOKENS = 64
CYCLE_TOKENS, CYCLE_COPIES, CYCLE_LONGEST = 32, 4, 512
EQUAL_LINES, LINE_CHARACTERS = 8, 16
WINDOW = max(EQUAL_TOKENS, CYCLE_LONGEST * CYCLE_COPIES)
"""Tokens at the end that make a difference."""


def tokens_loop(tokens: Sequence[int]) -> str:
    """How the end of it repeats itself, "" if it does not.

    64 equal tokens; or the same 32 to 512 tokens four times in a row. Shorter cycles are found as multiples of theirs:
    one of five tokens is one of 35 too, and by then long enough not to be a table or a list.
    """
    length = len(tokens)
    if length >= EQUAL_TOKENS and len(set(tokens[-EQUAL_TOKENS:])) == 1:
        return f"{EQUAL_TOKENS} equal tokens"
    last = tokens[-1] if length else 0
    for cycle in range(CYCLE_TOKENS, min(CYCLE_LONGEST, length // CYCLE_COPIES) + 1):
        # Nearly always over after one or two comparisons.
        if tokens[-1 - cycle] != last or tokens[-1 - 2 * cycle] != last:
            continue
        body = tokens[-cycle:]
        copies = (tokens[length - (each + 1) * cycle : length - each * cycle] for each in range(1, CYCLE_COPIES))
        if all(copy == body for copy in copies):
            return f"{cycle} tokens {CYCLE_COPIES} times"
    return ""


def lines_loop(text: str) -> str:
    """How the last whole lines repeat themselves, "" if they do not: 8 equal ones of at least 16 characters."""
    lines = text.split("\n")[:-1][-EQUAL_LINES:]
    equal = len(lines) == EQUAL_LINES and len(set(lines)) == 1
    return f"{EQUAL_LINES} equal lines" if equal and len(lines[0].strip()) >= LINE_CHARACTERS else ""
