"""The cap on a verified block, in one launch inside the captured graph: live length, accepted length, and what follows.

A request has rows 0 (its anchor) to gamma (its last draft). Its live rows are the anchor and the drafts before the
first whose confidence is below its threshold: live = 1 + drafts, so that the first `live` rows of logits are of use.
What verification has accepted beyond live - 1 drafts is cut, and the draft after them, which it accepted too, takes
the place of the bonus token.

Why no distribution changes: under token-wise and block verification alike, P(at least n drafts accepted | first n
drafts) depends on nothing after them, and the confidence of draft n on nothing after draft n - 1. So a block cut at
`live` is as likely, with the same tokens, as one drafted no further (block verification: Sun et al., 2403.10444).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Block:
    """The static buffers of a verify graph, of `requests` rows; written in place.

    confidence: float32 [requests, gamma]; candidates: int64 [requests, gamma + 1], anchor first; verify_lens: int64, 0
    for a padded request, which stays as it is; seq_lens: as before this block; tokens: int64 [requests, gamma + 1].
    """

    confidence: torch.Tensor
    candidates: torch.Tensor
    verify_lens: torch.Tensor
    seq_lens: torch.Tensor
    correct: torch.Tensor
    bonus: torch.Tensor
    trimmed: torch.Tensor
    commit: torch.Tensor
    new_seq_lens: torch.Tensor
    tokens: torch.Tensor

    def clone(self) -> Block:
        return Block(*(getattr(self, field.name).clone() for field in fields(self)))

    def cpu(self) -> Block:
        return Block(*(getattr(self, field.name).cpu() for field in fields(self)))

    def same(self, other: Block) -> bool:
        """By value; a confidence that is not a number is like another."""
        pairs = [(getattr(self, each.name).cpu(), getattr(other, each.name).cpu()) for each in fields(self)]
        return all(torch.equal(mine.nan_to_num(), others.nan_to_num()) for mine, others in pairs)


def live_lengths(confidence: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
    """int64 [requests], 1 to gamma + 1. thresholds: float32 [gamma]; a confidence that is not a number is below any."""
    kept = (confidence >= thresholds).cumprod(1)
    return 1 + kept.sum(1)


def apply_reference(block: Block, thresholds: torch.Tensor) -> None:
    """In plain PyTorch, and where there is no GPU."""
    live = live_lengths(block.confidence, thresholds)
    place = torch.arange(block.candidates.shape[1], device=live.device)
    # Whoever is padded has a verify length of 0.
    cut = (block.correct > live - 1) & (block.verify_lens > 0)
    correct = torch.where(cut, live - 1, block.correct).to(block.correct.dtype)
    bonus = torch.where(cut, block.candidates.gather(1, live.clamp(max=place[-1])[:, None])[:, 0], block.bonus)
    tokens = torch.where(place < live[:, None], block.candidates.roll(-1, 1), 0)
    tokens = torch.where(place == (live - 1)[:, None], bonus[:, None], tokens)
    block.trimmed.add_((block.correct - correct).to(block.trimmed.dtype))
    block.tokens.copy_(torch.where(cut[:, None], tokens, block.tokens))
    block.bonus.copy_(bonus)
    block.commit.copy_(torch.where(cut, live, block.commit))
    block.new_seq_lens.copy_(torch.where(cut, block.seq_lens + live, block.new_seq_lens))
    block.correct.copy_(correct)


@triton.jit  # type: ignore[untyped-decorator]
def _cap(  # type: ignore[no-untyped-def]  # noqa: ANN202
    confidence, thresholds, candidates, verify_lens, seq_lens, correct, bonus, trimmed, commit, new_seq_lens, tokens,  # noqa: ANN001
    confidence_row, candidates_row, tokens_row,  # noqa: ANN001
    GAMMA: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    place = tl.arange(0, PLACES)
    draft = place < GAMMA
    # Everything is loaded before anything is decided: one way to memory and back, not two.
    sure = tl.load(confidence + request * confidence_row + place, mask=draft, other=0.0)
    wanted = tl.load(thresholds + place, mask=draft, other=0.0)
    following = tl.load(candidates + request * candidates_row + 1 + place, mask=draft, other=0)
    raw = tl.load(correct + request).to(tl.int32)
    served = tl.load(verify_lens + request) > 0
    before = tl.load(seq_lens + request)
    already = tl.load(trimmed + request)
    live = 1 + tl.min(tl.where(draft & (sure >= wanted), GAMMA, tl.minimum(place, GAMMA)), 0)
    cut = (raw > live - 1) & served
    token = tl.sum(tl.where(place == live - 1, following, 0), 0)
    tl.store(correct + request, live - 1, mask=cut)
    tl.store(bonus + request, token, mask=cut)
    tl.store(trimmed + request, already + raw - live + 1, mask=cut)
    tl.store(commit + request, live, mask=cut)
    tl.store(new_seq_lens + request, before + live, mask=cut)
    tl.store(
        tokens + request * tokens_row + place,
        tl.where(place < live, following, 0),
        mask=place <= tl.where(cut, GAMMA, -1),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _anchor(experts, live, experts_row, ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    row = tl.program_id(0)
    request = row // ROWS
    if row % ROWS >= tl.load(live + request):
        lane = tl.arange(0, LANES)
        first = tl.load(experts + request * ROWS * experts_row + lane, mask=lane < WIDTH, other=0)
        tl.store(experts + row * experts_row + lane, first, mask=lane < WIDTH)


def anchor_experts(experts: torch.Tensor, live: torch.Tensor, rows: int) -> None:
    """Give rows at or beyond their request's live length the experts of its anchor, in place, so that no expert is read
    for rows that count for nothing. experts: [requests * rows, experts a token]; live: int64 [requests]."""
    if experts.is_cuda:
        launch_anchor(experts, live, rows)
        return
    grouped = experts.view(live.shape[0], rows, -1)
    dead = torch.arange(rows, device=live.device) >= live[:, None]
    grouped.copy_(torch.where(dead[:, :, None], grouped[:, :1], grouped))


def launch_anchor(experts: torch.Tensor, live: torch.Tensor, rows: int) -> None:
    """The kernel alone."""
    width = experts.shape[1]
    _anchor[(experts.shape[0],)](
        experts, live, experts.stride(0), ROWS=rows, WIDTH=width, LANES=triton.next_power_of_2(width), num_warps=1
    )


@triton.jit
def _nothing(block):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    pass


def apply(block: Block, thresholds: torch.Tensor) -> None:
    """Cut each request of the block at its live length, in place. thresholds: float32 [gamma], on the same device."""
    if not block.confidence.is_cuda:
        apply_reference(block, thresholds)
        return
    launch(block, thresholds)


def launch(block: Block, thresholds: torch.Tensor) -> None:
    """The kernel alone: a GPU, or Triton's interpreter."""
    requests, gamma = block.confidence.shape
    _cap[(requests,)](
        block.confidence, thresholds, block.candidates, block.verify_lens, block.seq_lens, block.correct, block.bonus,
        block.trimmed, block.commit, block.new_seq_lens, block.tokens,
        block.confidence.stride(0), block.candidates.stride(0), block.tokens.stride(0),
        GAMMA=gamma, PLACES=triton.next_power_of_2(gamma + 1), num_warps=1,
    )  # fmt: skip


def nothing(block: Block) -> None:
    """The launch of a kernel that does nothing, on as many programs."""
    _nothing[(block.confidence.shape[0],)](block.confidence, num_warps=1)


def sample(requests: int, rows: int, device: str, *, seed: int) -> Block:
    """A block such as verification leaves it, of random values, the last request padded if there is more than one."""
    chance = torch.Generator().manual_seed(seed)
    gamma = rows - 1
    candidates = torch.randint(0, 1000, (requests, rows), generator=chance)
    correct = torch.randint(0, rows, (requests,), generator=chance, dtype=torch.int32)
    bonus = torch.randint(0, 1000, (requests,), generator=chance)
    seq_lens = torch.randint(1, 5000, (requests,), generator=chance)
    commit = correct + 1
    place = torch.arange(rows)
    tokens = torch.where(place < correct[:, None], candidates.roll(-1, 1), 0)
    tokens = torch.where(place == correct[:, None], bonus[:, None], tokens)
    verify_lens = torch.full((requests,), rows)
    verify_lens[1:][-1:] = 0
    confidence = torch.rand((requests, gamma), generator=chance)
    confidence[:1, gamma - 1 :] = float("nan")
    block = Block(confidence, candidates, verify_lens, seq_lens, correct, bonus, torch.zeros_like(correct), commit,
                  seq_lens + commit, tokens)  # fmt: skip
    return Block(*(getattr(block, field.name).to(device) for field in fields(block)))
