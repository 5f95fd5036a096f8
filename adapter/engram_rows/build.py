"""`python -m adapter.engram_rows.build`: compiles the C++ core into this interpreter's environment.

Done once, when the engine is installed. liburing is used where its header is. The name of the library has the digest of
its source, so that an older one is never taken for it; without one the reader in Python gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from adapter.declare import AdapterError

SOURCE = Path(__file__).with_name("core.cpp")
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread")


def library(directory: Path | None = None) -> Path:
    """Where the core is, or would be."""
    digest = hashlib.sha256(SOURCE.with_suffix(".hpp").read_bytes() + SOURCE.read_bytes()).hexdigest()[:16]
    return (directory or Path(sys.prefix) / "lib/sparkd") / f"engram_rows-{digest}.so"


def build(directory: Path | None = None, compiler: str = "c++", *, uring: bool | None = None) -> Path:
    """Compile it. uring: with liburing or without, None: where it is there. Raises AdapterError."""
    target = library(directory)
    if shutil.which(compiler) is None:
        raise AdapterError(f"no compiler {compiler}: install g++, or go on with the reader in Python")
    target.parent.mkdir(parents=True, exist_ok=True)
    attempts = {True: (True,), False: (False,), None: (True, False)}[uring]
    said = ""
    for with_uring in attempts:
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".so", delete=False) as made:
            more = ["-DSPARKD_LIBURING", "-luring"] if with_uring else []
            command = [compiler, *FLAGS, *more[:1], "-o", made.name, str(SOURCE), *more[1:]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                os.chmod(made.name, 0o755)  # noqa: S103 - a library that every user may load
                os.replace(made.name, target)
                return target
            os.unlink(made.name)
            said = done.stderr.strip()
    raise AdapterError(f"{SOURCE.name} does not compile: {said[-2000:]}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m adapter.engram_rows.build", description=__doc__)
    parser.add_argument("--into", type=Path, metavar="DIRECTORY", help="not into this Python's environment")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    given = parser.parse_args(argv)
    try:
        print(build(given.into, given.compiler))
    except AdapterError as error:
        print(f"engram_rows: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
