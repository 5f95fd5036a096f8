"""Certificates take a while to make: once for all tests."""

from __future__ import annotations

import pytest

from tests.peers.tls import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))
