"""In the scheduler, on every rank alike: what ends a request. Each rank has the same tokens and so decides the same."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_LENGTH

from adapter.serving_guards.loops import WINDOW, lines_loop, tokens_loop

EVERY = 16
"""Tokens between two looks: one takes some 20 us."""
LINES_EVERY = 64
LINES_WINDOW = 768
_LOOKED = "sparkd_looked_at"


class FinishRepetition(FINISH_LENGTH):  # type: ignore[misc]
    """As if the length had ended it, and why."""

    def __init__(self, length: int, how: str) -> None:
        super().__init__(length)
        self.how = how

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "reason": "repetition", "repeated": self.how}


def after_update(_result: None, request: Any, *_arguments: Any, **_options: Any) -> None:
    """After Req.update_finish_state."""
    # Who asks for the end of the text to be ignored measures, and wants that many tokens.
    if request.finished() or request.sampling_params.ignore_eos:
        return
    length = len(request.output_ids)
    looked = getattr(request, _LOOKED, 0)
    if length // EVERY == looked // EVERY and length >= looked:
        return
    setattr(request, _LOOKED, length)
    how = tokens_loop(list(request.output_ids[-WINDOW:]))
    if not how and length // LINES_EVERY != looked // LINES_EVERY and request.tokenizer is not None:
        how = lines_loop(request.tokenizer.decode(list(request.output_ids[-LINES_WINDOW:])))
    if how:
        request.finished_reason = FinishRepetition(length, how)
        request.finished_len = length
