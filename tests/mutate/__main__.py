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

# In the order of how soon they notice something, and in runs of their own: of a file and the directory that it is in,
# pytest takes the directory.
_FIRST = ("gates", "decide", "recovery", "intent", "guard", "peer_lost")
SUITES = (
    tuple(f"tests/core/test_{name}.py" for name in _FIRST),
    ("tests/peers/test_poller.py", "tests/reconcile/test_executor.py", "tests/reconcile/test_loop.py"),
    ("tests/core", "tests/sim", "tests/reconcile"),
)
SECONDS = 300.0
"""What a mutation may take; the whole suite takes a fraction of it on a quiet machine."""
_running: set[subprocess.Popen[str]] = set()
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    chosen = [m for m in mutations() if not options.words or any(w in f"{m.rule} {m.file}" for w in options.words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        # Of tests that fail anyway nothing can be learned.
        verdict, test = run_all(_copy(Path(directory) / "whole"), SUITES, SECONDS)
        if verdict != "survived":
            print(f"the tests do not pass on the whole tree: {verdict}: {test}")
            return 1
        print(f"{time.monotonic() - began:5.1f} s  the tests pass on the whole tree", flush=True)
        outcomes = _all(chosen, Path(directory), options.jobs)
    bad = [outcome for outcome in outcomes if not outcome.good]
    print(f"{len(outcomes)} mutations, {len(bad)} not caught, {time.monotonic() - began:.0f} s")
    for outcome in bad:
        print(f"  {outcome.verdict}: {outcome.mutation.file}: {outcome.mutation.rule}")
    return 1 if bad or not outcomes else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for child in tuple(_running):
        child.kill()
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


def try_out(
    tree: Path, mutation: Mutation, suites: Sequence[Sequence[str]] = SUITES, seconds: float = SECONDS
) -> Outcome:
    """Run the suites on the broken tree, which is whole again afterwards."""
    file = tree / mutation.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(apply(mutation, whole), encoding="utf-8")
    began = time.monotonic()
    try:
        verdict, test = run_all(tree, suites, seconds)
    finally:
        file.write_text(whole, encoding="utf-8")
    if mutation.equivalent and verdict == "survived":
        verdict, test = "equivalent", mutation.equivalent
    elif mutation.equivalent and verdict == "caught":
        verdict, test = "not equivalent", f"{test}; drop `equivalent` from its entry"
    return Outcome(mutation, verdict, test, time.monotonic() - began)


def run_all(tree: Path, suites: Sequence[Sequence[str]], seconds: float) -> tuple[str, str]:
    """The verdict of the first suite that notices something, or of the last one."""
    verdict, test = "survived", "there are no tests"
    for suite in suites:
        verdict, test = run(tree, suite, seconds)
        if verdict != "survived":
            break
    return verdict, test


def run(tree: Path, suite: Sequence[str], seconds: float) -> tuple[str, str]:
    """The verdict of the suite on a tree, and the test that it is from."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    # Python trusts a compiled file whose source has the same second and size, as a mutation may have.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        [*command, "--hypothesis-profile=mutate", *suite],
        cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as child:  # fmt: skip
        _running.add(child)
        try:
            out, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return "undecided", f"the tests had not ended after {seconds:g} s"
        finally:
            _running.discard(child)
            child.kill()
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
    if child.returncode == 0:
        return "survived", "all tests pass"
    if child.returncode == 1 and failed is not None:
        return "caught", failed[1]
    # Whatever does not even import says nothing of the tests.
    return "undecided", f"pytest left with {child.returncode}: {out[-300:].strip()}"


if __name__ == "__main__":
    sys.exit(main())
