"""A test that was not run is named at the end of the run, and never counts as passed."""

import shutil
from pathlib import Path

from tests.architecture.repository import ROOT, tool

TESTS = """\
import pytest


@pytest.mark.lab
def test_slow() -> None:
    print("last")


@pytest.mark.hardware
def test_rdma() -> None:
    assert False


@pytest.mark.vm
def test_soft_roce() -> None:
    assert False


@pytest.mark.skip(reason="no reason")
def test_skipped() -> None:
    assert False


def test_quick() -> None:
    print("first")
"""


def test_what_needs_hardware_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests/test_planted.py").write_text(TESTS, encoding="utf-8")

    usual, all_of_them = tool("pytest", "-s", cwd=tmp_path), tool("pytest", "--hardware", "--vm", cwd=tmp_path)

    assert usual.returncode == 0, usual.stdout
    assert "2 passed, 1 skipped, 2 deselected" in usual.stdout
    assert "needs real Sparks (--hardware): tests/test_planted.py::test_rdma" in usual.stdout
    machines = "needs virtual machines, as make vm-test does (--vm): tests/test_planted.py::test_soft_roce"
    assert machines in usual.stdout
    assert "skipped: tests/test_planted.py::test_skipped" in usual.stdout
    assert usual.stdout.index("first") < usual.stdout.index("last")
    assert all_of_them.returncode == 1
    assert "2 failed, 2 passed, 1 skipped" in all_of_them.stdout
