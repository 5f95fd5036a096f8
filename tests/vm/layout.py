"""Names and places of a fleet of virtual machines. Cabling, addresses and device names are the lab's."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tests.lab.layout import NODES, End, Link, ends_of, links

MAX_SOCKET_PATH = 107
"""The kernel takes no longer name for a Unix socket."""
CHANNELS = 3
"""How many commands a guest can run for us at the same time."""
CABLES: tuple[Link, ...] = links(NODES)
# Slots of the guest's only PCI bus; the .link files in the image name the interfaces by them.
MANAGEMENT_SLOT = 0x8
FABRIC_SLOTS: dict[tuple[int, str], int] = {(0, "0000"): 0x4, (0, "0002"): 0x5, (1, "0000"): 0x6, (1, "0002"): 0x7}


def hca(end: End) -> str:
    """The RDMA device of an end, as it is called on a Spark: enP2p1s0f1np1 has roceP2p1s0f1."""
    return "roce" + end.device.removeprefix("en").rpartition("np")[0]


def far(end: End) -> End:
    """The end at the other side of the cable."""
    link = next(link for link in CABLES if end in link.ends)
    return link.b if end == link.a else link.a


@dataclass(frozen=True)
class Places:
    """Where one fleet keeps its things. The id is derived from the directory, so that `down` finds its processes."""

    directory: Path
    cache: Path

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.directory).encode()).hexdigest()[:6]

    @property
    def lock(self) -> Path:
        return self.directory.with_name(self.directory.name + ".lock")

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    def mark(self, name: str) -> str:
        """A word in the command line of each of the fleet's processes, by which it is told from all others."""
        return f"sparkd-vm-{self.id}-{name}"

    def node(self, node: str) -> Path:
        return self.directory / node

    def wire(self, end: End) -> Path:
        """The socket where the frames for this end of a cable arrive."""
        return self.node(end.node) / f"p{end.port}.{end.domain}"

    def management(self, node: str) -> Path:
        return self.node(node) / "mgmt"

    def hub(self, node: str) -> Path:
        """The hub's socket for a node."""
        return self.node(node) / "hub"

    def channel(self, node: str, number: int) -> Path:
        return self.node(node) / f"channel{number}"

    def qmp(self, node: str) -> Path:
        return self.node(node) / "qmp"

    def disk(self, node: str) -> Path:
        return self.node(node) / "disk.qcow2"

    def console(self, node: str) -> Path:
        return self.node(node) / "console.log"

    @property
    def longest_socket(self) -> int:
        paths = [self.wire(end) for node in NODES for end in ends_of(node)] + [self.channel(NODES[0], 0)]
        return max(len(os.fsencode(path)) for path in paths)


def places(directory: Path | None = None) -> Places:
    """The fleet of the environment (SPARKD_VM_DIR, SPARKD_VM_CACHE), or the one in `directory`."""
    chosen = directory or Path(os.environ.get("SPARKD_VM_DIR") or "/var/tmp/sparkd-vm")
    cache = Path(os.environ.get("SPARKD_VM_CACHE") or "/var/cache/sparkd-vm")
    return Places(chosen.resolve(), cache.resolve())
