"""The kernels in Triton's interpreter, against plain PyTorch. Transformers asks for a module named kernels."""

from __future__ import annotations

import json
import os
import warnings

os.environ["TRITON_INTERPRET"] = "1"
import torch

from adapter.kernels import blockfp8, cap

warnings.simplefilter("ignore")


def codes() -> bool:
    """Every finite e4m3 value with every scale from 2^-20 to 2^7 comes back from its twin, -0 and subnormals too."""
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    values[~torch.isfinite(values)] = 448.0
    same = True
    for exponent in range(-20, 8):
        block = torch.ldexp(values, torch.tensor(exponent)).repeat(4).view(32, 32).to(torch.bfloat16)
        same &= blockfp8.exact(blockfp8.quantized(block), block)
    return same


def product(shape: tuple[int, int, int], rows: int, config: blockfp8.Config | None = None) -> dict[str, object]:
    """columns: the last tile may reach beyond them."""
    chance = torch.Generator().manual_seed(rows)
    weight = torch.randn(*shape, generator=chance).mul_(0.02).bfloat16()
    twin = blockfp8.quantized(weight)
    dense = twin.dense()
    # Rows of a wider tensor, as SGLang hands them on.
    x = torch.randn(rows, shape[0] + 1, shape[2], generator=chance).bfloat16()[:, : shape[0]]
    found = blockfp8.product(twin, x, config)
    right = torch.einsum("tgd,grd->tgr", x.double(), dense.double())
    return {
        "off": float((found.double() - right).norm() / right.norm()),
        "bits of bf16": torch.equal(found, blockfp8.product(twin, x, config, weight=dense)),
        "exact again": blockfp8.exact(blockfp8.quantized(dense), dense),
        "of the original": blockfp8.exact(twin, weight),
        "counts": int(twin.counts.abs().sum()),
        "shape": list(found.shape),
    }


def refusals() -> dict[str, str]:
    said = {}
    cases = {
        "odd": torch.zeros(33, 64, dtype=torch.bfloat16),
        "nan": torch.full((32, 32), float("nan"), dtype=torch.bfloat16),
        "large": torch.full((32, 32), 1e9, dtype=torch.bfloat16),
    }
    for name, weight in cases.items():
        try:
            blockfp8.quantized(weight)
            said[name] = ""
        except ValueError as error:
            said[name] = str(error)
    return said


def caps() -> dict[str, bool]:
    found = {}
    for requests in (1, 2, 9):
        for gamma in (1, 2, 5, 7):
            fresh = cap.sample(requests, gamma + 1, "cpu", seed=requests * 10 + gamma)
            one, other = fresh.clone(), fresh.clone()
            thresholds = torch.linspace(0.6, 0.2, gamma)
            cap.apply_reference(one, thresholds)
            cap.launch(other, thresholds)
            found[f"{requests} of {gamma}"] = one.same(other)
    return found


def experts() -> bool:
    chance = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 384, (4 * 6, 6), generator=chance, dtype=torch.int32)
    live = torch.tensor([1, 3, 6, 2])
    one, other = ids.clone(), ids.clone()
    cap.anchor_experts(one, live, 6)
    cap.launch_anchor(other, live, 6)
    kept = [torch.equal(one.view(4, 6, 6)[r, :n], ids.view(4, 6, 6)[r, :n]) for r, n in enumerate(live)]
    return torch.equal(one, other) and all(kept) and bool((one.view(4, 6, 6)[0] == ids[0]).all())


if __name__ == "__main__":
    Config = blockfp8.Config
    print(
        json.dumps(
            {
                "codes": codes(),
                "products": {
                    "head, one row": product((1, 160, 256), 1),
                    "head, 16 rows": product((1, 96, 320), 16),
                    "head, 40 rows": product((1, 96, 64), 40),
                    "groups": product((4, 64, 256), 6),
                    "shares": product((2, 64, 512), 9, Config(16, 2, 2, 4, 2)),
                    "side by side": product((2, 96, 256), 3, Config(8, 2, 2, 2, 4, 2)),
                },
                "refusals": refusals(),
                "caps": caps(),
                "experts": experts(),
            }
        )
    )
