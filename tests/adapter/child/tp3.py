"""The tiny V4.1 at one rank and at three, in the real classes of SGLang, with both paddings; saves what was seen.

Imported once and then forked: a rank of its own would import for ten seconds and take 600 MB.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sglang.kernels.ops.layernorm.mhc as mhc_kernels
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.models import deepseek_v4, deepseek_v4_dspark

from tests.adapter.child import shims, tiny

PROMPT, STEPS = 8, 6
BLOCK = 32
Values = dict[str, Any]


def stand_in() -> None:
    """What needs a GPU, in plain PyTorch."""
    for module in (deepseek_v4, deepseek_v4_dspark):
        module.fused_rope_inplace = shims.rope_inplace
    deepseek_v4.get_rope_wrapper = lambda **_options: torch.nn.Identity()
    mhc_kernels.hc_split_sinkhorn = shims.split_sinkhorn
    mhc_kernels.mhc_post = shims.streams_post
    mhc_kernels.mhc_combine = shims.streams_combine


def configured(directory: Path, rank: int, ranks: int, store: Path) -> Any:
    """A process of the group of that many ranks; returns SGLang's own configuration of the model."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    arguments = ServerArgs(
        model_path=str(directory), device="cpu", tp_size=ranks, dtype="float32", skip_tokenizer_init=True
    )
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=0))
    config = ModelConfig.from_server_args(arguments)
    init_distributed_environment(
        world_size=ranks, rank=rank, local_rank=rank, distributed_init_method=f"file://{store}", backend="gloo"
    )
    initialize_model_parallel()
    initialize_dp_attention(config)
    return config


def attention_of(layer: Any) -> Values:
    names = ("wq_b.weight", "wo_a.weight", "wo_b.weight", "attn_sink")
    return {name: layer.get_parameter(name).detach().clone() for name in names}


def target(config: Any) -> tuple[Any, Values]:
    model = deepseek_v4.DeepseekV4ForCausalLM(config.hf_config)
    model._mhc_prewarmed_at_load = True  # it compiles kernels for a GPU
    model.load_weights(tiny.checkpoint())
    seen = attention_of(model.model.layers[0].self_attn)
    for layer in model.model.layers:
        # Kernels multiply it in bf16; a CPU adds up both operands in the same type.
        layer.self_attn.wo_a.weight.data = layer.self_attn.wo_a.weight.data.float()
    return model, seen


def draft(config: Any) -> tuple[Any, Values]:
    model = deepseek_v4_dspark.DeepseekV4ForCausalLMDSpark(config.hf_config)
    model.confidence_head = None
    model.load_weights(tiny.checkpoint())
    layer = model.stages[0].self_attn
    seen = attention_of(layer)
    layer.wo_a.weight.data = layer.wo_a.weight.data.float()
    return layer, seen


def run(config: Any) -> Values:
    """Attention, logits and greedy tokens; every step computes the whole sequence anew."""
    from sglang.srt.distributed import tensor_model_parallel_all_gather
    from sglang.srt.model_executor.forward_context import ForwardContext, forward_context

    model, weights = target(config)
    drafting, draft_weights = draft(config)
    backend = shims.Attention()
    deepseek_v4_dspark._resolve_dspark_pool = lambda: backend.token_to_kv_pool
    batch = SimpleNamespace(forward_mode=ForwardMode.EXTEND)
    rows = torch.randn(PROMPT, tiny.HIDDEN, generator=torch.Generator().manual_seed(3))
    tokens = [(7 * place + 11) % tiny.VOCABULARY for place in range(PROMPT)]
    with torch.no_grad(), forward_context(ForwardContext(attn_backend=backend)):
        places = torch.arange(PROMPT)
        attended = model.model.layers[0].self_attn(rows, places, batch)
        drafted = drafting(places, rows, batch)
        logits = torch.empty(0)
        for _ in range(STEPS):
            places = torch.arange(len(tokens))
            hidden = model.model(torch.tensor(tokens), places, batch, None)[0]
            logits = torch.nn.functional.linear(hidden[-1:], model.lm_head.weight)
            logits = tensor_model_parallel_all_gather(logits)[0, : tiny.VOCABULARY]
            tokens.append(int(logits.argmax()))
    return {
        "heads": config.num_attention_heads,
        "weights": weights,
        "draft_weights": draft_weights,
        "attention": attended,
        "draft": drafted,
        "logits": logits,
        "tokens": tokens,
    }


def run_scheduler_process(padding: str, work: Callable[[], Values]) -> Values:
    """Named as SGLang's, by which the frame knows the process that has the model."""
    from adapter import plugin

    if padding:
        plugin.install(json.dumps({"tp3_pad": {"padding": padding}}), os.environ)
    return work()


def blocks(config: Any) -> Values:
    """One layer of 32x32-block FP8, through SGLang's own loaders: its tensors on this rank."""
    from sglang.srt.layers.quantization.fp8 import Fp8Config
    from sglang.srt.runtime_context import get_parallel

    from adapter import tp3_pad

    quantized = Fp8Config(True, activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK])
    layer = deepseek_v4.MQALayer(config.hf_config, 0, quantized, "model.layers.0.self_attn")
    ranks = get_parallel().attn_tp_size
    layout = tp3_pad.Layout(tiny.HEADS, tiny.GROUPS, ranks, "spread")
    seen: Values = {}
    for name, tensor in tp3_pad.padded(tiny.blocks(), layout, config.hf_config, draft=False):
        part, _, kind = name.removeprefix("layers.0.attn.").partition(".")
        owner = {"scale": "weight_scale_inv", "weight": "weight", "": ""}[kind]
        parameter = layer.get_parameter(f"{part}.{owner}" if owner else part)
        parameter.data.view(torch.uint8).fill_(0x55)
        getattr(parameter, "weight_loader", lambda into, values: into.data.copy_(values))(parameter, tensor)
        seen[name] = parameter.data.clone()
    return seen


def fork(work: Callable[[], Values], result: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            torch.save(work(), result)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - nobody else shows the traceback of a forked process
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def main(directory: Path) -> int:
    torch.set_num_threads(1)
    stand_in()
    tiny.write(directory / "model")

    def rank(place: int, ranks: int, padding: str) -> Values:
        def work() -> Values:
            config = configured(directory / "model", place, ranks, directory / f"store-{ranks}-{padding}")
            return {"blocks": blocks(config) if padding != "end" else {}, **run(config)}

        return run_scheduler_process(padding, work)

    failed = 0
    for padding, ranks in (("", 1), ("spread", 3), ("end", 3)):
        children = [
            fork(partial(rank, place, ranks, padding), directory / f"{padding or 'whole'}-{place}.pt")
            for place in range(ranks)
        ]
        failed += sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
    return failed


def compared(directory: Path, padding: str) -> Values:
    """Three ranks against the one, in numbers that JSON has."""
    whole, *ranks = (
        torch.load(directory / name) for name in ("whole-0.pt", *(f"{padding}-{place}.pt" for place in range(3)))
    )
    return {
        "heads": [found["heads"] for found in ranks],
        "tokens": [found["tokens"] for found in ranks],
        "tokens_of_one": whole["tokens"],
        "off": {
            name: max(float((found[name] - whole[name]).abs().max()) for found in ranks)
            for name in ("attention", "draft", "logits")
        },
        "size": {name: float(whole[name].abs().max()) for name in ("attention", "draft", "logits")},
        "slots": {
            kind: [slots(found[kind], whole[kind], rank) for rank, found in enumerate(ranks)]
            for kind in ("weights", "draft_weights")
        },
        "blocks": [block_slots(found["blocks"], whole["blocks"], rank) for rank, found in enumerate(ranks)]
        if padding == "spread"
        else [],
    }


def slots(found: Values, whole: Values, rank: int) -> list[int | str]:
    """What each of a rank's slots holds, in all four tensors alike: a real group's number, or "zero"."""
    by_tensor = []
    for name, values in found.items():
        axis = 1 if name == "wo_b.weight" else 0
        mine = values.chunk(3)[rank] if name == "attn_sink" else values
        real = whole[name].chunk(tiny.GROUPS, axis)
        by_tensor.append([which(slot, real, 0) for slot in mine.chunk(4, axis)])
    assert all(each == by_tensor[0] for each in by_tensor), by_tensor
    return by_tensor[0]


def which(slot: torch.Tensor, real: tuple[torch.Tensor, ...], fill: int) -> int | str:
    """Compared by bytes, so that -0 and what is not a number do not pass for zero."""
    data = slot.contiguous().view(torch.uint8)
    if bool((data == fill).all()):
        return "one" if fill else "zero"
    return next(number for number, each in enumerate(real) if torch.equal(data, each.contiguous().view(torch.uint8)))


def block_slots(found: Values, whole: Values, rank: int) -> dict[str, list[int | str]]:
    told: dict[str, list[int | str]] = {}
    for name, values in found.items():
        axis = 1 if ".wo_b." in name else 0
        mine = values.chunk(3)[rank] if name.endswith("attn_sink") else values
        real = whole[name].chunk(tiny.GROUPS, axis)
        one = 127 if values.element_size() == 1 else -1
        if name.endswith("scale") and one < 0:
            told[name] = ["one" if bool((slot == 1).all()) else which(slot, real, 0) for slot in mine.chunk(4, axis)]
            continue
        told[name] = [which(slot, real, one if name.endswith("scale") else 0) for slot in mine.chunk(4, axis)]
    return told


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if ended := main(where):
        sys.exit(f"{ended} ranks have failed")
    print(json.dumps({padding: compared(where, padding) for padding in ("spread", "end")}))
