"""How fast sparkd-engine verifies, packs and fetches, beside the tools that everybody has: `make bench-runtime`.

Each figure is a ratio of two runs, one right after the other, on the same files and from a cold cache; the median of
the rounds counts. Against `sha256sum` with as many processes as there are cores, `cp` and `sync`, and `curl` and `sync`
from a server on loopback; fetching includes verifying, which curl does not do. Figures of a busy machine mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint.fetch import fetch
from runtime.checkpoint.manifest import OWN, Manifest
from runtime.checkpoint.remote import Remote
from runtime.checkpoint.verify import record, verify
from runtime.engram.ownership import tables_of
from runtime.engram.pack import job_of, pack
from tests.runtime.checkpoint.made import Table, checkpoint

ROOT = Path(__file__).parents[2]
GOALS = {"verify": 0.9, "pack": 0.7, "fetch": 0.9}
ROW = 264


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0, help="of the checkpoint (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=ROOT / "build", help="on the disk to be measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="throughput-", dir=options.directory) as name:
        place = Path(name)
        # Two tables of 12 subtables each make most of it.
        vocabulary = int(options.gib * (1 << 30) / 24 / ROW)
        model = checkpoint(place / "model", Table(vocabulary=vocabulary), filler=40 << 20)
        manifest = record(model, "made/up", "r1")
        manifests.save(model, manifest)
        found = {
            "verify": rounds(
                options.rounds, lambda: ours_verify(model, manifest), lambda: theirs_verify(model, manifest)
            ),
            "pack": rounds(options.rounds, lambda: ours_pack(model, place), lambda: theirs_pack(model, place)),
        }
        with served(model) as url:
            found["fetch"] = rounds(
                options.rounds, lambda: ours_fetch(manifest, url, place), lambda: theirs_fetch(manifest, url, place)
            )
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{manifest.size / (1 << 30):.1f} GiB, {os.cpu_count()} cores; MB/s, median of {options.rounds} rounds")
    for what, (ours, theirs, ratio) in found.items():
        against = {"verify": "sha256sum", "pack": "cp", "fetch": "curl"}[what]
        print(f"  {what:7} {ours:7.0f}   {against:10} {theirs:7.0f}   ratio {ratio:.2f}, goal {GOALS[what]}")
    return 0


def rounds(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float, float]:
    """Medians of both speeds in MB/s, and of the ratio, with either first in turn."""
    pairs = []
    for number in range(count):
        order = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        speeds = [each() for each in order]
        pairs.append((speeds[0], speeds[1]) if number % 2 == 0 else (speeds[1], speeds[0]))
    return (
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
    )


def ours_verify(model: Path, manifest: Manifest) -> float:
    cold(model)
    begin = time.monotonic()
    result = verify(model, manifest, everything=True)
    assert not result.faults
    return speed(result.read, begin)


def theirs_verify(model: Path, manifest: Manifest) -> float:
    cold(model)
    begin = time.monotonic()
    command = ["xargs", "-P", str(os.cpu_count()), "-n", "1", "sha256sum"]
    subprocess.run(command, input="\n".join(manifest.files), text=True, cwd=model, check=True, capture_output=True)
    return speed(manifest.size, begin)


def ours_pack(model: Path, place: Path) -> float:
    """One rank of one, that is both tables as a whole."""
    tables = tables_of(model)
    jobs = [job_of(model, place / "rows", tables, layer, 0, 1, "r1") for layer in tables.layers]
    cold(model)
    begin = time.monotonic()
    for job in jobs:
        pack(job, lambda _: None)
    taken = speed(sum(job.header.rows * ROW for job in jobs), begin)
    shutil.rmtree(place / "rows")
    return taken


def theirs_pack(model: Path, place: Path) -> float:
    shards = sorted(model.glob("*.safetensors"))[1:]
    (place / "copied").mkdir()
    cold(model)
    begin = time.monotonic()
    for shard in shards:
        subprocess.run(["cp", "--reflink=never", shard, place / "copied"], check=True)
        subprocess.run(["sync", place / "copied" / shard.name], check=True)
    taken = speed(sum(shard.stat().st_size for shard in shards), begin)
    shutil.rmtree(place / "copied")
    return taken


def ours_fetch(manifest: Manifest, url: str, place: Path) -> float:
    begin = time.monotonic()
    fetch(place / "fetched", manifest, Remote(url), lambda name: f"/{name}")
    taken = speed(manifest.size, begin)
    shutil.rmtree(place / "fetched")
    return taken


def theirs_fetch(manifest: Manifest, url: str, place: Path) -> float:
    begin = time.monotonic()
    for name in manifest.files:
        target = place / "curled" / name
        subprocess.run(["curl", "-sS", "--fail", "--create-dirs", "-o", target, f"{url}/{name}"], check=True)
        subprocess.run(["sync", target], check=True)
    taken = speed(manifest.size, begin)
    shutil.rmtree(place / "curled")
    return taken


@contextmanager
def served(model: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.runtime.ranges", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


def cold(directory: Path) -> None:
    """Out of the page cache, once written."""
    for path in directory.rglob("*"):
        if path.is_file() and OWN not in path.parts:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def speed(size: int, begin: float) -> float:
    return size / (time.monotonic() - begin) / 1e6


if __name__ == "__main__":
    sys.exit(main())
