"""A few seconds of what `make fuzz` does for minutes."""

from __future__ import annotations

import asyncio

from tests.fuzz import __main__ as fuzz


def test_no_listener_fails_or_answers_what_its_document_does_not_tell() -> None:
    assert fuzz.PROGRAM.exists(), "tests/fuzz/deps brings schemathesis in; make test runs it"
    assert asyncio.run(fuzz.fuzz(0, examples=2, seed=1, phases="fuzzing")) == 0
