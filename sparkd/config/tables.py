"""The checks of each key of sparkd.toml."""

from __future__ import annotations

import re
from ipaddress import IPv4Address

from ring_mesh import Cluster, ClusterError, parse_cluster
from ring_mesh.cluster import shown, unknown_keys
from sparkd.config.files import Document
from sparkd.config.settings import Api, Engine, Keeping, Listen, Problem
from sparkd.core.railfacts import RailPolicy
from sparkd.core.snapshot import Policy

ENGINES = ("probe", "sglang")
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ABSOLUTE = re.compile(r"(/[^/\x00-\x20\x7f]+)+")
# Within less, a stream over TCP has not come up to its rate.
_MEASURE_SECONDS_MIN = 0.05

_TABLES: dict[str, tuple[str, ...]] = {
    "node": ("name",),
    "cluster": (),  # its keys are known to ring_mesh
    "fabric": ("address_plan", "measure_seconds", "rail_min_gbps", "rail_min_tcp_gbps", "node_slow_ratio"),
    "engine": ("name", "profile", "python", "rendezvous_port", "api"),
    "listen": ("operator", "peer_port"),
    "api": ("listen", "certificate", "key"),
    "recovery": (
        "backoff_seconds",
        "backoff_max_seconds",
        "restarts",
        "window_minutes",
        "memory_back_percent",
        "memory_back_seconds",
        "memory_floor_mib",
        "hard_reset_hours",
    ),
    "peers": ("fresh_seconds", "tick_seconds"),
    "incidents": ("keep_days", "keep_mib"),
}


class Checker:
    """Takes values out of a document. A value that cannot be used is added to `problems`, and the default returned."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._faulty: set[str] = set()
        for problem in unknown_keys("", document.tables, tuple(_TABLES)):
            self.add(problem.key, problem.found, problem.expected)
        for name, known in _TABLES.items():
            table = document.tables.get(name, {})
            if not isinstance(table, dict):
                self.add(name, shown(table), f"one [{name}] table")
            elif known:
                for problem in unknown_keys(name, table, known):
                    self.add(problem.key, problem.found, problem.expected)

    def add(self, key: str, found: str, expected: str) -> None:
        self._faulty.add(key)
        self.problems.append(Problem(self._document.source(key), key, found, expected))

    def node(self) -> str | None:
        """`node.name`, not yet compared with the cluster; None if it cannot be used."""
        return self._text("node.name", "the name of one of [[cluster.node]]")

    def cluster(self) -> Cluster | None:
        table = self._document.tables.get("cluster")
        if table is None:
            self.add("cluster", "nothing", "a [cluster] table")
        if not isinstance(table, dict):
            return None
        try:
            return parse_cluster(table)
        except ClusterError as error:
            for problem in error.problems:
                self.add(problem.key, problem.found, problem.expected)
            return None

    def engine_and_listen(self) -> tuple[Engine, Listen]:
        """`[engine]` and `[listen]`, whose four ports differ."""
        expected = f"one of {', '.join(ENGINES)}"
        name = self._text("engine.name", expected, Engine.name) or Engine.name
        if name not in ENGINES:
            self.add("engine.name", shown(name), expected)
        engine = Engine(
            name,
            self._integer("engine.rendezvous_port", Engine.rendezvous_port, 1024, 65535),
            self._loopback("engine.api", Engine.api),
            self._matching("engine.profile", _PROFILE, "the name of a profile (sparkctl profile list)", Engine.profile),
            self._matching("engine.python", _ABSOLUTE, f'a path such as "{Engine.python}"', Engine.python),
        )
        if name == "sglang" and not engine.profile and "engine.profile" not in self._faulty:
            self.add("engine.profile", "nothing", "the name of a profile (sparkctl profile list)")
        listen = Listen(
            self._loopback("listen.operator", Listen.operator),
            self._integer("listen.peer_port", Listen.peer_port, 1024, 65535),
        )
        taken: dict[int, str] = {}
        for key, port in (
            ("listen.peer_port", listen.peer_port),
            ("listen.operator", int(listen.operator.rpartition(":")[2])),
            ("engine.rendezvous_port", engine.rendezvous_port),
            ("engine.api", int(engine.api.rpartition(":")[2])),
        ):
            if key in self._faulty:
                continue
            if port in taken:
                self.add(key, f"port {port}, as in {taken[port]}", "a port that nothing else here uses")
            taken.setdefault(port, key)
        return engine, listen

    def policy_and_tick(self) -> tuple[Policy, float]:
        """`[recovery]`, `[peers]` and `[fabric]`; the tick in seconds."""
        # The unit's watchdog wants a finished cycle within 30 s, so that a tick has to leave room for a slow one.
        tick = self._number("peers.tick_seconds", 5, 0.5, 10)
        policy = Policy(
            backoff=self._number("recovery.backoff_seconds", Policy.backoff, 0, 3600),
            backoff_max=self._number("recovery.backoff_max_seconds", Policy.backoff_max, 0, 86400),
            restarts=self._integer("recovery.restarts", Policy.restarts, 0, 100),
            window=60 * self._number("recovery.window_minutes", Policy.window / 60, 1, 10080),
            peer_fresh=self._number("peers.fresh_seconds", Policy.peer_fresh, 1, 300),
            adopt=self._address_plan() == "adopt",
            memory_back=self._memory_back(),
            memory_floor_kib=self._memory_floor(),
            hard_reset_window=3600 * self._number("recovery.hard_reset_hours", Policy.hard_reset_window / 3600, 0, 720),
            memory_back_seconds=self._number("recovery.memory_back_seconds", Policy.memory_back_seconds, 0, 86400),
            rails=self._rails(),
        )
        self._at_least("recovery.backoff_max_seconds", policy.backoff_max, "backoff_seconds", policy.backoff)
        self._at_least("peers.fresh_seconds", policy.peer_fresh, "twice tick_seconds", 2 * tick)
        return policy, tick

    def _memory_back(self) -> float | None:
        percent = self._number("recovery.memory_back_percent", -1, 0, 100)
        return None if percent < 0 else percent / 100

    def _memory_floor(self) -> int | None:
        mebibytes = self._integer("recovery.memory_floor_mib", -1, 0, 1024 * 1024)
        return None if mebibytes < 0 else mebibytes * 1024

    def keeping(self) -> Keeping:
        """`[incidents]`."""
        return Keeping(
            self._number("incidents.keep_days", Keeping.days, 0, 3650),
            self._number("incidents.keep_mib", Keeping.mebibytes, 1, 65536),
        )

    def api(self, listen: Listen, engine: Engine) -> Api:
        """`[api]`; its port differs from those of `listen` and `engine`."""
        expected = 'ADDRESS:PORT, such as "192.168.77.1:7476"'
        where = self._text("api.listen", expected, "") or ""
        match = re.fullmatch(r"(.*):([1-9][0-9]{0,4})", where, re.ASCII)
        try:
            usable = not where or (match is not None and int(match[2]) <= 65535 and bool(IPv4Address(match[1])))
        except ValueError:
            usable = False
        if not usable:
            self.add("api.listen", shown(where), expected)
            return Api()
        ports = [listen.operator.rpartition(":")[2], str(listen.peer_port), str(engine.rendezvous_port)]
        if match is not None and match[2] in (*ports, engine.api.rpartition(":")[2]):
            self.add("api.listen", f"port {match[2]}, which is taken", "a port that nothing else here uses")
        path = "the absolute path of a file in PEM, or nothing for the node's own"
        certificate, key = (self._matching(f"api.{name}", _ABSOLUTE, path, "") for name in ("certificate", "key"))
        if bool(certificate) != bool(key):
            self.add("api.key" if certificate else "api.certificate", "nothing", "both of them, or none")
        return Api(where, certificate, key)

    def _address_plan(self) -> str:
        expected = "base or adopt"
        named = self._text("fabric.address_plan", expected, "base") or "base"
        if named not in expected.split(" or "):
            self.add("fabric.address_plan", shown(named), expected)
        return named

    def _rails(self) -> RailPolicy | None:
        """How rails are measured; None for `measure_seconds = 0`."""
        policy = RailPolicy(
            seconds=self._number("fabric.measure_seconds", RailPolicy.seconds, 0, 10),
            min_gbps=self._number("fabric.rail_min_gbps", RailPolicy.min_gbps, 0, 1000),
            min_tcp_gbps=self._number("fabric.rail_min_tcp_gbps", RailPolicy.min_tcp_gbps, 0, 1000),
            slow_ratio=self._number("fabric.node_slow_ratio", RailPolicy.slow_ratio, 0, 1),
        )
        if 0 < policy.seconds < _MEASURE_SECONDS_MIN:
            self.add("fabric.measure_seconds", f"{policy.seconds:g}", f"0, or from {_MEASURE_SECONDS_MIN:g} to 10")
        return policy if policy.seconds else None

    def _value(self, key: str) -> object | None:
        table, _, name = key.partition(".")
        values = self._document.tables.get(table)
        return values.get(name) if isinstance(values, dict) else None

    def _text(self, key: str, expected: str, default: str | None = None) -> str | None:
        value = self._value(key)
        if isinstance(value, str) and value:
            return value
        if value is not None:
            self.add(key, shown(value), expected)
        elif default is None and key.partition(".")[0] not in self._faulty:
            self.add(key, "nothing", expected)
        return default

    def _matching(self, key: str, pattern: re.Pattern[str], expected: str, default: str) -> str:
        value = self._text(key, expected, default) or default
        if value == default or pattern.fullmatch(value):
            return value
        self.add(key, shown(value), expected)
        return default

    def _number(self, key: str, default: float, low: float, high: float) -> float:
        value = self._value(key)
        if value is None:
            return default
        # To Python true is an int. TOML's `inf` and `nan` fail the comparison.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        self.add(key, shown(value), f"a number from {low:g} to {high:g}")
        return default

    def _integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.add(key, shown(value), f"an integer from {low} to {high}")
        return default

    def _loopback(self, key: str, default: str) -> str:
        expected = f'ADDRESS:PORT, such as "{default}"'
        value = self._text(key, expected, default) or default
        match = re.fullmatch(r"(.*):([1-9][0-9]{0,4})", value, re.ASCII)
        try:
            address = IPv4Address(match[1] if match else "")
        except ValueError:
            self.add(key, shown(value), expected)
            return default
        if match is None or int(match[2]) > 65535:
            self.add(key, shown(value), f"{expected}, with a port up to 65535")
            return default
        if not address.is_loopback:
            self.add(key, shown(value), f'"127.0.0.1:{match[2]}" (for other hosts there is [api] listen)')
            return default
        return value

    def _at_least(self, key: str, value: float, name: str, low: float) -> None:
        table = key.partition(".")[0]
        if value < low and not any(faulty.startswith(f"{table}.") for faulty in self._faulty):
            self.add(key, f"{value:g}", f"at least {name}, {low:g}")
