"""What a checked configuration is, and what is wrong with one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ring_mesh import Cluster
from sparkd.core.snapshot import Policy


@dataclass(frozen=True)
class Problem:
    """One fault. key: dotted path as in `cluster.node[1].rank`, or the place in the file, or `file` for all of it."""

    file: str
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: found {self.found}, expected {self.expected}"


class ConfigError(Exception):
    """The configuration cannot be used. `problems` has at least one entry; the text has one line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Engine:
    """`[engine]`. api: ADDRESS:PORT on rank 0's host. The rendezvous is on rank 0's management address.

    profile: of an engine that is not the probe; python: the interpreter of the environment that it is installed in.
    """

    name: str = "probe"
    rendezvous_port: int = 20000
    api: str = "127.0.0.1:8888"
    profile: str = ""
    python: str = "/opt/sparkd/engine/bin/python"


@dataclass(frozen=True)
class Listen:
    """`[listen]`. operator: ADDRESS:PORT. Peers are heard on this node's management address."""

    operator: str = "127.0.0.1:7474"
    peer_port: int = 7475


@dataclass(frozen=True)
class Api:
    """`[api]`: a listener for operators elsewhere. listen: ADDRESS:PORT, "" for none.

    certificate, key: PEM files, "" for the node's own.
    """

    listen: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class Keeping:
    """`[incidents]`: for how long, and how much, evidence of failures is kept on this node."""

    days: float = 30
    mebibytes: float = 64


@dataclass(frozen=True)
class Paths:
    """Where things are. tls: directory with ca.crt, node.crt and node.key."""

    config: Path
    tls: Path
    tokens: Path
    cluster_key: Path
    state: Path = Path("/var/lib/sparkd")
    run: Path = Path("/run/sparkd")

    @classmethod
    def beside(cls, config: Path, environment: Mapping[str, str]) -> Paths:
        """The files that belong to a sparkd.toml; state and run directory as systemd passes them on."""

        def directory(variable: str, default: Path) -> Path:
            # systemd joins the directories of a unit with colons; the first one is the daemon's.
            return Path(environment.get(variable, "").partition(":")[0] or default)

        folder = config.parent
        return cls(
            config,
            folder / "tls",
            folder / "tokens.json",
            folder / "cluster.key",
            directory("STATE_DIRECTORY", cls.state),
            directory("RUNTIME_DIRECTORY", cls.run),
        )


@dataclass(frozen=True)
class Settings:
    """A checked configuration of one node.

    tick: seconds. sources: dotted key -> the file it came from.
    """

    node: str
    cluster: Cluster
    policy: Policy
    tick: float
    engine: Engine
    listen: Listen
    paths: Paths
    cluster_key: bytes = field(repr=False)
    keeping: Keeping = Keeping()
    api: Api = Api()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
