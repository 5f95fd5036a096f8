"""Each import contract is broken by a violation planted in a copy of the packages, and by nothing less."""

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.repository import PACKAGES, ROOT, tool

CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}


@dataclass(frozen=True)
class Plant:
    """A violation: `code` at the end of `file`, and a word of the report that names it."""

    contract: str
    file: str
    code: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.contract}: {self.file}: {self.code}"


VIOLATIONS = [
    Plant("layers", "sparkd/core/planted.py", "import sparkd.ports", "sparkd.core.planted -> sparkd.ports"),
    Plant("layers", "sparkd/core/planted.py", "import sparkd.codec", "sparkd.core.planted -> sparkd.codec"),
    Plant("layers", "sparkd/codec.py", "import sparkd.wire", "sparkd.codec -> sparkd.wire"),
    Plant("layers", "sparkd/ports.py", "import sparkd.wire", "sparkd.ports -> sparkd.wire"),
    Plant("layers", "sparkd/wire.py", "import sparkd.ports", "sparkd.wire -> sparkd.ports"),
    Plant("layers", "sparkd/ports.py", "import sparkd.peers", "sparkd.ports -> sparkd.peers"),
    Plant("layers", "sparkd/host/planted.py", "import sparkd.peers", "sparkd.host.planted -> sparkd.peers"),
    Plant("layers", "sparkd/host/planted.py", "import sparkd.config", "sparkd.host.planted -> sparkd.config"),
    Plant("layers", "sparkd/peers/planted.py", "import sparkd.host", "sparkd.peers.planted -> sparkd.host"),
    Plant("layers", "sparkd/config/planted.py", "import sparkd.peers", "sparkd.config.planted -> sparkd.peers"),
    Plant("layers", "sparkd/host/planted.py", "import sparkd.reconcile", "sparkd.host.planted -> sparkd.reconcile"),
    Plant("layers", "sparkd/reconcile/planted.py", "import sparkd.api", "sparkd.reconcile.planted -> sparkd.api"),
    Plant("layers", "sparkd/api/planted.py", "import sparkd.daemon", "sparkd.api.planted -> sparkd.daemon"),
    Plant("layers", "sparkd/cli/planted.py", "import sparkd.daemon", "sparkd.cli.planted -> sparkd.daemon"),
    Plant("layers", "sparkd/daemon.py", "import sparkd.cli", "sparkd.daemon -> sparkd.cli"),
    Plant("layers", "sparkd/planted.py", "", "sparkd.planted"),
    Plant("pure", "sparkd/core/planted.py", "import time", "sparkd.core.planted -> time"),
    Plant("pure", "sparkd/core/planted.py", "from os import path", "sparkd.core.planted -> os"),
    Plant("pure", "ring_mesh/planted.py", "import socket", "ring_mesh.planted -> socket"),
    Plant("pure", "ring_mesh/planted.py", "import pydantic", "ring_mesh.planted -> pydantic"),
    Plant("pure", "sparkd/core/planted.py", "import runtime", "sparkd.core.planted -> runtime"),
    Plant("ring-mesh", "ring_mesh/planted.py", "import sparkd.core", "ring_mesh.planted -> sparkd.core"),
    Plant("ring-mesh", "ring_mesh/planted.py", "import runtime", "ring_mesh.planted -> runtime"),
    Plant("independence", "adapter/planted.py", "import sparkd.core", "adapter.planted -> sparkd.core"),
    Plant("independence", "adapter/planted.py", "import runtime.launch", "adapter.planted -> runtime.launch"),
    Plant("independence", "runtime/planted.py", "import sparkd.wire", "runtime.planted -> sparkd.wire"),
    Plant("independence", "runtime/planted.py", "import adapter", "runtime.planted -> adapter"),
    Plant("independence", "sparkd/planted.py", "import runtime", "sparkd.planted -> runtime"),
    Plant("api", "sparkd/api/planted.py", "import sparkd.host", "sparkd.api.planted -> sparkd.host"),
    Plant("api", "sparkd/api/planted.py", "import sparkd.peers", "sparkd.api.planted -> sparkd.peers"),
    Plant("api", "sparkd/api/planted.py", "import sparkd.config", "sparkd.api.planted -> sparkd.config"),
    Plant("cli", "sparkd/daemon.py", "import sparkd.cli", "sparkd.daemon -> sparkd.cli"),
    Plant("cli", "sparkd/__main__.py", "import sparkd.cli", "sparkd.__main__ -> sparkd.cli"),
    Plant("cli", "sparkd/core/planted.py", "import sparkd.cli", "sparkd.core.planted -> sparkd.cli"),
    Plant("dbus", "sparkd/daemon.py", "from gi.repository import GLib", "sparkd.daemon -> gi"),
    Plant("dbus", "sparkd/host/planted.py", "import pydbus", "sparkd.host.planted -> pydbus"),
    Plant("netlink", "sparkd/host/systemd.py", "import pyroute2", "sparkd.host.systemd -> pyroute2"),
    Plant("netlink", "runtime/planted.py", "from pyroute2 import IPRoute", "runtime.planted -> pyroute2"),
    Plant("pydantic", "sparkd/api/planted.py", "from pydantic import BaseModel", "sparkd.api.planted -> pydantic"),
    Plant("pydantic", "sparkd/cli/planted.py", "import pydantic", "sparkd.cli.planted -> pydantic"),
    Plant("http", "sparkd/peers/client.py", "import httpx", "sparkd.peers.client -> httpx"),
    Plant("http", "runtime/planted.py", "import requests", "runtime.planted -> requests"),
]

# What a door is for; the same import anywhere else is a violation above.
ALLOWED = [
    Plant("independence", "adapter/planted.py", "import runtime.engram_format", ""),
    Plant("dbus", "sparkd/host/systemd.py", "import gi, pydbus", ""),
    Plant("netlink", "sparkd/host/netlink.py", "import pyroute2", ""),
    Plant("pydantic", "sparkd/config/planted.py", "import pydantic", ""),
    Plant("pydantic", "sparkd/wire.py", "import pydantic", ""),
]


def lint_with(plant: Plant, directory: Path) -> tuple[int, str]:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    file = directory / plant.file
    assert file.parent.is_dir(), f"{plant.file} is in no package"
    before = file.read_text(encoding="utf-8") if file.exists() else '"""Planted."""\n'
    file.write_text(f"{before}\n{plant.code}\n", encoding="utf-8")
    result = tool("lint-imports", "--no-logo", "--no-cache", "--contract", plant.contract, cwd=directory)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("plant", VIOLATIONS, ids=str)
def test_a_violation_breaks_the_contract(plant: Plant, tmp_path: Path) -> None:
    status, report = lint_with(plant, tmp_path)

    assert status == 1
    assert f"{CONTRACTS[plant.contract]['name']} BROKEN" in report
    assert plant.evidence in report


@pytest.mark.parametrize("plant", ALLOWED, ids=str)
def test_the_door_itself_may(plant: Plant, tmp_path: Path) -> None:
    status, report = lint_with(plant, tmp_path)

    assert status == 0, report
    assert f"{CONTRACTS[plant.contract]['name']} KEPT" in report


def test_every_forbidden_module_is_seen_in_both_pure_packages(tmp_path: Path) -> None:
    forbidden = CONTRACTS["pure"]["forbidden_modules"]
    imports = "".join(f"import {module}\n" for module in forbidden)
    (tmp_path / "ring").mkdir()

    _, in_core = lint_with(Plant("pure", "sparkd/core/planted.py", imports, ""), tmp_path)
    _, in_ring_mesh = lint_with(Plant("pure", "ring_mesh/planted.py", imports, ""), tmp_path / "ring")

    for module in forbidden:
        assert f"sparkd.core.planted -> {module}" in in_core
        assert f"ring_mesh.planted -> {module}" in in_ring_mesh


def test_each_contract_has_a_planted_violation() -> None:
    assert {plant.contract for plant in VIOLATIONS} == set(CONTRACTS)
