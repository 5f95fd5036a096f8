"""Every key has an effective value and a word on how it comes into force; a change is told by key and both values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkd.config.keys import KEYS, as_toml, changes, effective
from sparkd.config.tables import _TABLES
from tests.config.etc import CLUSTER, NODE, Etc

ALL = """
[recovery]
backoff_seconds = 1.5
restarts = 7
memory_back_percent = 80
memory_floor_mib = 512
[peers]
fresh_seconds = 20
[fabric]
measure_seconds = 0
[incidents]
keep_days = 7
"""


def test_every_key_that_may_be_in_the_file_is_known() -> None:
    named = {f"{table}.{key}" for table, keys in _TABLES.items() for key in keys}
    assert set(KEYS) == named | {"cluster.name", "cluster.base_range"}


def test_effective_values(etc: Etc) -> None:
    values = effective(etc.load())
    assert values["recovery.restarts"] == "3"
    assert values["recovery.window_minutes"] == "60"
    assert values["recovery.memory_floor_mib"] == "4096 on a Spark, off elsewhere"
    assert values["engine.api"] == '"127.0.0.1:8888"'
    assert values["fabric.measure_seconds"] == "1"
    assert values["cluster.node[2].address"] == '"192.168.77.3"'
    etc.write("sparkd.toml", NODE + CLUSTER + ALL)
    values = effective(etc.load())
    assert [values[f"recovery.{key}"] for key in ("backoff_seconds", "memory_back_percent", "memory_floor_mib")] == [
        "1.5",
        "80",
        "512",
    ]
    assert values["fabric.measure_seconds"] == "0"


def test_changes_say_what_each_takes(etc: Etc) -> None:
    before = etc.load()
    assert changes(before, before) == ()
    etc.write("sparkd.toml", NODE + CLUSTER + ALL)
    found = {change.key: (str(change), change.takes) for change in changes(before, etc.load())}
    assert found["recovery.restarts"] == ("recovery.restarts from 3 to 7", "reload")
    assert found["peers.fresh_seconds"] == ("peers.fresh_seconds from 15 to 20", "reload")
    assert found["incidents.keep_days"] == ("incidents.keep_days from 30 to 7", "sparkd")
    assert found["fabric.measure_seconds"] == ("fabric.measure_seconds from 1 to 0", "ring")


def test_a_node_more_and_another_key_of_the_cluster_are_changes(etc: Etc) -> None:
    before = etc.load()
    more = '[[cluster.node]]\nname = "spark4"\nrank = 3\naddress = "192.168.77.4"\n'
    etc.write("sparkd.toml", NODE + CLUSTER + more)
    found = {change.key: str(change) for change in changes(before, etc.load())}
    assert found["cluster.node[3].name"] == 'cluster.node[3].name from nothing to "spark4"'
    other = changes(before, replace(before, cluster_key=b"x" * 32))
    assert [(change.key, change.takes) for change in other] == [("cluster.key", "ring")]


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", '"a"'), ('a"b\\', '"a\\"b\\\\"'), (3, "3"), (1.0, "1"), (0.25, "0.25"), (1234567.5, "1234567.5")],
)
def test_values_as_toml(value: str | float, text: str) -> None:
    assert as_toml(value) == text
