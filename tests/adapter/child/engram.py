"""SGLang's own EngramEmbedding with its table in memory, and with its rows on disk; prints JSON with what differs."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers import engram
from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
from sglang.srt.server_args import ServerArgs

from adapter.engram_rows import build, reader
from tests.adapter import rows
from tests.adapter.child import prefetch, tiny

TOTAL, DIM, LAYER = 2310, 256, 1
BOUNDS = (0, 300, 611, 1000, 1409, 2000, TOTAL)
"""Six hash columns: two, three and six ranks share them, four ranks take equal rows."""
WORLDS = (2, 3, 4)


def tensors(seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """A table with every e4m3 value, -0 and what is not a number among them, and with the extremes of the scales."""
    chance = torch.Generator().manual_seed(seed)
    weight = torch.randint(0, 256, (TOTAL, DIM), dtype=torch.uint8, generator=chance)
    scale = torch.randint(90, 160, (TOTAL, DIM // 32), dtype=torch.uint8, generator=chance)
    scale[::97] = torch.tensor([0, 1, 127, 128, 200, 254, 255, 126], dtype=torch.uint8)
    return weight, scale


def batches() -> Iterator[torch.Tensor]:
    chance = torch.Generator().manual_seed(6)
    yield torch.randint(0, TOTAL, (7, 6), generator=chance)
    yield torch.randint(0, TOTAL, (400,), generator=chance)
    yield torch.arange(TOTAL)
    yield torch.arange(TOTAL).flip(0)
    yield torch.full((3, 24), TOTAL - 1)
    yield torch.tensor([0, TOTAL - 1, 0, 0, 999, 1000, 1001])
    yield torch.tensor([[0]])
    yield torch.empty(0, 24, dtype=torch.int64)


def place(world: int, rank: int) -> None:
    sizes = dict.fromkeys(("tp_size", "attn_tp_size", "moe_tp_size"), world)
    ranks = dict.fromkeys(("tp_rank", "attn_tp_rank", "moe_tp_rank"), rank)
    get_parallel().override_permanently(**sizes, **ranks)


def table() -> Any:
    made = engram.EngramEmbedding(TOTAL, DIM, LAYER, BOUNDS)
    weight, scale = tensors()
    made.weight.weight_loader(made.weight, weight.view(torch.float8_e4m3fn))
    made.scale.weight_loader(made.scale, scale.view(torch.float8_e8m0fnu))
    return made


def pack(directory: Path) -> None:
    weight, scale = tensors()
    every = [row.numpy().tobytes() for row in torch.cat([weight, scale], 1)]
    for world in WORLDS:
        for rank in range(world):
            first, end = engram.shard_range(TOTAL, BOUNDS, rank, world)
            wanted = rows.header(end - first, first, TOTAL, rank=rank, world=world)
            rows.write(directory, wanted, every[first:end])


def answers() -> dict[str, list[torch.Tensor]]:
    found: dict[str, list[torch.Tensor]] = {}
    for world in WORLDS:
        for rank in range(world):
            place(world, rank)
            made = table()
            found[f"{rank} of {world}"] = [made._owned_rows(batch) for batch in batches()]
    return found


def run_scheduler_process(directory: Path, reader: str) -> None:
    from adapter import plugin

    options = {"directory": str(directory), "source": "sampled", "reader": reader, "depth": 16}
    plugin.install(json.dumps({"engram_rows": options}), os.environ)


def bits(found: torch.Tensor) -> torch.Tensor:
    return found.view(torch.int16)


def ended(work: Callable[[], object]) -> tuple[int, str]:
    """Exit status and last line on standard error of a fork."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 2)
        work()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.strip().rpartition("\n")[2]


def refusals(directory: Path) -> dict[str, tuple[int, str]]:
    """What each spoilt file makes of a rank."""
    found: dict[str, tuple[int, str]] = {}
    place(3, 1)
    path = directory / "engram-layer1-rank1-of-3.rows"
    whole = path.read_bytes()
    other = (directory / "engram-layer1-rank2-of-3.rows").read_bytes()
    spoilt = bytearray(whole)
    spoilt[4096 + 100] ^= 1  # a bit of the first row
    for name, data in {"cut": whole[:8192], "swapped": other, "another row": bytes(spoilt), "empty": b""}.items():
        path.write_bytes(data)
        found[name] = ended(table)
    path.unlink()
    found["gone"] = ended(table)
    path.write_bytes(whole)

    def cut_later() -> None:
        # Opened in the fork that reads: threads do not live through one.
        made = table()
        os.truncate(path, 8192)
        made._owned_rows(torch.arange(TOTAL))

    found["cut later"] = ended(cut_later)
    path.write_bytes(whole)
    return found


def without_manifest(directory: Path) -> str:
    """Rows that are to be of the checkpoint's manifest, where there is none."""
    from adapter.declare import AdapterError
    from adapter.engram_rows import ADAPTER
    from adapter.engram_rows.table import _Stores

    made = table()
    try:
        _Stores(ADAPTER.settled({"directory": str(directory)}))._store(made, TOTAL, DIM, LAYER)
    except AdapterError as error:
        return str(error)
    return ""


def counted() -> dict[str, float | None]:
    """What the engine's metrics have after the lookups, a second later than the last time."""
    from prometheus_client import REGISTRY

    time.sleep(1.1)
    table()._owned_rows(torch.arange(TOTAL))
    names = ("reads", "rows", "errors", "queue_depth_max", "read_seconds_p50", "read_seconds_p99")
    return {name: REGISTRY.get_sample_value(f"sparkd_engram_{name}", {"layer": str(LAYER)}) for name in names}


def main(directory: Path, readers: list[str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    tiny.write(directory / "model")
    arguments = ServerArgs(model_path=str(directory / "model"), device="cpu", tp_size=1, skip_tokenizer_init=True)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    pack(directory)
    in_memory = answers()
    by_hand = in_memory["1 of 3"]
    told: dict[str, Any] = {
        "lookups": sum(len(each) for each in in_memory.values()),
        "owned": float((by_hand[2] != 0).any(-1).float().mean()),
        "not a number": int(by_hand[2].isnan().sum()),
        "differ": {},
    }

    def compared(kind: str) -> None:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        run_scheduler_process(directory, kind)
        on_disk = answers()
        differ = {
            name: [number for number, (a, b) in enumerate(zip(in_memory[name], found, strict=True))
                   if a.shape != b.shape or not torch.equal(bits(a), bits(b))]
            for name, found in on_disk.items()
        }  # fmt: skip
        kept = sum(parameter.numel() for parameter in table().parameters())
        report = {"differ": differ, "kept": kept, "counted": counted()}
        if kind == "python":
            report |= {"refusals": refusals(directory), "without manifest": without_manifest(directory)}
        (directory / f"{kind}.json").write_text(json.dumps(report))

    tokenizer = Path(sys.prefix) / "models/tiny/tokenizer.json"
    place(1, 0)
    before = prefetch.sequence(tokenizer)
    for name, mode, spoil in (("on", "on", False), ("check", "check", False), ("spoilt", "check", True)):

        def fetched(name: str = name, mode: str = mode, spoil: bool = spoil) -> None:
            report = prefetch.compared(tokenizer, before, mode, spoil=spoil)
            (directory / f"{name}.json").write_text(json.dumps(report))

        status, said = ended(fetched)
        told[name] = json.loads((directory / f"{name}.json").read_text()) | {"said": said} if status == 0 else said
    for kind in readers:
        status, said = ended(partial(compared, kind))
        told[kind] = json.loads((directory / f"{kind}.json").read_text()) if status == 0 else said
    return told


if __name__ == "__main__":
    # The core as it was built for the test, not into the engine's environment, which nobody writes to.
    for module in (build, reader):
        setattr(module, "library", lambda: Path(sys.argv[2]))  # noqa: B010 - to mypy they are constants
    print("\n" + json.dumps(main(Path(sys.argv[1]), sys.argv[3:])))
