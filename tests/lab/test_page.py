"""`lab page`: what a browser of this machine gets of a host's page."""

from __future__ import annotations

import signal
import subprocess
import urllib.request

import pytest

from tests.lab.install import REPOSITORY
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab
LAB = str(REPOSITORY / "tests/lab/lab")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_page_of_a_host_is_there_for_a_browser_of_this_machine(down: Ring, end: signal.Signals) -> None:
    environment = {"SPARKD_LAB_DIR": str(down.lab.places.directory), "PATH": "/usr/bin:/bin"}
    command = [LAB, "page", "spark2", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        try:
            url = shown.stdout.readline().split()[0]
            for path, text in (("", "<title>sparkd</title>"), ("v1/ring", '"node":"spark2"')):
                with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
                    assert text in answer.read().decode()
        finally:
            shown.send_signal(end)
        assert shown.wait(10) == 130


def test_a_host_that_is_not_there_is_named(down: Ring) -> None:
    environment = {"SPARKD_LAB_DIR": str(down.lab.places.directory), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([LAB, "page", "spark4"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "spark4" in done.stderr
