"""Every key of sparkd.toml with its effective value, and what it takes for another value to be in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sparkd.config.settings import Settings
from sparkd.core.railfacts import RailPolicy

Value = str | int | float | None
Takes = Literal["reload", "sparkd", "ring"]
"""How a changed key comes into force: `systemctl reload sparkd`; a restart of sparkd on this node, which no rank
notices; or that on every node, and the next start of the ring."""

_SPARK_ONLY = "{} on a Spark, off elsewhere"


@dataclass(frozen=True)
class Key:
    """usual: what the default is where the configuration has no value for it, in words."""

    value: Callable[[Settings], Value]
    takes: Takes
    usual: str = ""


def _rails(settings: Settings) -> RailPolicy:
    return settings.policy.rails or RailPolicy(seconds=0)


KEYS: Mapping[str, Key] = {
    "node.name": Key(lambda s: s.node, "sparkd"),
    "cluster.name": Key(lambda s: s.cluster.name, "ring"),
    "cluster.base_range": Key(lambda s: str(s.cluster.base_range), "ring"),
    "fabric.address_plan": Key(lambda s: "adopt" if s.policy.adopt else "base", "ring"),
    "fabric.measure_seconds": Key(lambda s: _rails(s).seconds, "ring"),
    "fabric.rail_min_gbps": Key(lambda s: _rails(s).min_gbps, "ring"),
    "fabric.rail_min_tcp_gbps": Key(lambda s: _rails(s).min_tcp_gbps, "ring"),
    "fabric.node_slow_ratio": Key(lambda s: _rails(s).slow_ratio, "ring"),
    "engine.name": Key(lambda s: s.engine.name, "ring"),
    "engine.profile": Key(lambda s: s.engine.profile, "ring"),
    "engine.python": Key(lambda s: s.engine.python, "ring"),
    "engine.rendezvous_port": Key(lambda s: s.engine.rendezvous_port, "ring"),
    "engine.api": Key(lambda s: s.engine.api, "ring"),
    "listen.operator": Key(lambda s: s.listen.operator, "sparkd"),
    "listen.peer_port": Key(lambda s: s.listen.peer_port, "sparkd"),
    "api.listen": Key(lambda s: s.api.listen, "sparkd"),
    "api.certificate": Key(lambda s: s.api.certificate, "sparkd"),
    "api.key": Key(lambda s: s.api.key, "sparkd"),
    "recovery.backoff_seconds": Key(lambda s: s.policy.backoff, "reload"),
    "recovery.backoff_max_seconds": Key(lambda s: s.policy.backoff_max, "reload"),
    "recovery.restarts": Key(lambda s: s.policy.restarts, "reload"),
    "recovery.window_minutes": Key(lambda s: s.policy.window / 60, "reload"),
    "recovery.memory_back_percent": Key(
        lambda s: None if s.policy.memory_back is None else s.policy.memory_back * 100,
        "reload",
        _SPARK_ONLY.format(90),
    ),
    "recovery.memory_back_seconds": Key(lambda s: s.policy.memory_back_seconds, "reload"),
    "recovery.memory_floor_mib": Key(
        lambda s: None if s.policy.memory_floor_kib is None else s.policy.memory_floor_kib // 1024,
        "reload",
        _SPARK_ONLY.format(4096),
    ),
    "recovery.hard_reset_hours": Key(lambda s: s.policy.hard_reset_window / 3600, "reload"),
    "peers.fresh_seconds": Key(lambda s: s.policy.peer_fresh, "reload"),
    "peers.tick_seconds": Key(lambda s: s.tick, "sparkd"),
    "incidents.keep_days": Key(lambda s: s.keeping.days, "sparkd"),
    "incidents.keep_mib": Key(lambda s: s.keeping.mebibytes, "sparkd"),
}
"""In the order of sparkd(8). `cluster.node` is a list, and has keys of its own; see `effective`."""


@dataclass(frozen=True)
class Change:
    """A key whose value differs, as TOML writes both."""

    key: str
    before: str
    after: str
    takes: Takes

    def __str__(self) -> str:
        return f"{self.key} from {self.before} to {self.after}"


def effective(settings: Settings) -> dict[str, str]:
    """The value of every key as TOML writes it; of one that no file has and that depends on the host, words."""
    values = {}
    for name, key in KEYS.items():
        value = key.value(settings)
        values[name] = key.usual if value is None else as_toml(value)
        if name == "cluster.base_range":
            for index, node in enumerate(settings.cluster.nodes):
                for part in ("name", "rank", "address", "management_interface"):
                    given = getattr(node, part)
                    told = given if isinstance(given, int) else str(given)
                    values[f"cluster.node[{index}].{part}"] = as_toml(told)
    return values


def changes(before: Settings, after: Settings) -> tuple[Change, ...]:
    """The keys that differ; a node more or less is a change of all its keys."""
    old, new = effective(before), effective(after)
    found = []
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name, "nothing"), new.get(name, "nothing")
        if was != now:
            found.append(Change(name, was, now, KEYS[name].takes if name in KEYS else "ring"))
    if before.cluster_key != after.cluster_key:
        found.append(Change("cluster.key", "one", "another", "ring"))
    return tuple(found)


def as_toml(value: str | float) -> str:
    """A string, an integer or a float in the form that a person would write."""
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}"'
    if isinstance(value, int):
        return str(value)
    return f"{value:g}" if abs(value) < 1e6 else repr(value)
