"""Whole sequences sampled through drafting, verifying and cutting, counted against what the target alone would give.

Target and draft are Markov chains over four tokens, so that the law of three tokens is known. Every rule is vectorised
over independent sequences; SGLang's kernel is compared with the rule decision by decision, in Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
import torch

from adapter.kernels import cap

warnings.simplefilter("ignore")
TOKENS, GAMMA, LENGTH, SEQUENCES = 4, 3, 3, 80_000
Tensor = Any


def chains() -> tuple[Tensor, Tensor]:
    """Logits of target and draft, [previous token, token]."""
    chance = torch.Generator().manual_seed(11)
    target = torch.randn(TOKENS, TOKENS, generator=chance, dtype=torch.float64) * 1.2
    return target, target + torch.randn(TOKENS, TOKENS, generator=chance, dtype=torch.float64) * 0.8


def drawn(p: Tensor, u: Tensor) -> Tensor:
    """One token of each row of p, which need not add up to 1."""
    steps = p.cumsum(-1)
    return (steps <= (u * steps[:, -1])[:, None]).sum(-1).clamp(max=p.shape[1] - 1)


def block(p: Tensor, q: Tensor, x: Tensor, u: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Block verification, from the paper: accepted drafts [n], and the token after them.

    p [n, gamma + 1, tokens], q [n, gamma, tokens], x [n, gamma] drafts, u [n, gamma] and last [n] uniform.
    """
    count, gamma = x.shape
    reach = torch.ones(count, dtype=p.dtype)
    accepted = torch.zeros(count, dtype=torch.int64)
    scale = torch.ones(count, dtype=p.dtype)
    for n in range(1, gamma + 1):
        ratio = p[:, n - 1].gather(1, x[:, n - 1 : n])[:, 0] / q[:, n - 1].gather(1, x[:, n - 1 : n])[:, 0]
        reach = (reach * ratio).clamp(max=1)
        chance = reach
        if n < gamma:
            mass = (reach[:, None] * p[:, n] - q[:, n]).clamp(min=0).sum(1)
            chance = torch.where(reach >= 1, torch.ones_like(reach), mass / (mass + 1 - reach))
        taken = u[:, n - 1] < chance
        accepted = torch.where(taken, n, accepted)
        scale = torch.where(taken, reach, scale)
    rows = torch.arange(count)
    whole = accepted == gamma
    rest = (scale[:, None] * p[rows, accepted] - q[rows, accepted.clamp(max=gamma - 1)]).clamp(min=0)
    return accepted, drawn(torch.where(whole[:, None], p[rows, accepted], rest), last)


def singly(p: Tensor, q: Tensor, x: Tensor, u: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Token-wise rejection."""
    count, gamma = x.shape
    ratio = p[:, :gamma].gather(2, x[:, :, None])[..., 0] / q.gather(2, x[:, :, None])[..., 0]
    accepted = (u < ratio).long().cumprod(1).sum(1)
    rows = torch.arange(count)
    rest = (p[rows, accepted] - q[rows, accepted.clamp(max=gamma - 1)]).clamp(min=0)
    whole = accepted == gamma
    return accepted, drawn(torch.where(whole[:, None], p[rows, accepted], rest), last)


def chi_square(rule: str, verify: str, *, tau: float = 1.0, told: float | None = None) -> float:
    """Of the first three tokens after token 0, 63 degrees of freedom. told: what verification takes for tau."""
    chance = torch.Generator().manual_seed(5)
    target, draft = (logits for logits in chains())
    p_of, q_of = target.softmax(1), (draft / tau).softmax(1)
    told_of = (draft / (tau if told is None else told)).softmax(1)
    sure = torch.tensor([0.9, 0.2, 0.7, 0.4], dtype=torch.float32)
    out = torch.zeros(SEQUENCES, LENGTH + GAMMA + 1, dtype=torch.int64)
    have = torch.zeros(SEQUENCES, dtype=torch.int64)
    for _ in range(LENGTH):
        rows = torch.arange(SEQUENCES)
        anchor = torch.where(have > 0, out[rows, (have - 1).clamp(min=0)], 0)
        chain = [anchor]
        for _ in range(GAMMA):
            chain.append(drawn(q_of[chain[-1]], torch.rand(SEQUENCES, generator=chance, dtype=torch.float64)))
        candidates = torch.stack(chain, 1)
        x, p, q = candidates[:, 1:], p_of[candidates], told_of[candidates[:, :GAMMA]]
        confidence = sure[candidates[:, :GAMMA]]
        live = cap.live_lengths(confidence, torch.full((GAMMA,), 0.5))
        if rule != "whole":
            # What dead rows give is no use: the distribution after another token.
            dead = torch.arange(GAMMA + 1) >= live[:, None]
            p = torch.where(dead[:, :, None], p_of[(candidates + 1) % TOKENS], p)
        u = torch.rand(SEQUENCES, GAMMA, generator=chance, dtype=torch.float64)
        last, again = (torch.rand(SEQUENCES, generator=chance, dtype=torch.float64) for _ in range(2))
        accepted, bonus = (block if verify == "block" else singly)(p, q, x, u, last)
        place = torch.arange(GAMMA + 1)
        tokens = torch.where(place < accepted[:, None], candidates.roll(-1, 1), 0)
        tokens = torch.where(place == accepted[:, None], bonus[:, None], tokens)
        if rule != "whole":
            seq = torch.zeros(SEQUENCES, dtype=torch.int64)
            cut = cap.Block(confidence, candidates, torch.ones_like(seq), seq, accepted.clone(), bonus.clone(),
                            torch.zeros_like(seq), accepted + 1, accepted + 1, tokens.clone())  # fmt: skip
            cap.apply_reference(cut, torch.full((GAMMA,), 0.5))
            if rule == "fresh bonus":
                changed = cut.correct < accepted
                fresh = drawn(p[rows, cut.correct], again)
                cut.tokens[rows, cut.correct] = torch.where(changed, fresh, cut.tokens[rows, cut.correct])
            accepted, tokens = cut.correct, cut.tokens
        fits = place < (accepted + 1)[:, None]
        where = (have[:, None] + place).clamp(max=out.shape[1] - 1)
        room = fits & (have[:, None] + place < LENGTH)
        out.scatter_(1, torch.where(room, where, out.shape[1] - 1), torch.where(room, tokens, 0))
        have = (have + accepted + 1).clamp(max=LENGTH)
    number = (out[:, 0] * TOKENS + out[:, 1]) * TOKENS + out[:, 2]
    seen = torch.bincount(number, minlength=TOKENS**3).double()
    first = p_of[0]
    law = (first[:, None, None] * p_of[:, :, None] * p_of[None, :, :]).flatten() * SEQUENCES
    return float(((seen - law) ** 2 / law).sum())


def upstream(cases: int) -> dict[str, object]:
    """SGLang's kernel against the rule, by the same uniform numbers."""
    from sglang.kernels.ops.speculative.reject_sampling import chain_speculative_sampling_triton

    chance = torch.Generator().manual_seed(2)
    p = (torch.randn(cases, GAMMA + 1, TOKENS, generator=chance) * 1.5).softmax(-1)
    q = (torch.randn(cases, GAMMA, TOKENS, generator=chance) * 1.5).softmax(-1)
    x = torch.stack([drawn(q[:, n], torch.rand(cases, generator=chance)) for n in range(GAMMA)], 1)
    u, last = torch.rand(cases, GAMMA, generator=chance), torch.rand(cases, generator=chance)
    differ: dict[str, object] = {}
    for name, rule in (("block", block), ("singly", singly)):
        slots = GAMMA + 1
        predicts = torch.zeros(cases * slots, dtype=torch.int32)
        index = torch.full((cases, slots), -1, dtype=torch.int32)
        accepted = torch.zeros(cases, dtype=torch.int32)
        candidates = torch.cat([torch.zeros(cases, 1, dtype=torch.int64), x], 1)
        chain_speculative_sampling_triton(
            predicts=predicts, accept_index=index, accept_token_num=accepted, candidates=candidates,
            retrive_index=torch.arange(cases * slots).view(cases, slots), retrive_next_token=None,
            retrive_next_sibling=None, uniform_samples=u, uniform_samples_for_final_sampling=last, target_probs=p,
            draft_probs=q, threshold_single=1.0, threshold_acc=1.0, deterministic=True,
            block_verification=name == "block",
        )  # fmt: skip
        right, token = rule(p.double(), q.double(), x, u.double(), last.double())
        bonus = predicts[index.gather(1, accepted.long()[:, None])[:, 0].long()]
        differ[name] = int(((accepted != right) | (bonus != token)).sum())
        differ[f"{name} lengths"] = torch.bincount(accepted.long(), minlength=slots).tolist()
    return differ


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(
        json.dumps(
            {
                "block": chi_square("whole", "block"),
                "block, cut": chi_square("cut", "block"),
                "singly, cut": chi_square("cut", "singly"),
                "wrong cut": chi_square("fresh bonus", "block"),
                "tau": chi_square("whole", "block", tau=0.6),
                "tau, cut": chi_square("cut", "block", tau=0.6),
                "wrong tau": chi_square("whole", "block", tau=0.6, told=1.0),
                "upstream": upstream(int(sys.argv[1])),
            }
        )
    )
