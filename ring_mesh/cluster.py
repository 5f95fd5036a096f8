"""The description of a cluster, and what is wrong with one.

`parse_cluster` takes the `[cluster]` table of sparkd.toml and reports every problem at once, each with its key, what
was found and what is expected: whoever writes the file should have to correct it once.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from ring_mesh.ports import FABRIC_DEVICES

MIN_NODES = 2
MAX_NODES = 64
DEFAULT_MANAGEMENT_INTERFACE = "enP7s7"

_CLUSTER_KEYS = ("name", "base_range", "management_interface", "node")
_NODE_KEYS = ("name", "rank", "address", "management_interface")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# IFNAMSIZ is 16 with the closing NUL. The kernel allows more characters than these, but not in the file that
# systemd reads the environment of a rank from.
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")


@dataclass(frozen=True)
class Problem:
    """One fault of a description. key: dotted path such as `cluster.node[1].rank`, counted in the file's order."""

    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.key}: found {self.found}, expected {self.expected}"


class PlanError(ValueError):
    """There is no plan for what was given. `problems` has at least one entry."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class ClusterError(PlanError):
    """A description cannot be used, or a node is not in the cluster."""


@dataclass(frozen=True)
class Node:
    """One machine. address: its management address, on management_interface."""

    name: str
    rank: int
    address: IPv4Address
    management_interface: str


@dataclass(frozen=True)
class Cluster:
    """A checked description. base_range: where the fabric's /24 subnets are cut from. nodes: ordered by rank."""

    name: str
    base_range: IPv4Network
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        """The node of that name. Raises ClusterError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError([Problem("node.name", shown(name), f"one of {', '.join(n.name for n in self.nodes)}")])

    @property
    def world_size(self) -> int:
        return len(self.nodes)

    @property
    def conductor(self) -> Node:
        """Rank 0's node: the only one that issues epochs, and the rendezvous of the ranks."""
        return self.nodes[0]


@dataclass(frozen=True)
class _Entry:
    """One `[[cluster.node]]` as far as it could be read; None where it could not."""

    key: str
    name: str | None
    rank: int | None
    address: IPv4Address | None
    management_interface: str | None


def parse_cluster(table: Mapping[str, object]) -> Cluster:
    """The cluster that the `[cluster]` table describes. Raises ClusterError with every problem of the table."""
    problems = unknown_keys("cluster", table, _CLUSTER_KEYS)
    name = _name("cluster.name", table, problems)
    base_range = _base_range(table, problems)
    interface = _interface("cluster.management_interface", table, DEFAULT_MANAGEMENT_INTERFACE, problems)
    entries = _entries(table, interface, problems)
    _distinct(entries, problems)
    _outside(base_range, entries, problems)
    nodes = [
        Node(entry.name, entry.rank, entry.address, entry.management_interface)
        for entry in entries
        if entry.name is not None
        and entry.rank is not None
        and entry.address is not None
        and entry.management_interface is not None
    ]
    if problems or name is None or base_range is None:
        raise ClusterError(problems)
    return Cluster(name, base_range, tuple(sorted(nodes, key=lambda node: node.rank)))


def subnets_of(nodes: int) -> int:
    """How many /24 a cluster of that many nodes needs: two per cable, of which two nodes may have only one."""
    return 2 if nodes == 2 else 2 * nodes


def prefix_for(subnets: int) -> int:
    """Prefix length of the smallest network with room for that many /24."""
    return 24 - (subnets - 1).bit_length()


def unknown_keys(prefix: str, table: Mapping[str, object], known: tuple[str, ...]) -> list[Problem]:
    """A problem for each key of the table that is not known, naming the nearest known one if one is near."""
    problems = []
    for key in table:
        if key in known:
            continue
        expected = f"one of {', '.join(known)}"
        near = difflib.get_close_matches(key, known, n=1)
        if near:
            expected = f'"{near[0]}"? Known keys: {", ".join(known)}'
        name = key if _BARE_KEY.fullmatch(key) else shown(key)
        problems.append(Problem(f"{prefix}.{name}" if prefix else name, "an unknown key", expected))
    return problems


def shown(value: object) -> str:
    """A value as one short line of text, with its kind where that is what matters."""
    match value:
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "a table"
        case list():
            return f"a list of {len(value)}"
        case str():
            text = ascii(value)[1:-1]
            return f'"{text[:60]}..."' if len(text) > 60 else f'"{text}"'
        case int() if abs(value) > 10**18:
            # Python refuses to print integers of more than 4300 digits.
            return "a very large integer"
        case _:
            return str(value)


def _text(key: str, table: Mapping[str, object], expected: str, problems: list[Problem]) -> str | None:
    field = key.rpartition(".")[2]
    if field not in table:
        problems.append(Problem(key, "nothing", expected))
        return None
    value = table[field]
    if not isinstance(value, str):
        problems.append(Problem(key, shown(value), expected))
        return None
    return value


def _name(key: str, table: Mapping[str, object], problems: list[Problem]) -> str | None:
    expected = "a name of a-z, 0-9 and -, at most 63 long, not starting with -"
    value = _text(key, table, expected, problems)
    if value is not None and not _NAME.fullmatch(value):
        problems.append(Problem(key, shown(value), expected))
        return None
    return value


def _base_range(table: Mapping[str, object], problems: list[Problem]) -> IPv4Network | None:
    key = "cluster.base_range"
    rows = table.get("node")
    # Of a list of the wrong size, its size is the fault to report.
    nodes = len(rows) if isinstance(rows, list) and MIN_NODES <= len(rows) <= MAX_NODES else MIN_NODES
    subnets = subnets_of(nodes)
    size = f"/{prefix_for(subnets)}"
    expected = f'an IPv4 network with room for {subnets} /24 subnets (a {size} or larger), such as "10.77.0.0{size}"'
    value = _text(key, table, expected, problems)
    if value is None:
        return None
    try:
        network = IPv4Network(value, strict=False)
    except ValueError:
        problems.append(Problem(key, shown(value), expected))
        return None
    if str(network.network_address) != value.partition("/")[0]:
        problems.append(Problem(key, f"{shown(value)}, which has host bits set", f'"{network}" or another network'))
        return None
    if network.num_addresses < subnets * 256:
        problems.append(Problem(key, f"{shown(value)}, which is too small", expected))
        return None
    # The special blocks are /8 and larger: the part of the range that is used lies wholly in one or wholly outside.
    if fault := _unusable(network.network_address):
        problems.append(Problem(key, f"{shown(value)}, which is {fault}", "a range of unicast addresses"))
        return None
    return network


def _interface(key: str, table: Mapping[str, object], default: str | None, problems: list[Problem]) -> str | None:
    expected = f'a network device that is not on the fabric, such as "{DEFAULT_MANAGEMENT_INTERFACE}"'
    if key.rpartition(".")[2] not in table:
        return default
    value = _text(key, table, expected, problems)
    if value is None:
        return None
    if value in FABRIC_DEVICES:
        found = f"{shown(value)}, a fabric device (socket-ifname-fabric)"
    elif value == "lo" or not _INTERFACE.fullmatch(value):
        found = shown(value)
    else:
        return value
    problems.append(Problem(key, found, expected))
    return None


def _entries(table: Mapping[str, object], interface: str | None, problems: list[Problem]) -> list[_Entry]:
    expected = f"{MIN_NODES} to {MAX_NODES} [[cluster.node]] tables"
    if "node" not in table:
        problems.append(Problem("cluster.node", "nothing", expected))
        return []
    rows = table["node"]
    if not isinstance(rows, list):
        problems.append(Problem("cluster.node", shown(rows), expected))
        return []
    if not MIN_NODES <= len(rows) <= MAX_NODES:
        problems.append(Problem("cluster.node", str(len(rows)), expected))
    entries = []
    for index, row in enumerate(rows):
        key = f"cluster.node[{index}]"
        if not isinstance(row, Mapping):
            problems.append(Problem(key, shown(row), "a table"))
            continue
        problems.extend(unknown_keys(key, row, _NODE_KEYS))
        entries.append(
            _Entry(
                key,
                _name(f"{key}.name", row, problems),
                _rank(f"{key}.rank", row, len(rows), problems),
                _address(f"{key}.address", row, problems),
                _interface(f"{key}.management_interface", row, interface, problems),
            )
        )
    return entries


def _rank(key: str, row: Mapping[str, object], count: int, problems: list[Problem]) -> int | None:
    expected = f"an integer from 0 to {count - 1}, each used once"
    value = row.get("rank")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count:
        return value
    problems.append(Problem(key, "nothing" if "rank" not in row else shown(value), expected))
    return None


def _address(key: str, row: Mapping[str, object], problems: list[Problem]) -> IPv4Address | None:
    expected = 'the IPv4 address of the management interface, such as "192.168.77.1"'
    value = _text(key, row, expected, problems)
    if value is None:
        return None
    try:
        address = IPv4Address(value)
    except ValueError:
        problems.append(Problem(key, shown(value), expected))
        return None
    if fault := _unusable(address):
        problems.append(Problem(key, f"{shown(value)}, which is {fault}", expected))
        return None
    return address


def _unusable(address: IPv4Address) -> str | None:
    """Why no host can have this address, or None."""
    if address.is_multicast:
        return "multicast"
    if address.is_loopback:
        return "loopback"
    if address in IPv4Network("0.0.0.0/8"):
        return "unspecified"
    if address.is_reserved:
        return "reserved"
    return None


def _distinct(entries: list[_Entry], problems: list[Problem]) -> None:
    for field in ("name", "rank", "address"):
        first: dict[object, str] = {}
        for entry in entries:
            value = getattr(entry, field)
            if value is None:
                continue
            if value in first:
                found = f"{shown(str(value)) if field != 'rank' else value}, as in {first[value]}"
                problems.append(Problem(f"{entry.key}.{field}", found, f"a {field} that no other node has"))
            else:
                first[value] = f"{entry.key}.{field}"


def _outside(base_range: IPv4Network | None, entries: list[_Entry], problems: list[Problem]) -> None:
    for entry in entries:
        if base_range is not None and entry.address is not None and entry.address in base_range:
            found = f'"{entry.address}", which is inside cluster.base_range {base_range}'
            problems.append(Problem(f"{entry.key}.address", found, "a management address outside the fabric's range"))
