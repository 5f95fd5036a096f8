"""The ConnectX-7's functions and the GPU, as they are on the PCI bus."""

from __future__ import annotations

import re
from pathlib import Path

from sparkd.core.hardware import PciFacts, PciFunction
from sparkd.host import tree
from sparkd.host.worker import Worker

_MELLANOX, _NVIDIA = "0x15b3", "0x10de"
_CONNECTX_7 = "0x1021"
_GB10 = range(0x2E00, 0x2E40)  # the range that NVIDIA's kernel reserves for GPUs of this machine
_DISPLAY = ("0x0300", "0x0302")


class PciBus:
    """A read of a device that has fallen off the bus can hang, hence the thread of its own."""

    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._root = root
        self._devices = root / "sys/bus/pci/devices"
        self._worker = Worker("PCI bus", deadline)

    async def observe(self) -> PciFacts:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> PciFacts:
        functions: list[PciFunction] = []
        gb10 = nvidia = False
        for address in tree.names(self._devices):
            device = self._devices / address
            vendor, model = tree.attribute(device / "vendor"), tree.attribute(device / "device")
            # A virtual function has no link of its own to judge.
            if vendor == _MELLANOX and model == _CONNECTX_7 and not (device / "physfn").exists():
                functions.append(self._function(device))
            if vendor == _NVIDIA and tree.attribute(device / "class").startswith(_DISPLAY):
                nvidia = True
                gb10 = gb10 or _number(model) in _GB10
        return PciFacts(tuple(functions), gb10=gb10, nvidia=nvidia, hotplug=self._hotplug())

    def _hotplug(self) -> bool | None:
        try:
            return (self._root / "etc/nvidia/cx7-hotplug-enabled").exists()
        except PermissionError:
            return None

    def _function(self, device: Path) -> PciFunction:
        hca = next(iter(tree.names(device / "infiniband")), "")
        speed = re.match(r"\d+(\.\d+)?(?= GT/s)", tree.attribute(device / "current_link_speed"))
        width = tree.attribute(device / "current_link_width")
        return PciFunction(
            address=device.name,
            driver=tree.target(device / "driver"),
            netdev=next(iter(tree.names(device / "net")), ""),
            hca=hca,
            speed=float(speed[0]) if speed else None,
            # The kernel shows 0 and 63 ("unknown") for a link that does not answer.
            width=int(width) if width.isdecimal() and 0 < int(width) <= 32 else None,
            fatal=_total(tree.attribute(device / "aer_dev_fatal")),
            firmware=tree.attribute(self._root / f"sys/class/infiniband/{hca}/fw_ver") if hca else "",
        )


def _total(text: str) -> int | None:
    """The last line of an AER file sums up the kinds before it (sysfs-bus-pci-devices-aer_stats)."""
    found = re.search(r"^TOTAL_ERR_FATAL (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _number(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1
