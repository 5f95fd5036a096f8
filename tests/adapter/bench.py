"""The reader of Engram's rows against fio on the same file, in the same run: `python -m tests.adapter.bench`.

Direct reads, so that the page cache has no part in it. Rounds alternate, since disks of virtual machines are shared;
compare ratios, figures only of a quiet machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adapter.engram_rows.build import build
from adapter.engram_rows.engram_format import BLOCK, Header, encode
from adapter.engram_rows.reader import NativeReader, PythonReader, Reader
from tests.adapter import rows

DEPTH, BATCH, FEW = 64, 4096, 48


@dataclass(frozen=True)
class Place:
    path: Path
    header: Header


def file_of(directory: Path, mebibytes: int) -> Place:
    """Its contents are of no interest, but no file system may leave them out or share them."""
    blocks = mebibytes * 256
    header = rows.header(blocks * 15)
    path = directory / "bench.rows"
    with path.open("wb") as file:
        file.write(encode(header))
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    return Place(path, header)


def fio(place: Place, *more: str) -> dict[str, float]:
    """Of its one job: IOPS, and the longest completion in seconds."""
    command = [
        "fio", "--name=x", f"--filename={place.path}", "--readonly", "--rw=randread", f"--bs={BLOCK}", "--direct=1",
        "--ioengine=io_uring", "--randrepeat=0", "--output-format=json", *more,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        command[command.index("--ioengine=io_uring")] = "--ioengine=libaio"
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return {"iops": read["iops"], "longest": read["clat_ns"]["max"] / 1e9}


class Asker:
    """Random rows, the ids made beforehand."""

    def __init__(self, reader: Reader, header: Header, number: int) -> None:
        self._reader, self._rows, self._number = reader, header.rows, number
        self._ids = (ctypes.c_int64 * number)()
        self._out = (ctypes.c_ubyte * (number * header.row_bytes))()

    def ask(self) -> float:
        """Seconds that one batch takes."""
        self._ids[:] = [random.randrange(self._rows) for _ in range(self._number)]
        begin = time.perf_counter()
        self._reader.read(ctypes.addressof(self._ids), self._number, ctypes.addressof(self._out), 60)
        return time.perf_counter() - begin


def throughput(reader: Reader, header: Header, seconds: float) -> float:
    """Blocks a second."""
    asker, spent, before = Asker(reader, header, BATCH), 0.0, reader.stats().reads
    while spent < seconds:
        spent += asker.ask()
    return (reader.stats().reads - before) / spent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adapter.bench", description=__doc__)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured (default: that of temporary files)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of throughput")
    parser.add_argument("--mebibytes", type=int, default=512, help="size of the file")
    given = parser.parse_args(argv)
    if shutil.which("fio") is None:
        print("bench: fio is not installed: apt-get install fio", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="engram-bench-") as name:
        directory = Path(name)
        core = build(directory)
        place = file_of(directory, given.mebibytes)
        print(f"{given.mebibytes} MiB in {directory.parent}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        readers: list[Reader] = [
            NativeReader(place.path, place.header, DEPTH, core, uring=True),
            NativeReader(place.path, place.header, DEPTH, core, uring=False),
            PythonReader(place.path, place.header, DEPTH),
        ]
        try:
            _compare(place, readers, given.rounds, given.seconds)
        finally:
            for reader in readers:
                reader.close()
    return 0


def _compare(place: Place, readers: Sequence[Reader], rounds: int, seconds: float) -> None:
    floors: list[float] = []
    rates: dict[str, list[float]] = {reader.kind: [] for reader in readers}
    longest: list[float] = []
    few: dict[str, list[float]] = {reader.kind: [] for reader in readers}
    for _ in range(rounds):
        floors.append(fio(place, f"--iodepth={DEPTH}", "--time_based", f"--runtime={seconds}")["iops"])
        for reader in readers:
            rates[reader.kind].append(throughput(reader, place.header, seconds))
        for _ in range(4):
            longest.append(fio(place, f"--iodepth={FEW}", f"--number_ios={FEW}")["longest"])
            for reader in readers:
                few[reader.kind].append(Asker(reader, place.header, FEW).ask())
    floor = statistics.median(floors)
    print(f"random blocks of {BLOCK} at depth {DEPTH}: fio {floor:,.0f}/s")
    for kind, seen in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(seen, floors, strict=True)]
        print(f"  {kind:8} {statistics.median(seen):10,.0f}/s  {statistics.median(ratios):5.2f} of fio (median)")
    slowest = statistics.median(longest)
    print(f"{FEW} at once: the slowest of fio's {slowest * 1e3:.2f} ms")
    for kind, seen in few.items():
        middle = statistics.median(seen)
        print(f"  {kind:8} all of them {middle * 1e3:8.2f} ms     {middle / slowest:5.2f} times that (median)")


if __name__ == "__main__":
    sys.exit(main())
