"""``python -m runtime.smoke``."""

import json
import subprocess
import sys

import pytest

from runtime.smoke.__main__ import main
from tests.runtime.fake_engine import FakeEngine
from tests.runtime.fake_model import Faults


def test_the_table_and_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeEngine(Faults(wrong_sums=True)) as engine:
        assert main([engine.url, "health", "repeat"]) == 0
        passed = capsys.readouterr().out.splitlines()
        assert main([engine.url, "--model", "tiny", "health", "arithmetic"]) == 1
        failed = capsys.readouterr().out.splitlines()
    assert passed[0].split()[:2] == ["health", "ok"]
    assert passed[-1] == "2 of 2 checks passed"
    assert failed[1].split()[:2] == ["arithmetic", "FAILED"]
    assert "sums are wrong" in failed[1]
    assert failed[-1] == "1 of 2 checks passed"
    assert max(map(len, failed)) <= 130


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeEngine(Faults(wrong_sums=True)) as engine:
        assert main(["--json", engine.url, "arithmetic", "health"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in document["results"]] == ["arithmetic", "health"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["http://127.0.0.1:1", "none"], "no smoke check is called none"), (["https://x"], "expected http://HOST:PORT")],
)
def test_arguments_that_make_no_sense(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_as_a_program() -> None:
    with FakeEngine() as engine:
        command = [sys.executable, "-I", "-c", PROGRAM, engine.url, "completion"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "1 of 1 checks passed"


# As python -m does, but isolated from whatever is installed beside it.
PROGRAM = f"""
import runpy, sys
sys.path[:0] = [{__file__.rpartition("/tests/")[0]!r}]
sys.argv[0] = "smoke"
runpy.run_module("runtime.smoke", run_name="__main__")
"""
