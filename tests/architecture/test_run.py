"""`make test` runs in two halves: both count, both are shown, and both hear of an interruption."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

PYTEST = """\
import signal, sys, time
half = sys.argv[1].removeprefix("--half=")
print("this is", half, flush=True)
if {sleeps!r}:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    open({here!r} + "/" + half, "w").close()
    time.sleep(60)
sys.exit({statuses!r}[half])
"""


def command(directory: Path, lab: int = 0, rest: int = 0, *, sleeps: bool = False) -> list[str]:
    stub = directory / "pytest.py"
    stub.write_text(PYTEST.format(statuses={"lab": lab, "rest": rest}, sleeps=sleeps, here=str(directory)))
    program = (
        f"import sys; from tests import run; run._PYTEST = (sys.executable, {str(stub)!r}); sys.exit(run.main([]))"
    )
    return [sys.executable, "-c", program]


@pytest.mark.parametrize(("lab", "rest", "status"), [(0, 0, 0), (1, 0, 1), (0, 2, 2), (1, 2, 2)])
def test_a_failure_in_either_half_fails_the_run(tmp_path: Path, lab: int, rest: int, status: int) -> None:
    ended = subprocess.run(command(tmp_path, lab, rest), cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == status
    assert ended.stdout.splitlines() == ["this is rest", "this is lab"]
    assert ended.stderr == ""


def test_both_halves_hear_of_an_interruption(tmp_path: Path) -> None:
    with subprocess.Popen(command(tmp_path, sleeps=True), cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "lab").exists() or not (tmp_path / "rest").exists():
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=30)
    assert running.returncode == 9
    assert said.splitlines() == ["this is rest", "this is lab"]
