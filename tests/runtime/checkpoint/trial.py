"""A made-up checkpoint of some GiB: fetched from a hub that goes wrong, verified, packed for 2, 3 and 4 ranks, and all
rows compared with the source: `make model-trial`. Needs three times --gib below --directory.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runtime.checkpoint.fetch import fetch
from runtime.checkpoint.remote import Remote
from runtime.checkpoint.sources import Hub
from runtime.checkpoint.stream import Patience
from runtime.checkpoint.verify import verify
from runtime.engram.check import check_rows
from runtime.engram.ownership import tables_of
from runtime.engram.pack import Job, job_of, pack
from runtime.engram_format import BLOCK
from tests.runtime.checkpoint.hub import COMMIT, REPOSITORY, Fault, running
from tests.runtime.checkpoint.made import Table, checkpoint

ROOT = Path(__file__).parents[3]
ROW = 264
CHUNK = 1000
"""Blocks that are compared at once."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--directory", type=Path, default=ROOT / "build")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="model-trial-", dir=options.directory) as name:
        place, copy = Path(name), Path(name) / "copy"
        table = Table(vocabulary=int(options.gib * (1 << 30) / 24 / ROW))
        origin = checkpoint(place / "origin", table, seed=options.seed, filler=64 << 20)
        faults = [fault(chance) for _ in range(40)]
        with running(origin) as hub:
            manifest = Hub(Remote(hub.url), REPOSITORY, COMMIT).manifest()
        with running(origin, *faults) as hub:
            source = Hub(Remote(hub.url, timeout=5), REPOSITORY, COMMIT)
            patience = Patience(attempts=40, first_pause=0.01)
            begin = time.monotonic()
            got = fetch(copy, manifest, source.remote, source.path_of, segment=32 << 20, patience=patience)
            taken, seen = time.monotonic() - begin, [each.kind for each in faults if not each.times]
            print(
                f"seed {options.seed}: fetched {got.received >> 20} MiB in {taken:.0f} s with {len(hub.asked)} requests"
            )
            print(f"  over {len(seen)} faults ({', '.join(sorted(set(seen)))})")
        assert not verify(copy, manifest, everything=True).faults
        shutil.rmtree(origin)
        for world in (2, 3, 4):
            tables = tables_of(copy)
            for layer in tables.layers:
                jobs = [job_of(copy, place / "rows", tables, layer, rank, world, COMMIT) for rank in range(world)]
                for job in jobs:
                    pack(job, lambda _: None)
                    check_rows(job.target, copy, lambda _: None)
                    compare(job)
                assert sum(job.header.rows for job in jobs) == tables.rows[tables.layers.index(layer)]
                shutil.rmtree(place / "rows")
            print(f"{world} ranks: {sum(tables.rows)} rows are the checkpoint's, bit for bit")
    return 0


def fault(chance: random.Random) -> Fault:
    """Something that goes wrong once."""
    kind = chance.choice(["reset"] * 4 + ["short"] * 3 + ["status"] * 4 + ["whole", "length"])
    status = chance.choice([416, 429, 500, 503])
    headers = {"Retry-After": "0"} if status == 429 else {}
    return Fault(kind, "safetensors", after=chance.randrange(1 << 25), status=status, headers=headers)


def compare(job: Job) -> None:
    """Every row of a file with the checkpoint's."""
    header = job.header
    with job.weight.path.open("rb") as weights, job.scale.path.open("rb") as scales:
        weights.seek(job.weight.offset + header.row_start * header.weight_bytes)
        scales.seek(job.scale.offset + header.row_start * header.scale_bytes)
        for rows in unpacked(job):
            assert b"".join(row[: header.weight_bytes] for row in rows) == weights.read(len(rows) * header.weight_bytes)
            assert b"".join(row[header.weight_bytes :] for row in rows) == scales.read(len(rows) * header.scale_bytes)


def unpacked(job: Job) -> Iterator[list[bytes]]:
    """The rows of a file, some blocks at a time."""
    header = job.header
    left = header.rows
    with job.target.open("rb") as file:
        file.seek(BLOCK)
        while left:
            data = file.read(BLOCK * CHUNK)
            starts = [at + inside * ROW for at in range(0, len(data), BLOCK) for inside in range(header.rows_per_block)]
            rows = [data[at : at + ROW] for at in starts[:left]]
            left -= len(rows)
            yield rows


if __name__ == "__main__":
    sys.exit(main())
