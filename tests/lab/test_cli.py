"""The lab's command line where there is no lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.lab.install import REPOSITORY


def test_the_status_of_no_lab_is_a_failure(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARKD_LAB_DIR": str(tmp_path / "lab")}
    command = [sys.executable, str(REPOSITORY / "tests/lab/lab"), "status"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith(": not up")
    done = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert json.loads(done.stdout)["up"] is False
