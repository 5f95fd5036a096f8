"""What a folded accept has given, copied before anyone else may write where it lies.

When accepting is part of the captured verify graph, its six results are views of buffers that the next replay
overwrites. With overlapped scheduling the copy to the host, and whoever reads the step's result, may come after that.
"""

from __future__ import annotations

from typing import Any

from adapter.declare import SCHEDULER, Adapter, Options, Symbol

_VERIFY = "sglang.srt.speculative.dspark_components.dspark_verify"
ADAPTER = Adapter(
    name="folded_result_fence",
    purpose="copies what a folded accept gives, so that the next step cannot change it under a reader",
    worth="closes a race that garbled tokens under load (knapcio, TP4); six small copies a step",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_VERIFY}:TargetVerifyExecutor.accept_and_finalize", "d71d5263d0535191"),
        Symbol(f"{_VERIFY}:AcceptOuts", "5730cec23aaf667c"),
        Symbol(f"{_VERIFY}:DsparkVerifyEpilogue.read_accept", "131c3f05025cccea"),
    ),
)
FIELDS = ("correct_len", "bonus", "cap_trim_lens", "commit_lens", "new_seq_lens", "out_tokens")


def install(_options: Options) -> None:
    from adapter.frame import hook

    hook(ADAPTER.symbol(f"{_VERIFY}:TargetVerifyExecutor.accept_and_finalize"), fenced, "after")


def fenced(accept: Any, *_arguments: Any, folded_accept: bool = False, **_rest: Any) -> Any:
    """After accept_and_finalize: an AcceptOuts of its own. On the stream that the accept ran on, so in its order."""
    if not folded_accept:
        return accept
    return type(accept)(**{name: getattr(accept, name).clone() for name in FIELDS})
