"""A real installation of the lock's CPU profile: killed at random moments, gone on with, verified: `make engine-trial`.

Needs about 4 GB below --directory, and an index where pip finds the wheels. A tiny version that is in use before it has
to stay in use until the real one is there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runtime.engine_install.lock import read, shipped
from runtime.engine_install.versions import in_use
from tests.runtime.engine_install.made import lock, wheel

ROOT = Path(__file__).parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--longest", type=float, default=60.0, help="seconds until a kill, at most (%(default)s)")
    parser.add_argument("--directory", type=Path, default=ROOT / "build")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="engine-trial-", dir=options.directory) as name:
        place = Path(name)
        wanted = read(shipped("cpu"))
        root = place / "engine"
        first = lock(place / "first.toml", wheel(place, "tiny"), imports=("tiny",))
        run("install", "--root", root, "--lock", first, "--wheels", place, "--quiet")
        before = in_use(root)
        command = [
            sys.executable,
            "-m",
            "runtime.manage",
            "install",
            "--root",
            str(root),
            "--profile",
            "cpu",
            "--quiet",
        ]
        for number in range(options.kills):
            delay = chance.uniform(0.5, options.longest)
            with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as process:
                try:
                    process.wait(delay)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            cached = [path for path in (root / ".sparkd/wheels").glob("*.whl") if path.is_file()]
            print(f"kill {number + 1} after {delay:.1f} s: exit {process.returncode}, {len(cached)} wheels are there")
            if process.returncode == 0:
                break
            assert in_use(root) == before, "another version is in use than before"
            run("verify", "--root", root, "--quiet")
        begin = time.monotonic()
        run("install", "--root", root, "--profile", "cpu", "--quiet")
        print(f"installed after {time.monotonic() - begin:.0f} s more")
        assert in_use(root) == wanted.version
        run("verify", "--root", root, "--quiet")
        code = "import torch; print(torch.__version__, int(torch.ones(3).sum()))"
        print(
            subprocess.run([root / "bin/python", "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        )
    return 0


def run(*arguments: object) -> None:
    """A command of sparkd-engine, which has to succeed."""
    subprocess.run([sys.executable, "-m", "runtime.manage", *map(str, arguments)], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
