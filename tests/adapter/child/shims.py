"""Plain PyTorch in place of what SGLang has only as kernels for GPUs: rotation, and attention over the same batch."""

from __future__ import annotations

from typing import Any

import torch


def rotate(x: torch.Tensor, freqs_cis: torch.Tensor, positions: torch.Tensor, *, inverse: bool) -> None:
    """In place; x is [tokens, heads, even], freqs_cis complex [positions, even / 2]."""
    turned = freqs_cis[positions].unsqueeze(1)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    x.copy_(torch.view_as_real(pairs * (turned.conj() if inverse else turned)).flatten(-2))


def rope_inplace(
    q: torch.Tensor, k: torch.Tensor | None, freqs_cis: torch.Tensor, *, positions: torch.Tensor, inverse: bool = False
) -> None:
    rotate(q, freqs_cis, positions, inverse=inverse)
    if k is not None:
        rotate(k, freqs_cis, positions, inverse=inverse)


class Pool:
    """Keeps the keys of the batch, normed and rotated as they are stored in a cache."""

    uniform_fp8 = False

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None

    def set_swa_key_buffer_radix_fused_norm_rope(
        self,
        *,
        kv: torch.Tensor,
        kv_weight: torch.Tensor,
        eps: float,
        freqs_cis: torch.Tensor,
        positions: torch.Tensor,
        **_place: Any,
    ) -> None:
        keys = kv.float() * torch.rsqrt(kv.float().square().mean(-1, keepdim=True) + eps) * kv_weight
        rotate(keys.unsqueeze(1)[..., -2 * freqs_cis.shape[1] :], freqs_cis, positions, inverse=False)
        self.keys = keys


class Attention:
    """Causal attention with sinks over the tokens of one batch; one key, which is the value too, for all heads."""

    def __init__(self) -> None:
        self.token_to_kv_pool = Pool()

    def get_swa_out_cache_loc(self, _batch: object) -> None:
        return None

    def forward(self, *, q: torch.Tensor, attn_sink: torch.Tensor, **_rest: Any) -> torch.Tensor:
        keys = self.token_to_kv_pool.keys
        assert keys is not None
        scores = torch.einsum("thd,sd->hts", q.float(), keys) * q.shape[-1] ** -0.5
        tokens = q.shape[0]
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), float("-inf"))
        sink = attn_sink[:, None, None].expand(-1, tokens, 1)
        shares = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        return torch.einsum("hts,sd->thd", shares, keys).to(q.dtype)


def split_sinkhorn(
    mixes: torch.Tensor, scale: torch.Tensor, base: torch.Tensor, streams: int, rounds: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gates before and after a sublayer, and a matrix between the streams that rounds make doubly stochastic."""
    parts = (streams, streams, streams * streams)
    before, after, between = (
        mix * factor + shift
        for mix, factor, shift in zip(mixes.split(parts, -1), scale, base.split(parts), strict=True)
    )
    matrix = between.unflatten(-1, (streams, streams)).softmax(-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return before.sigmoid() + eps, 2 * after.sigmoid(), matrix


def streams_post(x: torch.Tensor, streams: torch.Tensor, after: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Each stream anew: its share of what a sublayer gave, and the mixture of the streams before."""
    mixed = torch.einsum("tji,tjd->tid", matrix.float(), streams.float())
    return (after.reshape(*after.shape[:2], 1).float() * x.float().unsqueeze(1) + mixed).to(streams.dtype)


def streams_combine(flat: torch.Tensor, before: torch.Tensor, streams: int, dtype: torch.dtype) -> torch.Tensor:
    """The input of a sublayer: the streams, each with its gate, as one."""
    return (flat.float().unflatten(1, (streams, -1)) * before.float().unsqueeze(-1)).sum(1).to(dtype)
