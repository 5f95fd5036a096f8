"""A DGX Spark's files as DGX OS 7 has them, below a directory, for tests to spoil. Written by hand, not recorded."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from sparkd.core import checks
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import AddressFact, NetworkFacts
from sparkd.host.hardware import Hardware

NODE = "spark1"
PORTS = (20000, 8888)
RELEASE = "6.17.0-1031-nvidia"
DRIVER = "580.173.02"
FUNCTIONS = {
    "0000:01:00.0": ("enp1s0f0np0", "rocep1s0f0"),
    "0000:01:00.1": ("enp1s0f1np1", "rocep1s0f1"),
    "0002:01:00.0": ("enP2p1s0f0np0", "roceP2p1s0f0"),
    "0002:01:00.1": ("enP2p1s0f1np1", "roceP2p1s0f1"),
}
ADDRESSES = {
    "enp1s0f0np0": "10.77.0.1",
    "enp1s0f1np1": "10.77.4.2",
    "enP2p1s0f0np0": "10.77.1.1",
    "enP2p1s0f1np1": "10.77.5.2",
}
# Where the kernel answers EINVAL whatever is asked: the loopback device has no speed.
EINVAL = Path("/sys/class/net/lo/speed")


def mac(device: str) -> str:
    return f"4c:bb:47:00:00:{list(ADDRESSES).index(device):02x}"


def mapped(address: str) -> str:
    """The GID of an IPv4 address as sysfs prints it."""
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


class Tree:
    """Files below `root`, which stands for /. Without anything else: a virtual machine of the lab."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/sys/kernel/osrelease", "6.1.0-40-amd64\n")
        self.put("proc/cmdline", "root=/dev/vda rw quiet\n")
        self.meminfo(MemTotal=4 << 20, MemFree=2 << 20, MemAvailable=3 << 20, Cached=1 << 20, SwapTotal=0)
        self.put("proc/sys/vm/swappiness", "60\n")
        self.put("proc/net/tcp", TCP_HEADER)
        self.put("proc/1/cmdline", "/sbin/init\0")
        self.put("etc/passwd", PASSWD)

    def put(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file.unlink()
        file.write_text(text)
        return file

    def link(self, path: str, target: str | Path) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(target)

    def seal(self, path: str) -> None:
        """Nobody can read the file, not even root: a link that leads back to itself."""
        self.link(path, Path(path).name)

    def remove(self, path: str) -> None:
        file = self.root / path
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()

    def meminfo(self, **kib: int) -> None:
        lines = [f"{name + ':':<16}{value:>8} kB" for name, value in kib.items()]
        self.put("proc/meminfo", "\n".join([*lines, "HugePages_Total:       0", ""]))

    def process(
        self, pid: int, *arguments: str, cgroup: str = "0::/", uid: int = 1000, sockets: tuple[int, ...] = ()
    ) -> None:
        self.put(f"proc/{pid}/cmdline", "".join(f"{argument}\0" for argument in arguments))
        self.put(f"proc/{pid}/cgroup", cgroup + "\n")
        self.put(f"proc/{pid}/status", f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, inode in enumerate(sockets):
            self.link(f"proc/{pid}/fd/{number}", f"socket:[{inode}]")

    def listen(self, address: str, uid: int, inode: int) -> None:
        """`address` as the kernel prints it, e.g. 0100007F:4E20."""
        queues = "00000000:00000000 00:00000000 00000000"
        row = f"   0: {address} 00000000:0000 0A {queues}  {uid:>4}        0 {inode} 1 0 100\n"
        self.put("proc/net/tcp", (self.root / "proc/net/tcp").read_text() + row)

    def gid(self, hca: str, slot: int, gid: str, kind: str, netdev: str) -> None:
        port = f"sys/class/infiniband/{hca}/ports/1"
        self.put(f"{port}/gids/{slot}", gid + "\n")
        self.put(f"{port}/gid_attrs/types/{slot}", kind + "\n")
        self.put(f"{port}/gid_attrs/ndevs/{slot}", netdev + "\n")

    def empty_gid(self, hca: str, slot: int) -> None:
        port = f"sys/class/infiniband/{hca}/ports/1"
        self.put(f"{port}/gids/{slot}", "0000:0000:0000:0000:0000:0000:0000:0000\n")
        self.link(f"{port}/gid_attrs/types/{slot}", EINVAL)
        self.link(f"{port}/gid_attrs/ndevs/{slot}", EINVAL)

    def facts(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, deadline: float = 2.0
    ) -> HardwareFacts:
        hardware = Hardware(PORTS, self.root, deadline)
        try:
            return asyncio.run(hardware.observe(rank_pid, addresses))
        finally:
            hardware.close()

    def seen(self, *, rank_pid: int = 0, ranks_alive: bool | None = False, adopt: bool = False) -> checks.Seen:
        addresses = tuple(AddressFact(device, f"{address}/24") for device, address in ADDRESSES.items())
        return checks.Seen(
            NODE, self.facts(rank_pid, ADDRESSES), NetworkFacts(addresses=addresses), ranks_alive, adopt=adopt, reach=()
        )

    def check(
        self, id_: str, *, rank_pid: int = 0, ranks_alive: bool | None = False, adopt: bool = False
    ) -> checks.CheckResult:
        seen = self.seen(rank_pid=rank_pid, ranks_alive=ranks_alive, adopt=adopt)
        return next(result for result in checks.run(seen) if result.id == id_)


class Spark(Tree):
    """A healthy node of a triangle, addresses set, no rank running."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.kernel(RELEASE)
        self.driver(DRIVER)
        self.put("sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n")
        self.meminfo(
            MemTotal=127598748,
            MemFree=118000000,
            MemAvailable=121000000,
            Cached=3200000,
            SwapTotal=16777212,
            AnonPages=1500000,
            Shmem=40000,
            CmaTotal=0,
            CmaFree=0,
        )
        self.function("000f:01:00.0", vendor="0x10de", device="0x2e12", kind="0x030000")
        self.function("0007:01:00.0", vendor="0x10ec", device="0x8127", kind="0x020000")
        for number, (address, (netdev, hca)) in enumerate(FUNCTIONS.items()):
            self.connectx(address, netdev, hca)
            self.put(f"sys/class/net/{netdev}/address", mac(netdev) + "\n")
            self.put(f"sys/class/net/{netdev}/ifindex", f"{number + 3}\n")
            self.gid_table(hca, netdev, ADDRESSES[netdev])
        self.put("usr/lib/systemd/system/sparkd-rank@.service", "[Unit]\n[Service]\nLimitMEMLOCK=infinity\n")
        self.put("etc/netplan/01-network-manager-all.yaml", "network:\n  version: 2\n  renderer: NetworkManager\n")
        (self.root / "run/NetworkManager/devices").mkdir(parents=True)

    def kernel(self, release: str, kho: str = "", config: str | None = None) -> None:
        self.put("proc/sys/kernel/osrelease", release + "\n")
        self.put("proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{release} ro quiet {kho}".strip() + "\n")
        if config is not None:
            self.put(f"boot/config-{release}", config)

    def driver(self, module: str, library: str = "") -> None:
        self.put("sys/module/nvidia/version", module + "\n")
        self.put(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {module}  Release Build  (builder@host)\n"
            "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
        )
        name = f"libnvidia-ml.so.{library or module}"
        self.put(f"usr/lib/aarch64-linux-gnu/{name}")
        self.link("usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1", name)

    def function(self, address: str, *, vendor: str, device: str, kind: str) -> None:
        for name, value in {"vendor": vendor, "device": device, "class": kind}.items():
            self.put(f"sys/bus/pci/devices/{address}/{name}", value + "\n")

    def connectx(self, address: str, netdev: str, hca: str) -> None:
        self.function(address, vendor="0x15b3", device="0x1021", kind="0x020000")
        place = f"sys/bus/pci/devices/{address}"
        self.put(f"{place}/current_link_speed", "32.0 GT/s PCIe\n")
        self.put(f"{place}/current_link_width", "4\n")
        self.fatal_errors(address, 0)
        self.link(f"{place}/driver", "../../../bus/pci/drivers/mlx5_core")
        (self.root / place / "net" / netdev).mkdir(parents=True)
        (self.root / place / "infiniband" / hca).mkdir(parents=True)
        self.put(f"sys/class/infiniband/{hca}/fw_ver", "28.45.4028\n")
        (self.root / f"sys/class/infiniband/{hca}/device/net/{netdev}").mkdir(parents=True)

    def fatal_errors(self, address: str, number: int) -> None:
        kinds = f"Undefined 0\nDLP {number}\nSDES 0\nTLP 0\nFCP 0\nTOTAL_ERR_FATAL {number}\n"
        self.put(f"sys/bus/pci/devices/{address}/aer_dev_fatal", kinds)

    def gid_table(self, hca: str, netdev: str, address: str | None) -> None:
        """As mlx5 fills it: each GID as RoCE v1 and v2, link-local ones first."""
        if (self.root / f"sys/class/infiniband/{hca}/ports").exists():
            self.remove(f"sys/class/infiniband/{hca}/ports")
        link_local = "fe80:0000:0000:0000:4ebb:47ff:fe00:0001"
        for slot, gid in enumerate([link_local, mapped(address)] if address else [link_local]):
            self.gid(hca, 2 * slot, gid, "IB/RoCE v1", netdev)
            self.gid(hca, 2 * slot + 1, gid, "RoCE v2", netdev)
        for slot in range(4 if address else 2, 12):
            self.empty_gid(hca, slot)
        self.put(f"sys/class/infiniband/{hca}/ports/1/state", "4: ACTIVE\n")


def running_as_root() -> bool:
    return os.geteuid() == 0


TCP_HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
PASSWD = """\
root:x:0:0:root:/root:/bin/bash
sparkd-rank:x:990:990:rank of a sparkd ring:/var/cache/sparkd-rank:/usr/sbin/nologin
spark:x:1000:1000::/home/spark:/bin/bash
"""
