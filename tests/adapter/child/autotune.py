"""Three Gloo ranks that enter tuning through SGLang's own gate, with its digest and with the adapter's."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from functools import partial
from pathlib import Path

import torch.distributed as dist

from adapter import autotune_keep

RANKS, LAUNCH, ENV = 3, "launch", {"gpu": "GB10", "flashinfer": "0.7.2"}
CASES = ("agree", "other tactics", "other problems", "missing", "stale", "no stamp", "stamp of before", "broken",
         "all stale", "other environment")  # fmt: skip


def prepare(case: str, rank: int, cache: Path) -> None:
    """What an earlier start has left on this rank."""
    odd = rank == 1
    tactics = {"gemm 64": 3 + rank if case == "other tactics" else 3, "gemm 128": 1}
    if odd and case == "other problems":
        del tactics["gemm 128"]
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(tactics))
    stale = case == "all stale" or (odd and case == "stale")
    env = {**ENV, "gpu": "H200"} if odd and case == "other environment" else ENV
    autotune_keep.write_stamp(cache, "another launch" if stale else LAUNCH, env)
    if odd and case == "missing":
        cache.unlink()
    if odd and case == "no stamp":
        autotune_keep.stamp_of(cache).unlink()
    if odd and case == "stamp of before":
        # The process died between the new file and its stamp.
        cache.write_text(json.dumps({**tactics, "gemm 128": 2}))
    if odd and case == "broken":
        cache.write_text(cache.read_text()[:9])


def rank_of(rank: int, where: Path, hooked: bool) -> dict[str, bool]:
    from sglang.srt.model_executor.runner import flashinfer_autotune

    if hooked:
        from adapter.frame import hook

        name = "sglang.srt.model_executor.runner.flashinfer_autotune:_autotune_cache_digest"
        hook(autotune_keep.ADAPTER.symbol(name), partial(autotune_keep._digest, lambda: LAUNCH), "replace")
    dist.init_process_group("gloo", init_method=f"file://{where}/store-{hooked}", rank=rank, world_size=RANKS)
    loads = {}
    for case in CASES:
        cache = where / f"{hooked}-{rank}" / hashlib.sha256(case.encode()).hexdigest()[:8] / "cache.json"
        prepare(case, rank, cache)
        flashinfer_autotune._drop_diverged_autotune_cache(cache, dist.group.WORLD, ENV)
        loads[case] = cache.is_file()
    dist.destroy_process_group()
    return loads


def run(where: Path, hooked: bool) -> dict[str, list[bool]]:
    children = []
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            try:
                (where / f"{hooked}-{rank}.json").write_text(json.dumps(rank_of(rank, where, hooked)))
                os._exit(0)
            except BaseException:  # noqa: BLE001 - nobody else shows the traceback of a forked process
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(pid)
    failed = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(failed), failed
    found = [json.loads((where / f"{hooked}-{rank}.json").read_text()) for rank in range(RANKS)]
    return {case: [each[case] for each in found] for case in CASES}


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    print(json.dumps({"without": run(directory, False), "with": run(directory, True)}))
