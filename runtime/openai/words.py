"""Text whose length in tokens can be foretold, whatever the tokenizer.

All words have four letters and are common: a tokenizer with merges has one token for each, and one of bytes has five.
So the tokens of a prompt grow by the same number with each word.
"""

import os

_TEXT = (
    "able also area army away baby back ball bank base bear beat bird blue boat body bone book born both "
    "call card care case city cold cook cool corn dark data date door down duck each east edge face fact "
    "farm fast film fire fish flat food foot form game gate gift girl give glad gold good gray half hand"
)
WORDS = tuple(_TEXT.split())


def words(count: int, seed: bytes | None = None) -> str:
    """``count`` words; random ones without ``seed``, otherwise those that its bytes pick, over and over."""
    picks = os.urandom(count) if seed is None else seed * (count // len(seed) + 1)
    return " ".join(WORDS[pick % len(WORDS)] for pick in picks[:count])
