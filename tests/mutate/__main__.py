"""Break each rule of mutations.toml in a copy of the tree, and see the tests notice: `make mutate`.

A line per mutation: what was lost, which test noticed, after how long. Exit status 1 if one went unnoticed, no longer
applies, or was not decided in time. Words on the command line choose the mutations whose rule or file has them.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.architecture.repository import ROOT, files
from tests.mutate.mutations import Mutation, apply, mutations

# In the order of how soon they notice something; what was run as a file is not run again with its directory.
_FIRST = ("gates", "decide", "recovery", "intent", "guard", "peer_lost")
SUITE = (
    *(f"tests/core/test_{name}.py" for name in _FIRST),
    *("tests/core", "tests/peers/test_poller.py", "tests/reconcile/test_executor.py", "tests/reconcile/test_loop.py"),
    *("tests/sim", "tests/reconcile"),
)
SECONDS = 300.0
"""What a mutation may take; the whole suite takes a fraction of it on a quiet machine."""
_COPIED = ("sparkd", "ring_mesh", "runtime", "adapter", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Outcome:
    """`verdict`: caught, survived, undecided or, of an equivalent one, as it must be."""

    mutation: Mutation
    verdict: str
    test: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.verdict in ("caught", "equivalent")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations with one of these in their rule or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    chosen = [m for m in mutations() if not options.words or any(w in f"{m.rule} {m.file}" for w in options.words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        outcomes = _all(chosen, Path(directory), options.jobs)
    bad = [outcome for outcome in outcomes if not outcome.good]
    print(f"{len(outcomes)} mutations, {len(bad)} not caught, {time.monotonic() - began:.0f} s")
    for outcome in bad:
        print(f"  {outcome.verdict}: {outcome.mutation.file}: {outcome.mutation.rule}")
    return 1 if bad or not outcomes else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _all(chosen: Sequence[Mutation], directory: Path, jobs: int) -> list[Outcome]:
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for number in range(jobs):
        free.put(_copy(directory / str(number)))

    def one(mutation: Mutation) -> Outcome:
        tree = free.get()
        try:
            outcome = try_out(tree, mutation)
        finally:
            free.put(tree)
        print(f"{outcome.seconds:5.1f} s  {outcome.verdict:10} {mutation.rule}\n{'':19}{outcome.test}", flush=True)
        return outcome

    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(one, chosen))
    finally:
        pool.shutdown(cancel_futures=True)


def _copy(tree: Path) -> Path:
    for file in files():
        if file.parts[0] in _COPIED:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, tree / file)
    return tree


def try_out(tree: Path, mutation: Mutation, suite: Sequence[str] = SUITE, seconds: float = SECONDS) -> Outcome:
    """Run the suite on the broken tree, which is whole again afterwards."""
    file = tree / mutation.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(apply(mutation, whole), encoding="utf-8")
    began = time.monotonic()
    try:
        verdict, test = _verdict(tree, suite, seconds)
    finally:
        file.write_text(whole, encoding="utf-8")
    if mutation.equivalent and verdict == "survived":
        verdict, test = "equivalent", mutation.equivalent
    elif mutation.equivalent and verdict == "caught":
        verdict, test = "not equivalent", f"{test}; drop `equivalent` from its entry"
    return Outcome(mutation, verdict, test, time.monotonic() - began)


def _verdict(tree: Path, suite: Sequence[str], seconds: float) -> tuple[str, str]:
    # Whoever ends this tool ends what it is at, too.
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "--tb=no",
        "--hypothesis-profile=mutate",
    ]
    # Python trusts a compiled file whose source has the same second and size, as a mutation may have.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *suite],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "undecided", f"the tests had not ended after {seconds:g} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return "survived", "all tests pass"
    if done.returncode == 1 and failed is not None:
        return "caught", failed[1]
    # Whatever does not even import says nothing of the tests.
    return "undecided", f"pytest left with {done.returncode}: {(done.stdout + done.stderr)[-300:].strip()}"


if __name__ == "__main__":
    sys.exit(main())
