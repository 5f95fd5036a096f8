"""No more of a drafted block verified than is likely to be accepted, decided inside the captured verify graph.

The verify graph has a row for each draft. Which rows count is decided per request and step, by the draft's own
confidence or by a fixed number: the others still run, but use the experts that the anchor's row uses, so they read no
weight of their own, and what is accepted beyond them is cut. See adapter.kernels.cap for why that is lossless.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from adapter.declare import SCHEDULER, Adapter, AdapterError, Option, Options, Symbol, end_process

_BUILD = "sglang.srt.models.deepseek_v4_dspark:build_dspark_v4_confidence_head"
_PLAN = "sglang.srt.speculative.dspark_components.dspark_planner:DSparkVerifyPlanner.schedule_layout"
_EPILOGUE = "sglang.srt.speculative.dspark_components.dspark_verify:DsparkVerifyEpilogue"
_SAMPLER = "sglang.srt.speculative.dspark_components.dspark_draft_sampler:DsparkDraftSampler.__init__"
_FORWARD = "sglang.srt.models.deepseek_v4:DeepseekV4Model.forward"
_TOPK = "sglang.srt.layers.moe.topk:TopK.forward_cuda"
ADAPTER = Adapter(
    name="verify_cap",
    purpose="verifies drafts up to the first of low confidence, or a fixed number of them",
    worth="fewer experts read per step where drafts are doubtful (knapcio, TP4); kernel measured, engine not run",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(_BUILD, "47bf1272e88f0bf1"),
        Symbol(_PLAN, "ade4e8560c8a8623"),
        Symbol(f"{_EPILOGUE}.run_static", "10b034d0b036ecd8"),
        Symbol(f"{_EPILOGUE}.begin_static_step", "185d70169da957be"),
        Symbol(f"{_EPILOGUE}._accept_static_greedy", "2b9325752310f456"),
        Symbol(
            "sglang.srt.speculative.dspark_components.dspark_sampling_accept_graph:sampling_accept_commit_lens",
            "6847c402c5bf3648",
        ),
        Symbol(_SAMPLER, "90da324c489cc677"),
        Symbol(_FORWARD, "3e0d3ba2f262518a"),
        Symbol(_TOPK, "7d83b872d5f6af8d"),
    ),
    options={"live": Option("conf:0.5", "conf:T, conf:T1,T2,... with one for each draft, or 1 to 5 drafts")},
    shares=("kernels",),
)


def path() -> str:
    from adapter.kernels.support import path

    return path("plain PyTorch")


def thresholds_of(live: str, gamma: int) -> list[float]:
    """The least confidence of each draft. A fixed number has 0 and infinity. Raises AdapterError."""
    kind, _, values = live.partition(":")
    if kind == "conf" and values:
        try:
            found = [float(value) for value in values.split(",")]
        except ValueError:
            found = []
        if found and all(0 <= value <= 1 for value in found) and len(found) in (1, gamma):
            return found * (gamma if len(found) == 1 else 1)
        raise AdapterError(
            f"adapters.verify_cap.live: found {live!r}, expected conf: and 1 or {gamma} thresholds from 0 to 1"
        )
    if live in ("1", "2", "3", "4", "5"):
        kept = min(int(live), gamma)
        return [0.0] * kept + [float("inf")] * (gamma - kept)
    raise AdapterError(f"adapters.verify_cap.live: found {live!r}, expected conf:T, conf:T1,T2,... or 1 to 5")


def install(options: Options) -> None:
    import sglang.srt.models.deepseek_v4
    import sglang.srt.speculative.dspark_components.dspark_sampling_accept_graph  # noqa: F401

    from adapter.frame import hook
    from adapter.kernels import support

    live = str(options["live"])
    thresholds_of(live, live.count(",") + 1)
    cap = Cap(live)
    if why := support.obstacle():
        support.say(ADAPTER.name, f"{why}, so blocks are cut by plain PyTorch")
    hook(ADAPTER.symbol(_BUILD), cap.build, "around")
    hook(ADAPTER.symbol(_SAMPLER), cap.sampler_made, "after")
    hook(ADAPTER.symbol(_PLAN), cap.planned, "after")
    hook(ADAPTER.symbol(f"{_EPILOGUE}.run_static"), cap.run_static, "around")
    hook(ADAPTER.symbol(_FORWARD), cap.forward, "around")
    hook(ADAPTER.symbol(_TOPK), cap.routed, "after")


class Cap:
    def __init__(self, live: str) -> None:
        self._live = live
        self._by_confidence = live.startswith("conf")
        self._confidence: Any = None
        self._thresholds: Any = None
        # Of the forward pass that is running: each request's live length, and rows of a request.
        self._current: tuple[Any, int] | None = None

    def build(self, original: Any, *, config: Any, markov_rank: int) -> Any:
        """Around build_dspark_v4_confidence_head, which leaves the head out where SGLang itself has no use for it."""
        head = original(config=config, markov_rank=markov_rank)
        if head is not None or not self._by_confidence:
            return head
        from sglang.srt.models.dspark import DSparkConfidenceHead

        with_markov = getattr(config, "confidence_head_with_markov", None)
        return DSparkConfidenceHead(
            hidden_size=int(config.hidden_size),
            markov_rank=int(markov_rank),
            with_markov=markov_rank > 0 if with_markov is None else bool(with_markov),
            bias=False,
        )

    def sampler_made(self, _result: None, sampler: Any, *_arguments: Any, **_options: Any) -> None:
        """The buffer that the draft graph leaves each block's confidence in, [most requests, gamma]."""
        import torch

        device = sampler.out.device
        try:
            values = thresholds_of(self._live, sampler.gamma)
        except AdapterError as error:
            end_process(ADAPTER.name, str(error))
        self._thresholds = torch.tensor(values, dtype=torch.float32, device=device)
        if not self._by_confidence:
            self._confidence = torch.zeros((sampler.max_bs, sampler.gamma), dtype=torch.float32, device=device)
        elif sampler.confidence_out is not None:
            self._confidence = sampler.confidence_out
        else:
            end_process(ADAPTER.name, "the draft has no confidence head; set adapters.verify_cap.live to 1 to 5")

    def live(self, requests: int) -> Any:
        """int64 [requests], for the block that was drafted last."""
        from adapter.kernels.cap import live_lengths

        return live_lengths(self._confidence[:requests], self._thresholds)

    def planned(
        self, layout: Any, planner: Any, *, device: Any, confidence: Any, req_pool_indices: Any, **_: Any
    ) -> Any:
        """After schedule_layout: for steps that accept outside a graph, where SGLang cuts by a layout's lengths."""
        if layout is not None or planner.mode_value != "static":
            return layout
        import torch
        from sglang.srt.speculative.ragged_verify import RaggedVerifyLayout

        from adapter.kernels.cap import live_lengths

        requests, gamma = len(req_pool_indices), planner.gamma
        if self._by_confidence and confidence is None:
            return None
        given = confidence if self._by_confidence else torch.zeros((requests, gamma), device=device)
        thresholds = torch.tensor(thresholds_of(self._live, gamma), dtype=torch.float32, device=given.device)
        lengths = live_lengths(given.view(requests, gamma).float(), thresholds).to(device=device, dtype=torch.int32)
        rows = requests * planner.verify_num_draft_tokens
        return RaggedVerifyLayout.from_verify_lens_device(verify_lens=lengths, graph_num_tokens=rows)

    def run_static(self, original: Any, epilogue: Any, io: Any, *, accept: Any, **rest: Any) -> Any:
        """Around DsparkVerifyEpilogue.run_static, in a graph and outside: cut between accept and commit."""
        return original(epilogue, io, accept=partial(self._accept, epilogue, accept), **rest)

    def _accept(self, epilogue: Any, accept: Any, io: Any, *, verify_lens: Any, gate: Any, gated: bool) -> Any:
        import torch

        from adapter.kernels.cap import Block, apply

        result = accept(io, verify_lens=verify_lens, gate=gate, gated=gated)
        requests = io.candidates.shape[0]
        if self._confidence is None or epilogue.simulated_correct_len is not None:
            return result
        out = epilogue.read_accept(requests)
        block = Block(
            confidence=self._agreed(epilogue, requests), candidates=io.candidates, verify_lens=verify_lens,
            seq_lens=io.seq_lens, correct=out.correct_len, bonus=out.bonus, trimmed=out.cap_trim_lens,
            commit=out.commit_lens, new_seq_lens=out.new_seq_lens, tokens=out.out_tokens,
        )  # fmt: skip
        apply(block, self._thresholds)
        return torch.minimum(out.commit_lens, verify_lens.to(torch.int32)) * gate if gated else result

    def _agreed(self, epilogue: Any, requests: int) -> Any:
        """The confidence that rank 0 has, where SGLang is told to have ranks agree on what is accepted."""
        from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite

        confidence = self._confidence[:requests]
        epilogue._tp_sync.sync(SpecTpSyncSite.DSPARK_ACCEPT_GRAPH, confidence)
        return confidence

    def forward(self, original: Any, model: Any, input_ids: Any, positions: Any, forward_batch: Any, *rest: Any,
                **options: Any) -> Any:  # fmt: skip
        """Around the target's forward pass: which rows of it are dead."""
        requests = forward_batch.batch_size
        rows = input_ids.shape[0] // requests if requests else 0
        if (
            self._confidence is None
            or not forward_batch.forward_mode.is_target_verify()
            or rows != self._confidence.shape[1] + 1
            or requests > self._confidence.shape[0]
        ):
            return original(model, input_ids, positions, forward_batch, *rest, **options)
        self._current = (self.live(requests), rows)
        try:
            return original(model, input_ids, positions, forward_batch, *rest, **options)
        finally:
            self._current = None

    def routed(self, output: Any, _topk: Any, *_arguments: Any, **_options: Any) -> Any:
        """After the choice of experts."""
        experts = getattr(output, "topk_ids", None)
        if self._current is None:
            return output
        live, rows = self._current
        if experts is None or experts.shape[0] != live.shape[0] * rows:
            from adapter.kernels import support

            support.say(ADAPTER.name, "experts are chosen inside another kernel, so dead rows keep their own")
            return output
        from adapter.kernels.cap import anchor_experts

        anchor_experts(experts, live, rows)
        return output
