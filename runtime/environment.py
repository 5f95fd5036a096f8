"""The environment file of a rank, read into one frozen value.

The daemon writes ``KEY=VALUE`` lines, systemd passes them on, and nothing else configures a rank. Every bad or
missing variable is reported at once, each with what is expected.
"""

import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

WORLD_SIZE_MIN = 2
WORLD_SIZE_MAX = 8
GROUP_KEY_MIN_BYTES = 16
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62})")
# The kernel's IFNAMSIZ is 16 with the terminating zero.
DEVICE = re.compile(r"[^\s/:,]{1,15}")


@dataclass(frozen=True)
class Endpoint:
    """An IPv4 address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Rail:
    """One local fabric end: its device and address, and the rank and address at the other end of the link."""

    device: str
    address: str
    peer_rank: int
    peer_address: str


@dataclass(frozen=True)
class Tuning:
    """Times in seconds, and the TCP port the rails listen on; every one has a default."""

    rendezvous_timeout: float = 60.0
    rail_timeout: float = 10.0
    rail_port: int = 20100
    measure_seconds: float = 0.2
    canary_interval: float = 1.0
    canary_timeout: float = 10.0
    control_grace: float = 300.0


@dataclass(frozen=True)
class RankEnvironment:
    """Everything a rank knows before it talks to anyone. ``nodes`` is indexed by rank; ``api`` is rank 0's."""

    engine: str
    epoch: int
    cluster: str
    node: str
    rank: int
    world_size: int
    nodes: tuple[str, ...]
    rendezvous: Endpoint
    management_address: str
    api: Endpoint | None
    rails: tuple[Rail, ...]
    group_key: bytes = field(repr=False)
    tuning: Tuning = Tuning()

    def name(self, rank: int) -> str:
        """How every sentence names a member: ``rank 1 (spark2)``."""
        return f"rank {rank} ({self.nodes[rank]})"


class BadEnvironment(Exception):
    """One or more variables are bad; ``problems`` holds ``VARIABLE: what is expected, what was found``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Reader:
    """Collects problems instead of stopping at the first; a bad value reads as a harmless stand-in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def bad(self, variable: str, expected: str, found: str | None = None) -> None:
        self.problems.append(f"{variable}: expected {expected}, " + ("not set" if found is None else f"got {found!r}"))

    def text(self, variable: str, expected: str, pattern: re.Pattern[str] = NAME) -> str | None:
        value = self._environ.get(variable)
        if value is None or not pattern.fullmatch(value):
            self.bad(variable, expected, value)
            return None
        return value

    def integer(self, variable: str, low: int, high: int | None = None, default: int | None = None) -> int | None:
        value = self._environ.get(variable)
        if value is None and default is not None:
            return default
        if value is not None and re.fullmatch(r"[0-9]{1,18}", value):
            number = int(value)
            if number >= low and (high is None or number <= high):
                return number
        self.bad(variable, f"an integer from {low}" + ("" if high is None else f" to {high}"), value)
        return None

    def seconds(self, variable: str, default: float, low: float, high: float) -> float:
        return self.number(variable, default, low, high, "seconds")

    def number(self, variable: str, default: float, low: float, high: float, what: str) -> float:
        value = self._environ.get(variable)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if low <= number <= high:
            return number
        self.bad(variable, f"{what} from {low:g} to {high:g}", value)
        return default

    def address(self, variable: str) -> str | None:
        value = self._environ.get(variable)
        if value is None or not is_ipv4(value):
            self.bad(variable, "an IPv4 address", value)
            return None
        return value

    def endpoint(self, variable: str) -> Endpoint | None:
        value = self._environ.get(variable)
        host, _, port = (value or "").rpartition(":")
        if is_ipv4(host) and re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535:
            return Endpoint(host, int(port))
        self.bad(variable, "IPV4:PORT", value)
        return None

    def key(self, variable: str) -> bytes | None:
        value = self._environ.get(variable)
        if value is not None and re.fullmatch(rf"(?:[0-9a-fA-F]{{2}}){{{GROUP_KEY_MIN_BYTES},}}", value):
            return bytes.fromhex(value)
        # The value is a secret: never repeat it, not even a wrong one.
        found = None if value is None else f"{len(value)} characters"
        self.bad(variable, f"at least {2 * GROUP_KEY_MIN_BYTES} hex digits, an even number", found)
        return None

    def get(self, variable: str) -> str | None:
        return self._environ.get(variable)


def is_ipv4(text: str) -> bool:
    """True for a dotted quad as ``inet_pton`` takes it."""
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def read_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """Read and check the whole environment.

    :raises BadEnvironment: with every bad or missing variable.
    """
    reader = Reader(environ)
    engine = reader.text("SPARKD_ENGINE", "the name of an engine")
    epoch = reader.integer("SPARKD_EPOCH", 1)
    cluster = reader.text("SPARKD_CLUSTER", "the cluster's name")
    world_size = reader.integer("SPARKD_WORLD_SIZE", WORLD_SIZE_MIN, WORLD_SIZE_MAX)
    rank = reader.integer("SPARKD_RANK", 0, (world_size or WORLD_SIZE_MAX) - 1)
    nodes = _read_nodes(reader, world_size)
    node = reader.text("SPARKD_NODE", "the node's name")
    if node is not None and rank is not None and rank < len(nodes) and nodes[rank] != node:
        reader.bad("SPARKD_NODE", f"{nodes[rank]!r}, the name SPARKD_NODES gives rank {rank}", node)
    rendezvous = reader.endpoint("SPARKD_RENDEZVOUS")
    management = reader.address("SPARKD_MANAGEMENT_ADDRESS")
    if rank == 0 and rendezvous is not None and management is not None and rendezvous.host != management:
        reader.bad("SPARKD_RENDEZVOUS", f"rank 0's own management address {management}", rendezvous.host)
    api = reader.endpoint("SPARKD_API") if rank == 0 or reader.get("SPARKD_API") is not None else None
    rails = _read_rails(reader, rank, world_size)
    for rail in rails:
        # Bootstrap on a fabric port hangs in SYN-SENT for every rank without that cable.
        if management == rail.address:
            reader.bad("SPARKD_MANAGEMENT_ADDRESS", f"an address not on fabric device {rail.device}", management)
    key = reader.key("SPARKD_GROUP_KEY")
    tuning = _read_tuning(reader)
    if (
        reader.problems
        or engine is None
        or epoch is None
        or cluster is None
        or world_size is None
        or rank is None
        or node is None
        or rendezvous is None
        or management is None
        or key is None
    ):
        raise BadEnvironment(reader.problems)
    return RankEnvironment(
        engine, epoch, cluster, node, rank, world_size, nodes, rendezvous, management, api, rails, key, tuning
    )


def _read_nodes(reader: Reader, world_size: int | None) -> tuple[str, ...]:
    value = reader.get("SPARKD_NODES")
    names = tuple((value or "").split(","))
    wanted = "unique node names by rank, separated by commas"
    if value is None or len(set(names)) != len(names) or not all(NAME.fullmatch(name) for name in names):
        reader.bad("SPARKD_NODES", wanted, value)
        return ()
    if world_size is not None and len(names) != world_size:
        reader.bad("SPARKD_NODES", f"{world_size} {wanted}", value)
        return ()
    return names


def _read_rails(reader: Reader, rank: int | None, world_size: int | None) -> tuple[Rail, ...]:
    value = reader.get("SPARKD_RAILS")
    wanted = "DEVICE:LOCAL_IP:PEER_RANK:PEER_IP, one per fabric end, separated by commas"
    if not value:
        reader.bad("SPARKD_RAILS", wanted, value)
        return ()
    rails: list[Rail] = []
    for item in value.split(","):
        parts = item.split(":")
        if len(parts) != 4 or not DEVICE.fullmatch(parts[0]) or not re.fullmatch(r"[0-9]", parts[2]):
            reader.bad("SPARKD_RAILS", wanted, item)
            continue
        rail = Rail(parts[0], parts[1], int(parts[2]), parts[3])
        if not is_ipv4(rail.address) or not is_ipv4(rail.peer_address) or rail.address == rail.peer_address:
            reader.bad("SPARKD_RAILS", "two different IPv4 addresses in each end", item)
        elif rail.peer_rank == rank or rail.peer_rank >= (world_size or WORLD_SIZE_MAX):
            reader.bad("SPARKD_RAILS", "the rank of another member as PEER_RANK", item)
        else:
            rails.append(rail)
    for what, values in (("device", [r.device for r in rails]), ("local address", [r.address for r in rails])):
        for twice in sorted({v for v in values if values.count(v) > 1}):
            reader.bad("SPARKD_RAILS", f"each {what} once", twice)
    return tuple(rails)


def _read_tuning(reader: Reader) -> Tuning:
    base = Tuning()
    tuning = Tuning(
        rendezvous_timeout=reader.seconds("SPARKD_RENDEZVOUS_TIMEOUT", base.rendezvous_timeout, 0.1, 86400),
        rail_timeout=reader.seconds("SPARKD_RAIL_TIMEOUT", base.rail_timeout, 0.1, 3600),
        rail_port=reader.integer("SPARKD_RAIL_PORT", 1, 65535, base.rail_port) or base.rail_port,
        measure_seconds=reader.seconds("SPARKD_MEASURE_SECONDS", base.measure_seconds, 0.001, 60),
        canary_interval=reader.seconds("SPARKD_CANARY_INTERVAL", base.canary_interval, 0.01, 3600),
        canary_timeout=reader.seconds("SPARKD_CANARY_TIMEOUT", base.canary_timeout, 0.1, 3600),
        control_grace=reader.seconds("SPARKD_CONTROL_GRACE", base.control_grace, 0, 86400),
    )
    if tuning.canary_timeout < 2 * tuning.canary_interval:
        reader.bad(
            "SPARKD_CANARY_TIMEOUT",
            f"at least twice SPARKD_CANARY_INTERVAL ({2 * tuning.canary_interval:g})",
            f"{tuning.canary_timeout:g}",
        )
    return tuning
