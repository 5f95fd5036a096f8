"""The package, built once."""

from __future__ import annotations

import pytest

from tests.packaging.built import Package, fresh


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package(fresh(), tmp_path_factory.mktemp("package"))
