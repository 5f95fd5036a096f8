"""From bare machines to a cluster: the package, the certificates, the configuration, the daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.install import check, cluster_toml
from tests.lab.shell import LabError

if TYPE_CHECKING:
    from tests.vm.control import Fleet

__all__ = ["check", "everywhere"]
CLUSTER = "/root/cluster"
# Of an emulated processor that three guests share: the daemon's imports alone take it a quarter of a minute.
INSTALL_SECONDS = 600.0
ACTIVE_SECONDS = 600.0
HEARD_SECONDS = 300.0
FABRIC = """
[fabric]
measure_seconds = 1
# An emulated processor carries a tenth of a Gb/s by RDMA, and what the others leave it.
rail_min_gbps = 0.001
rail_min_tcp_gbps = 0.001
node_slow_ratio = 0
"""
PEERS = """
[peers]
tick_seconds = 10
fresh_seconds = 60
"""


def everywhere(fleet: Fleet, package: Path, say: Callable[[str], None]) -> None:
    """Install the package on each machine with apt, make them a cluster and start sparkd.

    Raises LabError naming the node and the step; a daemon that does not become active is reported with its journal.
    """
    say(f"installing {package.name}")
    data = package.read_bytes()
    fleet.each(lambda node: _install(fleet, node, package.name, data))
    say("making a cluster of them")
    first = fleet.nodes[0]
    fleet.put(first, "/root/cluster.toml", (cluster_toml("probe", fleet.nodes, FABRIC) + PEERS).encode())
    fleet.exec(first, "sparkctl", "cluster", "create", "/root/cluster.toml", "--out", CLUSTER)
    packed = fleet.exec(first, "sh", "-c", f"tar -C {CLUSTER} -c . | base64").stdout
    for node in fleet.nodes[1:]:
        # An administrator would use scp; a node gets its own directory and no other.
        fleet.exec(node, "mkdir", "-p", f"{CLUSTER}/{node}")
        fleet.exec(node, "sh", "-c", f"base64 -d | tar -C {CLUSTER} -x ./{node}", input=packed)
    say("starting sparkd")
    fleet.each(lambda node: _configure(fleet, node))
    say("hearing the cables")
    fleet.each(lambda node: _wait_heard(fleet, node))


def _install(fleet: Fleet, node: str, name: str, data: bytes) -> None:
    # Not below /root: apt's own user could not read it there.
    fleet.put(node, f"/var/cache/{name}", data, 0o644)
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends")
    fleet.exec(node, *apt, f"/var/cache/{name}", timeout=INSTALL_SECONDS)


def _configure(fleet: Fleet, node: str) -> None:
    fleet.exec(node, "sparkctl", "cluster", "install", f"{CLUSTER}/{node}")
    started = fleet.exec(node, "systemctl", "enable", "--now", "sparkd", check=False, timeout=ACTIVE_SECONDS)
    state = fleet.exec(node, "systemctl", "show", "sparkd", "-P", "ActiveState").stdout.strip()
    if state != "active":
        story = fleet.exec(node, "journalctl", "-u", "sparkd", "-n", "15", "-o", "cat", "--no-pager").stdout
        raise LabError(f"{node}: start sparkd: {started.stderr.strip() or f'it is {state}'}\n{story.rstrip()}")


def _wait_heard(fleet: Fleet, node: str) -> None:
    """Wait until the node knows all cables, without which a start is refused. Raises LabError with what it says."""
    ask = ("curl", "-sS", "-f", "-m", "20", "--unix-socket", "/run/sparkd/api.sock", "http://sparkd/v1/ring")
    end = time.monotonic() + HEARD_SECONDS
    while True:
        answer = fleet.exec(node, *ask, check=False)
        ring: dict[str, Any] = (
            json.loads(answer.stdout) if answer.returncode == 0 else {"summary": answer.stderr.strip()}
        )
        if ring.get("cables"):
            return
        if time.monotonic() > end:
            found = [f"{each['node']}: {each['subject']}: {each['observed']}" for each in ring.get("findings", ())]
            raise LabError(f"{node}: hear the cables: {'; '.join(found) or ring['summary']}")
        time.sleep(0.5)
