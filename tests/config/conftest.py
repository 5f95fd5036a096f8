"""A node's directory with certificates made once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from sparkd.cli.certificates import Pair, issue, make_ca
from tests.config.etc import CLUSTER, NODE, Etc


@pytest.fixture(scope="session")
def ca() -> Pair:
    return make_ca("lab", datetime.now(UTC))


@pytest.fixture(scope="session")
def spark1(ca: Pair) -> Pair:
    return issue(ca, "spark1", IPv4Address("192.168.77.1"), datetime.now(UTC))


@pytest.fixture
def etc(tmp_path: Path, ca: Pair, spark1: Pair) -> Etc:
    made = Etc(tmp_path)
    made.write("sparkd.toml", NODE + CLUSTER)
    made.write("cluster.key", "ab" * 32 + "\n")
    made.write("tls/ca.crt", ca.certificate)
    made.write("tls/node.crt", spark1.certificate)
    made.write("tls/node.key", spark1.key)
    return made


@pytest.fixture
def configured(etc: Etc) -> Callable[..., Etc]:
    """The directory with other text in sparkd.toml: `cluster` replaces the description, `extra` follows it."""

    def make(extra: str = "", *, cluster: str = CLUSTER, node: str = NODE) -> Etc:
        etc.write("sparkd.toml", f"{node}{cluster}{extra}")
        return etc

    return make
