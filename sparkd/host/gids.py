"""GID tables of RDMA devices: at which index each one's IPv4 RoCE v2 GID is."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from ring_mesh import PORTS
from sparkd.core.hardware import GidFact
from sparkd.host import tree
from sparkd.host.worker import Worker


class SysfsGids:
    """Looks at port 1 of every device. A host without RDMA has no such directory, which is an answer: ()."""

    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._directory = root / "sys/class/infiniband"
        self._worker = Worker("GID tables", deadline)

    async def observe(self, wanted: Mapping[str, str] | None = None) -> tuple[GidFact, ...]:
        """`wanted`: the address to find by network device, e.g. {"enp1s0f0np0": "10.77.0.1"}; any address without.

        Where there is any RDMA device, a port of the fabric without one is told, too: as one with an empty table.
        """
        return await self._worker.call(lambda: self._read(wanted or {}))

    def close(self) -> None:
        self._worker.close()

    def _read(self, wanted: Mapping[str, str]) -> tuple[GidFact, ...]:
        found = tuple(scan(self._directory / name, wanted) for name in tree.names(self._directory))
        return (*found, *_absent(found, wanted)) if found else ()


def _absent(found: tuple[GidFact, ...], wanted: Mapping[str, str]) -> tuple[GidFact, ...]:
    """Fabric devices that are not there though others are: their driver has let go of them, or never took them."""
    known = {gid.hca for gid in found} | {gid.netdev for gid in found}
    return tuple(
        GidFact(port.hca, port.device, wanted=wanted.get(port.device, ""), absent=True)
        for port in PORTS
        if not known & {port.hca, port.device}
    )


class GidWatch:
    """Whether GIDs are still where they were, for little: one read of a kept descriptor for each device and look. The
    table is searched only when its slot no longer holds the GID. `directory`: /sys/class/infiniband.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._slots: dict[str, int] = {}  # descriptors by "HCA INDEX"

    def look(self, hca: str, mark: str) -> str | None:
        """Where the address of `mark` ("INDEX ADDRESS") is now, in the same form; "" if it is nowhere, None if the
        table does not tell. Raises OSError if the device cannot be read."""
        index, _, address = mark.partition(" ")
        gid = self._read(hca, index)
        if gid is not None and str(gid.ipv4_mapped) == address:
            return mark
        device = self._directory / hca
        found = scan(device, {_netdev(device) or tree.attribute(device / f"ports/1/gid_attrs/ndevs/{index}"): address})
        if found.index is not None and found.address == address:
            return f"{found.index} {address}"
        return None if found.unsure else ""

    def keep(self, marks: Mapping[str, str]) -> None:
        """Close the descriptors of all other slots."""
        kept = {f"{hca} {mark.partition(' ')[0]}" for hca, mark in marks.items()}
        for name in self._slots.keys() - kept:
            os.close(self._slots.pop(name))

    def _read(self, hca: str, index: str) -> ipaddress.IPv6Address | None:
        """None also for a device that has been taken away and put back since: its old files are of no use."""
        name = f"{hca} {index}"
        try:
            if name not in self._slots:
                path = self._directory / hca / f"ports/1/gids/{index}"
                self._slots[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return _parse(os.pread(self._slots[name], 64, 0).decode("ascii", "replace").strip())
        except OSError:
            if name in self._slots:
                os.close(self._slots.pop(name))
            return None


def scan(device: Path, wanted: Mapping[str, str]) -> GidFact:
    """Reads up to the entry that is looked for and not beyond: a table has up to 1024 of them, nearly all empty, and
    with holes, since an address that goes leaves its slot empty. Asked for their type or device, empty slots answer
    EINVAL.
    """
    port = device / "ports/1"
    netdev = _netdev(device)
    others: list[str] = []
    link_local = unsure = False
    for slot, gid in _filled(port / "gids"):
        owner = tree.attribute(port / f"gid_attrs/ndevs/{slot}")
        netdev = netdev or owner
        # A VLAN's GIDs are in its parent's table; they are not the rail's.
        if gid.is_link_local and owner in {netdev, ""}:
            link_local = True
        if gid.ipv4_mapped is None or owner not in {netdev, ""}:
            continue
        kind = tree.attribute(port / f"gid_attrs/types/{slot}")
        address = str(gid.ipv4_mapped)
        sought = wanted.get(netdev, "")
        if not kind or not owner:
            # It may have been emptied since its GID was read.
            unsure = unsure or _parse(tree.attribute(port / f"gids/{slot}")) == gid
        elif kind == "RoCE v2" and sought in {"", address}:
            return GidFact(device.name, netdev, slot, address, sought, tuple(others), link_local)
        elif kind == "RoCE v2":
            others.append(address)
    return GidFact(device.name, netdev, None, "", wanted.get(netdev, ""), tuple(others), link_local, unsure)


def _filled(table: Path) -> Iterator[tuple[int, ipaddress.IPv6Address]]:
    """Entries by their index. Slots are numbered without a gap; an empty one reads as the zero GID.

    Never lists the table: that alone takes the kernel longer than reading the first few entries.
    """
    for slot in count():
        path = table / str(slot)
        text = tree.attribute(path)
        if not text and not path.exists():
            return
        if (gid := _parse(text)) is not None:
            yield slot, gid


def _netdev(device: Path) -> str:
    """A PCI function lists it below `device`. Soft-RoCE has no `device`; its `parent` has the name."""
    return next(iter(tree.names(device / "device/net")), "") or tree.attribute(device / "parent")


def _parse(text: str) -> ipaddress.IPv6Address | None:
    """The GID as an address; None for the zero GID of an empty slot."""
    try:
        gid = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return None if gid.is_unspecified else gid
