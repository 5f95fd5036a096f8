"""DeepSeek-V4.1-Flash as published: what of its config.json decides about sizes, and what was measured by others.

With these a plan can be made before 476 GiB have been fetched.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

CONFIG = MappingProxyType(
    {
        "vocab_size": 129280,
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "head_dim": 512,
        "num_key_value_heads": 1,
        "q_lora_rank": 1280,
        "o_lora_rank": 1024,
        "o_groups": 8,
        "moe_intermediate_size": 2304,
        "n_routed_experts": 384,
        "hc_mult": 4,
        "index_n_heads": 32,
        "index_head_dim": 128,
        "kv_source_layer_ids": [2, 8, 14, 20],
        "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
        "compress_ratios": [0, 0, *[2] * 18, *[1] * 20, 0, 0, 0],
        "engram_layer_ids": [1, 14],
        "engram_num_embeddings": [384006168, 384016682],
        "engram_head_dim": 256,
        "engram_n_heads": 8,
        "engram_max_ngram_size": 4,
        "num_nextn_predict_layers": 3,
        "dspark_n_routed_experts": 128,
        "dspark_target_layer_ids": [37, 38, 39],
        "dspark_markov_rank": 256,
    }
)
VISION: MappingProxyType[str, Any] = MappingProxyType(
    {
        "num_hidden_layers": 32,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "patch_size": 14,
        "downsample_ratio": 3,
    }
)

GIB = 1 << 30
MEMORY = int(121.7 * GIB)
"""Bytes that CPU and GPU of a Spark share."""
KV_BYTES_PER_TOKEN = 1670.75
"""Per rank; the one latent of all heads is on every rank, so that the number of ranks makes no difference."""
NCCL_BYTES = int(0.14 * GIB)
"""With the sizes of buffers that sparkd gives to NCCL; 4.7 GiB with NCCL's own."""
HEAD_BYTES = int(1.3 * GIB)
"""Rank 0 alone: HTTP server, tokenizer, detokenizer."""
UNCOUNTED = 15 * GIB
"""The system, CUDA's contexts and graphs, kernels, activations, SGLang's workspaces: what lies between the sum for rank
0 on three Sparks and the 6 GB that others saw left there."""
