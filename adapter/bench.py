"""`python -m adapter.bench FILE`: the kernels against what they take the place of, on this machine's GPU.

Both in one run, each as a CUDA graph of several calls over several weights that together are larger than the GPU's
cache, so that every call reads its weight from memory, as in a model. Prints a table and writes FILE, JSON with each
run's time. Needs torch and Triton alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROWS = (1, 2, 6, 8, 16, 32, 64, 128, 192)
SHAPES = {"head": (1, 43136, 5120, 2), "wo_a, TP1": (8, 1024, 4096, 4), "wo_a, TP3": (4, 1024, 4096, 8),
          "wo_a, TP4": (2, 1024, 4096, 16)}  # fmt: skip
"""groups, columns, inner of a rank's weight, and how many there are."""
RUNS = 101
Call = Callable[[], Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m adapter.bench", description=__doc__)
    parser.add_argument("file", type=Path, help="where the raw times go")
    given = parser.parse_args(argv)
    import torch

    from adapter.kernels import support

    if why := support.obstacle():
        print(f"python -m adapter.bench: {why}", file=sys.stderr)
        return 2
    torch.manual_seed(1)
    found: dict[str, Any] = {"machine": machine(), "products": []}
    for name, shape in SHAPES.items():
        found["products"] += products(name, *shape)
    found["cap"] = cap()
    found["clocks after"] = clocks()
    given.file.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(each["right"] for each in found["products"]) and found["cap"]["right"] else 1


def machine() -> dict[str, Any]:
    import torch
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability(),
        "clocks before": clocks(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "runs": RUNS,
    }


def clocks() -> str:
    """As nvidia-smi has them: graphics and memory clock, temperature, driver; "" where there is none."""
    query = "--query-gpu=clocks.sm,clocks.mem,temperature.gpu,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()


def timed(calls: Sequence[Call]) -> list[float]:
    """Microseconds of one call, in each of RUNS replays of a graph of all of them."""
    import torch

    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(5):
        graph.replay()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(RUNS)]
    for first, last in events:
        first.record()
        graph.replay()
        last.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(last) * 1000 / len(calls) for first, last in events]


def products(name: str, groups: int, columns: int, inner: int, count: int) -> list[dict[str, Any]]:
    """One entry for each number of rows; bf16 is the faster of the two ways in which SGLang multiplies it."""
    import torch

    from adapter.draft_head_fp8 import MOST
    from adapter.kernels.blockfp8 import exact, product, quantized
    from adapter.wo_a_w8 import MID

    twins = [quantized(torch.randn(groups, columns, inner, device="cuda").mul_(0.02).bfloat16()) for _ in range(count)]
    weights = [twin.dense() for twin in twins]
    kept = all(exact(quantized(weight), weight) for weight in weights)
    places = [place % count for place in range(max(4, count))]
    most, entries = MOST if name == "head" else MID, []
    for rows in ROWS:
        x = torch.randn(rows, groups, inner, device="cuda", dtype=torch.bfloat16)
        einsum = [(lambda at=at, x=x: torch.einsum("tgd,grd->tgr", x, weights[at])) for at in places]
        bmm = [(lambda at=at, x=x: torch.bmm(x.transpose(0, 1), weights[at].transpose(1, 2))) for at in places]
        fp8 = [(lambda at=at, x=x: product(twins[at], x)) for at in places]
        one, again, replayed = product(twins[0], x), product(twins[0], x), captured(partial(product, twins[0], x))
        same = torch.equal(one, product(twins[0], x, weight=weights[0]))
        reference = torch.einsum("tgd,grd->tgr", x.double(), weights[0].double()) if rows <= 32 else None
        off = None if reference is None else float((one.double() - reference).norm() / reference.norm())
        raw = {"einsum": timed(einsum), "bmm": timed(bmm), "fp8": timed(fp8)}
        median = {way: statistics.median(times) for way, times in raw.items()}
        bf16 = min(median["einsum"], median["bmm"])
        entry = {
            "weight": name, "shape": [groups, columns, inner], "rows": rows, "taken": rows <= most,
            "bf16 us": bf16, "fp8 us": median["fp8"], "times as fast": bf16 / median["fp8"],
            "bits of bf16 in the same program": same, "twin exact": kept, "repeated": torch.equal(one, again),
            "graph gives eager's bits": torch.equal(one, replayed), "off from float64": off, "raw us": raw,
        }  # fmt: skip
        entry["right"] = same and kept and entry["repeated"] and entry["graph gives eager's bits"] and (off or 0) < 3e-3
        entries.append(entry)
        taken = "taken" if entry["taken"] else "bf16 "
        print(
            f"{name:<10} {rows:>4} rows {taken}  bf16 {bf16:8.2f} us  fp8 {median['fp8']:8.2f} us  "
            f"{bf16 / median['fp8']:5.2f}  {'right' if entry['right'] else 'WRONG'}",
            flush=True,
        )
    return entries


def captured(call: Call) -> Any:
    import torch

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    result.zero_()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    return result.clone()


def cap() -> dict[str, Any]:
    """verify_cap's kernel for 1 and 64 requests of 6 tokens, against a launch of a kernel that does nothing."""
    import torch

    from adapter.kernels import cap as kernel

    found: dict[str, Any] = {"right": True}
    for requests in (1, 64):
        fresh = kernel.sample(requests, 6, "cuda", seed=requests)
        eager, other = fresh.clone(), fresh.clone()
        thresholds = torch.full((5,), 0.5, device="cuda")
        kernel.apply(eager, thresholds)
        reference = fresh.cpu()
        kernel.apply_reference(reference, thresholds.cpu())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel.apply(other, thresholds)
        graph.replay()
        torch.cuda.synchronize()
        right = eager.same(reference) and other.same(reference)
        times = timed([partial(kernel.apply, other, thresholds)] * 32)
        empty = timed([partial(kernel.nothing, other)] * 32)
        ratio = statistics.median(times) / statistics.median(empty)
        found["right"] = found["right"] and right
        found[f"{requests} requests"] = {"us": times, "empty us": empty, "ratio": ratio, "right": right}
        says = "right" if right else "WRONG"
        print(
            f"verify_cap {requests:>4} requests  {statistics.median(times):6.2f} us, empty launch "
            f"{statistics.median(empty):6.2f} us  {ratio:5.2f}  {says}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
