"""What must be equal on all hosts before anything starts."""

from __future__ import annotations

from collections.abc import Callable

from sparkd.digests import digests
from tests.config.etc import Etc


def test_how_rails_are_measured_is_equal_everywhere(configured: Callable[..., Etc]) -> None:
    usual = digests(configured("").load())
    assert {key: value for key, value in usual.items() if key.startswith("fabric.")} == {
        "fabric.address_plan": "base",
        "fabric.measure_seconds": "1",
        "fabric.rail_min_gbps": "30",
        "fabric.rail_min_tcp_gbps": "16",
        "fabric.node_slow_ratio": "0.5",
    }
    for key in ("measure_seconds = 0", "rail_min_gbps = 40", "rail_min_tcp_gbps = 0", "node_slow_ratio = 0.1"):
        other = digests(configured(f"[fabric]\n{key}").load())
        assert other[f"fabric.{key.partition(' ')[0]}"] != usual[f"fabric.{key.partition(' ')[0]}"]
