"""The linters pass, and they see what they are there for."""

from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, tool


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports", "--no-logo")],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_tree_is_clean(command: tuple[str, ...]) -> None:
    result = tool(*command)

    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_demands_annotations_and_refuses_mocks(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(
        '"""Planted."""\n\nfrom unittest.mock import patch\n\n\ndef wrong(x):\n    return patch(x)\n', encoding="utf-8"
    )

    result = tool("ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--output-format=concise", str(planted))

    assert result.returncode == 1
    assert {line.split()[1] for line in result.stdout.splitlines() if line.startswith(str(planted))} == {
        "ANN001",
        "ANN201",
        "TID251",
    }


def test_mypy_is_strict_and_knows_the_packages_of_the_distribution(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import gi, pydbus, pyroute2, systemd.daemon\n"
        "import no_such_package\n"
        "import fastapi\n"
        "def wrong(x): ...\n"
        "fastapi.no_such_name\n",
        encoding="utf-8",
    )

    result = tool("mypy", "--config-file", str(ROOT / "pyproject.toml"), str(planted))

    assert result.returncode == 1
    found = [line for line in result.stdout.splitlines() if "planted.py" in line and ": error: " in line]
    assert [(line.split(":")[1], line.rpartition("[")[2].rstrip("]")) for line in found] == [
        ("2", "import-not-found"),
        ("4", "no-untyped-def"),
        ("5", "attr-defined"),
    ]
