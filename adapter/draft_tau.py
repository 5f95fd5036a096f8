"""The draft sampled at tau times the request's temperature: a sharper draft proposes what the target accepts.

Lossless: verification divides by the distribution that the draft was sampled from, so it has to be told the scaled
temperature, and is. The accept that SGLang runs in a CUDA graph takes the target's temperature from the draft's
buffer, which is the same by itself; here it is given the request's own.
"""

from __future__ import annotations

from typing import Any

from adapter.declare import SCHEDULER, Adapter, Option, Options, Symbol

_DRAFT = "sglang.srt.speculative.dspark_components.dspark_draft"
_SAMPLER = "sglang.srt.speculative.dspark_components.dspark_draft_sampler"
_VERIFY = "sglang.srt.speculative.dspark_components.dspark_verify"
_GRAPH = "sglang.srt.speculative.dspark_components.dspark_sampling_accept_graph"
_LEAST = 1e-5
"""SGLang's own floor of a temperature."""
ADAPTER = Adapter(
    name="draft_tau",
    purpose="samples the draft at a lower temperature than the request's; the output's distribution stays",
    worth="more tokens accepted per step of sampled requests (knapcio, TP4); not measured here",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_DRAFT}:resolve_draft_params", "e605178129daa8d4"),
        Symbol(f"{_DRAFT}:DraftParams", "4758dc64a9769cde"),
        Symbol(f"{_SAMPLER}:DsparkDraftSampler.stage_sampling_params", "53c93ef7efb5d521"),
        Symbol(f"{_VERIFY}:accept_draft_tokens", "cb1431c9a10d3b5d"),
        Symbol(f"{_GRAPH}:sampling_accept_commit_lens", "6847c402c5bf3648"),
        Symbol(f"{_GRAPH}:GraphSamplingInfo", "b40a0111729dced4"),
    ),
    options={"tau": Option(0.7, "the draft's temperature in units of the request's; 1 leaves it", low=0.05, high=2)},
)


def install(options: Options) -> None:
    import sglang.srt.speculative.dspark_components.dspark_sampling_accept_graph  # noqa: F401 - it imports both names

    from adapter.frame import hook

    tau = Tau(float(options["tau"]))  # type: ignore[arg-type]
    hook(ADAPTER.symbol(f"{_DRAFT}:resolve_draft_params"), tau.scaled, "after")
    hook(ADAPTER.symbol(f"{_VERIFY}:accept_draft_tokens"), tau.accept, "around")


class Tau:
    def __init__(self, tau: float) -> None:
        self._tau = tau
        # The request's temperatures, by the static buffer that a graph reads the draft's from.
        self._own: dict[int, Any] = {}

    def scaled(self, params: Any, **_arguments: Any) -> Any:
        """After resolve_draft_params, whose tensors are views of static buffers or its own: changed in place."""
        import torch

        out = _arguments.get("out")
        if out is not None:
            whole = out.temperatures
            own = self._own.setdefault(whole.data_ptr(), torch.ones_like(whole))
            own[: params.temperatures.shape[0]].copy_(params.temperatures)
        params.temperatures.mul_(self._tau).clamp_(min=_LEAST)
        torch.where(
            params.greedy_mask, torch.zeros_like(params.temperatures), params.temperatures, out=params.step_temperatures
        )
        return params

    def accept(self, original: Any, *, sampling_info: Any, **rest: Any) -> Any:
        """Around accept_draft_tokens: the request's temperatures for the target, where it is given the draft's."""
        given = getattr(sampling_info, "temperatures", None)
        own = None if given is None else self._own.get(given.data_ptr())
        if given is not None and own is not None:
            sampling_info = type(sampling_info)(temperatures=own[: given.shape[0]])
        return original(sampling_info=sampling_info, **rest)
