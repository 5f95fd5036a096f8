"""Why a command of sparkd-engine cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Trouble(Exception):
    """`text` says what was seen and what was expected, in a sentence or one line per problem; `hint` what to do."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an OSError into a Trouble that names the file."""
    try:
        yield
    except OSError as error:
        raise Trouble(f"{error.filename or path}: {error.strerror or error}") from error
