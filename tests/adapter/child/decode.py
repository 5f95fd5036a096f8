"""The adapters of decoding in SGLang's own modules, on a CPU; kernels in Triton's interpreter."""

from __future__ import annotations

import json
import os
import warnings
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
import torch

warnings.simplefilter("ignore")
NAMES = ("draft_head_fp8", "wo_a_w8", "verify_cap", "draft_tau", "folded_result_fence")
REQUESTS, ROWS, WORDS = 3, 6, 32


class Agree:
    """Ranks that agree already: one."""

    def enabled(self, _site: Any) -> bool:
        return False

    def sync(self, _site: Any, _tensor: torch.Tensor) -> None:
        return


def taus() -> dict[str, Any]:
    from sglang.srt.speculative.dspark_components import dspark_draft, dspark_draft_sampler, dspark_verify
    from sglang.srt.speculative.dspark_components.dspark_sampling_accept_graph import GraphSamplingInfo

    buffers = dspark_draft.DraftParams(torch.ones(4), torch.ones(4, dtype=torch.bool), torch.zeros(4))
    asked = SimpleNamespace(temperatures=torch.tensor([[0.9], [1.3], [0.4]]), top_ks=torch.tensor([9, 1, 5]))
    sampler = SimpleNamespace(params=buffers)
    dspark_draft_sampler.DsparkDraftSampler.stage_sampling_params(sampler, bs=3, sampling_info=asked)
    eager = dspark_draft.resolve_draft_params(sampling_info=asked, bs=3, device=torch.device("cpu"))
    plain = dspark_draft.resolve_draft_params(sampling_info=None, bs=2, device=torch.device("cpu"))
    seen: list[torch.Tensor] = []

    def rejection(**given: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        seen.append(given["sampling_info"].temperatures.clone())
        return torch.zeros(3), torch.zeros(3), torch.zeros(3)

    dspark_verify.AcceptSampling.execute, kept = rejection, dspark_verify.AcceptSampling.execute
    block = SimpleNamespace(greedy_mask=None, greedy_draft=True, draft_tokens=torch.zeros(3, 5, dtype=torch.int64))
    try:
        dspark_verify.accept_draft_tokens(
            candidates=torch.zeros(3, 6, dtype=torch.int64), target_logits=torch.zeros(18, 8), draft_block=block,
            sampling_info=GraphSamplingInfo(temperatures=buffers.temperatures[:3]), draft_input=None, gamma=5,
            verify_num_draft_tokens=6,
        )  # fmt: skip
    finally:
        dspark_verify.AcceptSampling.execute = kept
    return {
        "static": [buffers.temperatures[:3].tolist(), buffers.step_temperatures[:3].tolist()],
        "eager": [eager.temperatures.tolist(), eager.step_temperatures.tolist()],
        "greedy": plain.step_temperatures.tolist(),
        "target": torch.equal(seen[0], asked.temperatures.view(-1)),
    }


def epilogue(verify: Any) -> Any:
    made = verify.DsparkVerifyEpilogue(
        max_bs=REQUESTS + 1, verify_num_draft_tokens=ROWS, device=torch.device("cpu"), tp_sync=Agree()
    )
    made.begin_static_step(REQUESTS, True)
    return made


def step(verify: Any, made: Any, *, match: int) -> None:
    """A greedy block whose first `match` drafts are what the target says."""
    candidates = torch.arange(REQUESTS * ROWS).view(REQUESTS, ROWS) % WORDS
    logits = torch.zeros(REQUESTS, ROWS, WORDS)
    says = (candidates.roll(-1, 1) + (torch.arange(ROWS) >= match)) % WORDS
    logits.scatter_(2, says[:, :, None], 1.0)
    made.run_static(
        verify.StaticVerifyIO(
            candidates=candidates, logits=logits.view(-1, WORDS), hidden=torch.zeros(REQUESTS * ROWS, 4),
            seq_lens=torch.tensor([10, 20, 30]), req_pool_indices=torch.arange(REQUESTS),
            out_cache_loc=torch.zeros(REQUESTS * ROWS), positions=torch.zeros(REQUESTS * ROWS),
        ),
        accept=made._accept_static_greedy, gate=made.inject_gate_buf,
    )  # fmt: skip


def fence(verify: Any) -> dict[str, Any]:
    """What a reader holds of one step after the next has run."""
    made = epilogue(verify)
    executor = SimpleNamespace(verify_epilogue=made)
    rest: dict[str, Any] = dict.fromkeys(
        ("verify_ids_2d", "target_logits", "draft_block", "sampling_info", "draft_input", "layout", "prefix_lens",
         "draft_tokens")
    )  # fmt: skip
    made.note_static_verify = lambda _requests: None
    step(verify, made, match=3)
    finalize = verify.TargetVerifyExecutor.accept_and_finalize
    held = finalize(executor, folded_accept=True, bs=REQUESTS, **rest)
    first = {name: getattr(held, name).tolist() for name in held.__struct_fields__}
    step(verify, made, match=1)
    return {name: getattr(held, name).tolist() == value for name, value in first.items()}


def capped(verify: Any, confidence: torch.Tensor | None) -> dict[str, Any]:
    from sglang.srt.speculative.dspark_components.dspark_draft_sampler import DsparkDraftSampler

    head = None if confidence is None else SimpleNamespace(proj=torch.nn.Linear(2, 1))
    markov = SimpleNamespace(vocab_shard=None)
    model = SimpleNamespace(markov_head=markov, sample_from_anchor=True, confidence_head=head)
    sampler = DsparkDraftSampler(
        model=model, gamma=ROWS - 1, max_bs=REQUESTS + 1, device=torch.device("cpu"), noise=None, tp_sync=Agree(),
        greedy_draft=True,
    )  # fmt: skip
    if confidence is not None:
        sampler.confidence_out[:REQUESTS].copy_(confidence)
    made = epilogue(verify)
    step(verify, made, match=4)
    out = made.read_accept(REQUESTS)
    return {name: getattr(out, name).tolist() for name in out.__struct_fields__}


def routed() -> dict[str, Any]:
    """Experts of a target's verify pass, and of a prefill."""
    from sglang.srt.layers.moe.topk import StandardTopKOutput, TopK
    from sglang.srt.models.deepseek_v4 import DeepseekV4Model

    ids = torch.arange(REQUESTS * ROWS * 2, dtype=torch.int32).view(-1, 2)
    found = {}
    for name, verify in (("verify", True), ("prefill", False)):
        cap = caps[-1]
        output = StandardTopKOutput(topk_weights=torch.ones(ids.shape), topk_ids=ids.clone(), router_logits=None)
        batch = SimpleNamespace(
            batch_size=REQUESTS, forward_mode=SimpleNamespace(is_target_verify=lambda verify=verify: verify)
        )

        def inner(*_given: Any, cap: Any = cap, output: Any = output) -> Any:
            return cap.routed(output, None)

        cap.forward(inner, None, torch.zeros(REQUESTS * ROWS), None, batch)
        found[name] = output.topk_ids[:, 0].tolist()
    found["hooked"] = [hasattr(DeepseekV4Model.forward, "__wrapped__"), hasattr(TopK.forward_cuda, "__wrapped__")]
    return found


def heads() -> dict[str, Any]:
    """The real functions: with no GPU they give their own result; with a twin, the twin's."""
    from sglang.srt.models import deepseek_v4, deepseek_v4_dspark

    from adapter.draft_head_fp8 import Head
    from adapter.kernels import blockfp8
    from adapter.wo_a_w8 import Twins

    chance = torch.Generator().manual_seed(4)
    weight = blockfp8.quantized(torch.randn(96, 64, generator=chance).mul_(0.02).bfloat16()).dense()[0]
    lm_head = SimpleNamespace(weight=torch.nn.Parameter(weight, requires_grad=False), quant_method=None)
    hidden = torch.randn(5, 64, generator=chance).bfloat16()
    through = deepseek_v4_dspark.project_through_lm_head(hidden, lm_head)
    head = Head(8)
    head.twin, head._weight = blockfp8.quantized(weight), weight.data_ptr()
    found = head.project(lambda *_: None, hidden, lm_head)
    twins, dropped = Twins("mid"), Twins("drop")
    wo_a = torch.nn.Parameter(blockfp8.quantized(torch.randn(64, 64).mul_(0.02).bfloat16()).dense()[0])
    o = torch.randn(5, 2, 64, generator=chance).bfloat16()
    plain = deepseek_v4._apply_wo_a_bf16_matmul(o, wo_a.view(2, 32, 64), is_decode=True)
    inexact = torch.nn.Parameter(torch.randn(64, 64).bfloat16())
    twins.keep(inexact, 2)
    twins.keep(wo_a, 2)
    exact = twins.multiply(None, o, wo_a.view(2, 32, 64), is_decode=True)
    dropped.keep(wo_a, 2)
    freed = wo_a.untyped_storage().nbytes()
    again = dropped.multiply(None, o, wo_a.view(2, 32, 64), is_decode=True)
    many = torch.randn(70, 2, 64, generator=chance).bfloat16()
    whole = dropped.multiply(lambda o, w, **_: torch.einsum("tgd,grd->tgr", o, w), many, wo_a.view(2, 32, 64))
    return {
        "head": [getattr(found, of) == getattr(through, of) for of in ("shape", "dtype")] + [found.is_contiguous()],
        "head off": float((found.float() - through.float()).norm() / through.float().norm()),
        "wo_a": [tuple(exact.shape) == tuple(plain.shape), exact.dtype == plain.dtype, exact.is_contiguous()],
        "wo_a off": float((exact.float() - plain.float()).norm() / plain.float().norm()),
        "kept": [twins.kept, twins.refused, twins.taken],
        "dropped": [freed, torch.equal(exact, again), list(whole.shape), bool(whole.isfinite().all())],
        "hooked": hasattr(deepseek_v4_dspark.project_through_lm_head, "__wrapped__"),
    }  # fmt: skip


caps: list[Any] = []


def run_scheduler_process(live: str) -> None:
    """Named as SGLang's, by which the frame knows the process that has the model."""
    from adapter import plugin, verify_cap

    class Seen(verify_cap.Cap):
        def __init__(self, live: str) -> None:
            super().__init__(live)
            caps.append(self)

    verify_cap.Cap = Seen  # type: ignore[misc]
    options: dict[str, Any] = {name: {} for name in NAMES}
    options["verify_cap"] = {"live": live}
    options["draft_tau"] = {"tau": 0.5}
    plugin.install(json.dumps(options), os.environ)


if __name__ == "__main__":
    from sglang.srt.speculative.dspark_components import dspark_verify

    unfenced = fence(dspark_verify)
    run_scheduler_process("conf:0.5")
    sure = torch.tensor([[0.9, 0.4, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9, 0.9], [0.1, 0.9, 0.9, 0.9, 0.9]])
    by_confidence = capped(dspark_verify, sure)
    print(
        json.dumps(
            {
                "without the fence": unfenced,
                "with it": fence(dspark_verify),
                "by confidence": by_confidence,
                "experts": routed(),
                "tau": taus(),
                "weights": heads(),
            }
        )
    )
