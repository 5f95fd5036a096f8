"""Engram's rows on local NVMe instead of in memory.

Of V4.1's two tables a rank of three would hold 69 GB. A step needs a few hundred rows of 264 bytes, and one NVMe reads
a hundred thousand blocks a second, so the rows are packed once per rank (`sparkd-engine model pack`) and read when they
are asked for. Rows of other ranks are zero, and SGLang's own all-reduce puts the parts together as before.
"""

from __future__ import annotations

from adapter.declare import SCHEDULER, Adapter, Option, Options, Symbol

_ENGRAM = "sglang.srt.layers.engram"
ADAPTER = Adapter(
    name="engram_rows",
    purpose="reads Engram's rows from local NVMe, so that the tables take no memory",
    worth="with the tables in memory the weights do not fit on three Sparks (0xSero's row store; zurih)",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_ENGRAM}:EngramEmbedding.__init__", "40947cfeec81a6bc"),
        Symbol(f"{_ENGRAM}:EngramEmbedding._load_rows", "8f4f166d803fb690"),
        Symbol(f"{_ENGRAM}:EngramEmbedding._owned_rows", "7040a9943e6b6e21"),
        Symbol(f"{_ENGRAM}:EngramEmbedding.forward", "9423d7bc90564050"),
        Symbol(f"{_ENGRAM}:EngramEmbedding._lookup", "dffa43e56cb1e44c"),
        Symbol(f"{_ENGRAM}:shard_range", "b200f22181d10b5e"),
    ),
    options={
        "directory": Option("/srv/models/DeepSeek-V4.1-Flash/engram", "where the packed rows of this rank are"),
        "source": Option(
            "checkpoint",
            "checkpoint: the rows have to be of the tensors in the checkpoint's manifest; sampled: only compare a "
            "sample of rows with what SGLang loads, which is done in any case",
            choices=("checkpoint", "sampled"),
        ),
        "reader": Option(
            "auto",
            "auto: the C++ core with io_uring, or with threads, or Python, whichever there is; or one of them",
            choices=("auto", "uring", "native", "python"),
        ),
        "depth": Option(64, "reads under way at a time, per table", low=1, high=1024),
        "timeout_seconds": Option(5.0, "that a batch of rows may take before the rank ends", low=0.01, high=600),
    },
)


def install(options: Options) -> None:
    from adapter.engram_rows import table

    table.install(ADAPTER, options)
