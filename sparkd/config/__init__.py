"""sparkd.toml with its drop-ins and secrets, as frozen Settings: the daemon's only reader of files and environment.

A drop-in is `sparkd.toml.d/NAME.toml` next to the file. In the order of names, tables merge key by key, and anything
else (also the list of `[[cluster.node]]`) replaces what an earlier file said. Every problem is reported at once, each
with the file that its key came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from pathlib import Path

from ring_mesh import FABRIC_DEVICES, Cluster, free_range, overlaps, plan
from ring_mesh.cluster import shown
from sparkd.config.files import Document, read
from sparkd.config.secrets import MADE_BY, check_modes, check_pair, check_tls, read_cluster_key
from sparkd.config.settings import ConfigError, Engine, Listen, Paths, Problem, Settings
from sparkd.config.tables import Checker

DEFAULT_CONFIG = Path("/etc/sparkd/sparkd.toml")

__all__ = [
    "DEFAULT_CONFIG",
    "ConfigError",
    "Engine",
    "Listen",
    "Paths",
    "Problem",
    "Settings",
    "check_host",
    "load",
    "load_cluster",
]


def load(
    path: Path = DEFAULT_CONFIG,
    environment: Mapping[str, str] = os.environ,
    *,
    installed: bool = True,
    secrets: bool = True,
) -> Settings:
    """The configuration of this node. Raises ConfigError with every problem of all its files.

    environment: STATE_DIRECTORY and RUNTIME_DIRECTORY of systemd, if they are set. installed: the files are in their
    place; before that, for example on a memory stick without modes, a secret that everyone can read is no problem.
    secrets: read those as well; without them, which is for looking alone, the key is empty.
    """
    document = read(path, f"the configuration of this node, {MADE_BY}", drop_ins=True)
    paths = Paths.beside(path, environment)
    check = Checker(document)
    node = check.node()
    cluster = check.cluster()
    engine, listen = check.engine_and_listen()
    policy, tick = check.policy_and_tick()
    keeping, api = check.keeping(), check.api(listen, engine)
    addresses = {member.name: member.address for member in cluster.nodes} if cluster else {}
    if node is not None and cluster is not None and node not in addresses:
        check.add("node.name", shown(node), f"one of {', '.join(addresses)}")
    cluster_key = read_cluster_key(paths.cluster_key, check.problems) if secrets else b""
    if secrets:
        check_tls(paths.tls, node, addresses.get(node or ""), check.problems)
    if installed and secrets:
        if api.certificate:
            check_pair(Path(api.certificate), Path(api.key), check.problems)
        keys = [Path(api.key)] if api.key else []
        check_modes([paths.tokens, paths.cluster_key, paths.tls / "node.key", *keys], check.problems)
    if check.problems or node is None or cluster is None:
        raise ConfigError(check.problems)
    sources = document.sources
    return Settings(node, cluster, policy, tick, engine, listen, paths, cluster_key, keeping, api, sources)


def load_cluster(path: Path) -> Cluster:
    """The cluster that a file without `[node]` and drop-ins describes, its other tables checked. Raises ConfigError."""
    document = read(path, "a description of the cluster", drop_ins=False)
    check = Checker(document)
    if "node" in document.tables:
        check.add("node", "a table", "no [node]: `sparkctl cluster create` writes it for each node")
    cluster = check.cluster()
    engine, listen = check.engine_and_listen()
    check.policy_and_tick()
    check.keeping()
    check.api(listen, engine)
    if check.problems or cluster is None:
        raise ConfigError(check.problems)
    return cluster


def check_host(settings: Settings, routes: Iterable[tuple[str, str]]) -> list[Problem]:
    """A problem for each route of this host that the planned subnets collide with, proposing a free range.

    routes: (network in CIDR form, device). Those on fabric devices are the fabric itself and do not count.
    """
    networks = [
        (IPv4Network(network, strict=False), device) for network, device in routes if device not in FABRIC_DEVICES
    ]
    base_range = settings.cluster.base_range
    subnets = len(plan(settings.cluster).links)
    hits = dict.fromkeys((collision.network, collision.where) for collision in overlaps(base_range, networks, subnets))
    members = [IPv4Network(node.address) for node in settings.cluster.nodes]
    free = free_range([*(network for network, _ in networks), *members], subnets)
    expected = "a range that this host has no route to" + (f', such as "{free}"' if free else "")
    file = Document(str(settings.paths.config), {}, settings.sources).source("cluster.base_range")
    return [
        Problem(file, "cluster.base_range", f'"{base_range}", which overlaps {network} on {device}', expected)
        for network, device in hits
    ]
