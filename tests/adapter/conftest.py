"""The interpreter of the lab's engine, which has the real SGLang; made if it is not there, as for the lab's tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.layout import places
from tests.lab.sglang import root

REPOSITORY = Path(__file__).parents[2]
SETTINGS = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": str(REPOSITORY),
}
Child = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def engine() -> Path:
    """Raises LabError, so that a test that needs it fails where it cannot be made."""
    return root.make(places().cache, print)


@pytest.fixture(scope="session")
def sglang(engine: Path) -> Path:
    """The package as text: nothing is imported."""
    return next(engine.glob("lib/python3.*/site-packages/sglang"))


@pytest.fixture(scope="session")
def child(engine: Path) -> Child:
    """Runs that Python with these arguments and variables, to its end."""

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return subprocess.run(
            [engine / "bin/python", "-W", "ignore", *arguments],
            env=kept | SETTINGS | variables, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def told(child: Child) -> Callable[..., Any]:
    """The JSON that a script of tests.adapter.child prints in its last line."""

    def run(script: str, *arguments: str | Path) -> Any:
        done = child(REPOSITORY / f"tests/adapter/child/{script}.py", *arguments)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run
