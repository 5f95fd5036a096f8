"""`.ci/run` ends with the status of its steps, and sees what they leave behind."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

# The steps end at once; `test` does what the case wants.
MAKEFILE = """\
.PHONY: deps lab lab-down test
deps lab lab-down:
\t@echo step $@
test:
\t@{test}
"""
LEAVE_A_PROCESS = "setsid sleep 97 >/dev/null 2>&1 </dev/null & echo $$! >left.pid"


def checkout(directory: Path, test: str) -> Path:
    """A tree with .ci, a Makefile whose steps do nothing but `test`, and a lab that notes that it was removed."""
    shutil.copytree(ROOT / ".ci", directory / ".ci")
    (directory / "Makefile").write_text(MAKEFILE.format(test=test), encoding="utf-8")
    lab = directory / "tests/lab/lab"
    lab.parent.mkdir(parents=True)
    lab.write_text(f"#!/bin/sh\necho \"$@\" >>'{directory}/lab.log'\n", encoding="utf-8")
    lab.chmod(0o755)
    return directory


def environment(directory: Path) -> dict[str, str]:
    return os.environ | {"SPARKD_CI_SETTLE": "1", "SPARKD_LAB_DIR": str(directory / "labs/lab")}


def run(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(directory / ".ci/run")]
    return subprocess.run(command, env=environment(directory), check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.lab
def test_a_process_that_is_left_behind_fails_the_run(tmp_path: Path) -> None:
    directory = checkout(tmp_path, LEAVE_A_PROCESS)

    result = run(directory)

    os.kill(int((directory / "left.pid").read_text(encoding="utf-8")), signal.SIGKILL)
    assert result.returncode == 1
    assert ": sleep 97" in result.stderr
    assert not (directory / "lab.log").exists()


@pytest.mark.lab
def test_a_lab_that_is_left_behind_fails_the_run(tmp_path: Path) -> None:
    directory = checkout(tmp_path, "mkdir -p labs/lab-test")

    result = run(directory)

    assert result.returncode == 1
    assert f"left behind: directory {directory}/labs/lab-test" in result.stderr


@pytest.mark.lab
def test_a_process_of_others_is_not_the_runs(tmp_path: Path) -> None:
    directory = checkout(tmp_path, "touch started; sleep 1")
    with subprocess.Popen(
        [str(directory / ".ci/run")],
        env=environment(directory),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        end = time.monotonic() + 30
        while not (directory / "started").exists() and time.monotonic() < end:
            time.sleep(0.05)
        # A login that begins during the run: a new session, whose parent is init once its own has ended.
        subprocess.run(["setsid", "--fork", "sleep", "5.125"], check=True)
        _, errors = running.communicate(timeout=30)

    assert "sleep 5.125" not in errors
    assert "process" not in errors


@pytest.mark.lab
def test_a_clean_run_says_nothing_about_its_own(tmp_path: Path) -> None:
    directory = checkout(tmp_path, "sleep 0.1")

    result = run(directory)

    assert [line.removeprefix("step ") for line in result.stdout.splitlines() if line.startswith("step ")] == [
        "deps",
        "lab",
        "lab-down",
    ]
    # Others may be at work on the same machine: their mounts and devices count, their processes do not.
    assert "process" not in result.stderr
    assert ("nothing is left behind" in result.stdout) == (result.returncode == 0)


@pytest.mark.lab
def test_a_failed_step_removes_the_lab_and_keeps_its_status(tmp_path: Path) -> None:
    directory = checkout(tmp_path, "exit 3")

    result = run(directory)

    assert result.returncode == 2
    assert "failed with status 2" in result.stderr
    assert (directory / "lab.log").read_text(encoding="utf-8") == "down\n"


@pytest.mark.lab
def test_an_interrupted_run_ends_its_step_and_looks_for_leftovers(tmp_path: Path) -> None:
    directory = checkout(tmp_path, "echo $$$$ >step.pid; exec sleep 98")
    with subprocess.Popen(
        [str(directory / ".ci/run")],
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        end = time.monotonic() + 30
        while not (directory / "step.pid").exists() and time.monotonic() < end:
            time.sleep(0.05)
        running.terminate()
        output, _ = running.communicate(timeout=30)

    assert running.returncode == 143
    assert not Path(f"/proc/{(directory / 'step.pid').read_text(encoding='utf-8').strip()}").exists()
    assert "left behind" in output
    assert "sleep 98" not in output
    assert (directory / "lab.log").read_text(encoding="utf-8") == "down\n"
