"""What the guests themselves say of their RDMA devices, and perftest and ibverbs-utils between them."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.lab.layout import End, ends_of
from tests.lab.shell import tail
from tests.vm.control import Fleet
from tests.vm.layout import hca

SERVER_SECONDS = 60
"""After so long a server that nobody came to gives up: emulated machines take seconds to start a program."""


@dataclass(frozen=True)
class Gid:
    index: int
    text: str
    kind: str
    netdev: str


class Rdma:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def gids(self, node: str) -> dict[str, list[Gid]]:
        """Filled entries of each device's table, by device."""
        lines = self.fleet.exec(node, "sh", "-c", TABLES).stdout.splitlines()
        found: dict[str, list[Gid]] = {}
        for line in lines:
            name, index, gid, kind, netdev = line.split("|")
            found.setdefault(name, []).append(Gid(int(index), gid, kind, netdev))
        return found

    def index_of(self, end: End, address: str) -> int:
        """Where the device of an end has the RoCE v2 GID of an IPv4 address, by our own look at the table."""
        found = self._indices(end, address)
        assert len(found) == 1, f"{hca(end)} on {end.node}: {self.gids(end.node)[hca(end)]}"
        return found[0]

    def until_gone(self, end: End, address: str, seconds: float) -> None:
        """Wait until the slot of an address is free again, which is some time after the address has gone."""
        until = time.monotonic() + seconds
        while found := self._indices(end, address):
            assert time.monotonic() < until, f"{hca(end)} on {end.node} still has {address} at {found}"
            time.sleep(1)

    def _indices(self, end: End, address: str) -> list[int]:
        gid = "0000:0000:0000:0000:0000:ffff:" + "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))
        table = self.gids(end.node).get(hca(end), [])
        return [entry.index for entry in table if (entry.text, entry.kind) == (gid, "RoCE v2")]

    def pair(self, server: tuple[str, list[str]], client: tuple[str, list[str]]) -> subprocess.CompletedProcess[str]:
        """Run a command on one node and, once it listens, its counterpart on another; the answer is the client's."""
        node, argv = server
        timed = ["timeout", str(SERVER_SECONDS), *argv]
        with ThreadPoolExecutor(1) as pool:
            serving = pool.submit(self.fleet.exec, node, *timed, check=False, timeout=SERVER_SECONDS + 30)
            listening = f"until ss -Hltn 'sport = :{PORT}' | grep -q .; do sleep 0.1; done"
            self.fleet.exec(node, "timeout", str(SERVER_SECONDS), "sh", "-c", listening)
            answer = self.fleet.exec(client[0], "timeout", str(SERVER_SECONDS), *client[1], check=False)
            served = serving.result()
        assert served.returncode == 0, f"{node}: {argv}: {served.returncode}: {tail(served.stdout + served.stderr)}"
        assert answer.returncode == 0, f"{client}: {answer.returncode}: {tail(answer.stdout + answer.stderr)}"
        return answer


def all_ends(fleet: Fleet) -> list[End]:
    return [end for node in fleet.nodes for end in ends_of(node)]


PORT = 18515
"""Where perftest and ibverbs-utils listen for the other side, over TCP, unless told otherwise."""
# grep reads the 1024 entries of a table, nearly all empty, in one process.
TABLES = """
for port in /sys/class/infiniband/*/ports/1; do
    name=${port#/sys/class/infiniband/}
    cd "$port/gids"
    grep -v '^[0:]*$' * | while IFS=: read -r index gid; do
        echo "${name%%/*}|$index|$gid|$(cat ../gid_attrs/types/$index)|$(cat ../gid_attrs/ndevs/$index)"
    done
done
"""
