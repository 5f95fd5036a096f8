"""Files of the guests' disk that are ours: names of the interfaces, units of the boot, the agent."""

from __future__ import annotations

from pathlib import Path

from tests.lab.layout import FABRIC_DEVICES, MANAGEMENT_DEVICE, MANAGEMENT_PREFIX, NODES, End, address
from tests.vm.layout import CHANNELS, FABRIC_SLOTS, MANAGEMENT_SLOT, hca

# In the initial RAM disk: busybox, the modules numbered in their order, and this.
INIT = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
for module in /*.ko; do /bin/busybox insmod "$module"; done
until [ -b /dev/vda ]; do /bin/busybox usleep 20000; done
/bin/busybox mount -t ext4 /dev/vda /root || /bin/busybox poweroff -f
/bin/busybox umount /proc
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /lib/systemd/systemd
"""

MANAGEMENT = f"""#!/bin/sh
# The management address is on the kernel's command line: all guests have the same disk.
set -e
until [ -e /sys/class/net/{MANAGEMENT_DEVICE} ]; do sleep 0.2; done
address=$(sed -n 's/.*sparkd\\.address=\\([^ ]*\\).*/\\1/p' /proc/cmdline)
ip link set {MANAGEMENT_DEVICE} up
ip address replace "$address/{MANAGEMENT_PREFIX}" dev {MANAGEMENT_DEVICE}
"""

RXE = """#!/bin/sh
# RDMA over any Ethernet device, in software, under the names that the devices have on a Spark.
set -e
modprobe -a ib_uverbs rdma_ucm rdma_rxe
while read -r hca netdev; do
    until [ -e "/sys/class/net/$netdev" ]; do sleep 0.2; done
    [ -e "/sys/class/infiniband/$hca" ] || rdma link add "$hca" type rxe netdev "$netdev"
done <<PAIRS
{pairs}
PAIRS
"""

UNIT = """[Unit]
Description={description}
{order}
[Service]
Type={kind}
ExecStart={command}
[Install]
WantedBy=multi-user.target
"""

# Imports that take a Spark half a second take an emulated processor, of which several share few cores, minutes; and its
# clock leaps when a saved state is loaded, which would look like a hung daemon.
PATIENCE = """[Service]
TimeoutStartSec=10min
WatchdogSec=0
"""

MASKED: tuple[str, ...] = (
    "systemd-timesyncd.service", "systemd-networkd-wait-online.service", "systemd-pstore.service",
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "modprobe@drm.service", "getty.target",
    "modprobe@efi_pstore.service", "systemd-remount-fs.service", "systemd-sysctl.service", "iwpmd.service",
    "systemd-binfmt.service", "rdma-ndd.service", "modprobe@configfs.service", "modprobe@fuse.service",
    "modprobe@dm_mod.service", "modprobe@loop.service", "dev-hugepages.mount", "dev-mqueue.mount",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "systemd-logind.service", "systemd-user-sessions.service",
)  # fmt: skip
ENABLED: tuple[str, ...] = ("vm-agent.service", "vm-management.service", "vm-rxe.service")

_BIN = "usr/local/sbin"
_UNITS = "etc/systemd/system"


def all_files() -> dict[str, tuple[int, str]]:
    """Mode and text by path."""
    ends = [End(NODES[0], port, domain) for port, domain in FABRIC_DEVICES]
    pairs = "\n".join(f"{hca(end)} {end.device}" for end in ends)
    names = "".join(f"{address(node)} {node}\n" for node in NODES)
    ports = " ".join(f"sparkd.{number}" for number in range(CHANNELS))
    units = {
        "vm-agent": _unit("Commands from outside", "", "exec", f"/{_BIN}/vm-agent {ports}"),
        "vm-management": _oneshot("Management address", "vm-management", "Wants=polkit.service"),
        "vm-rxe": _oneshot("Soft-RoCE on the fabric ports", "vm-rxe"),
    }
    found = {
        f"{_BIN}/vm-agent": (0o755, Path(__file__).with_name("agent.py").read_text()),
        f"{_BIN}/vm-management": (0o755, MANAGEMENT),
        f"{_BIN}/vm-rxe": (0o755, RXE.format(pairs=pairs)),
        **{f"{_UNITS}/{name}.service": (0o644, text) for name, text in units.items()},
        f"{_UNITS}/sparkd.service.d/vm.conf": (0o644, PATIENCE),
        "etc/hosts": (0o644, f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{names}"),
        f"etc/systemd/network/10-{MANAGEMENT_DEVICE}.link": (0o644, _link(MANAGEMENT_SLOT, MANAGEMENT_DEVICE)),
    }
    for place, device in FABRIC_DEVICES.items():
        # As on a Spark: jumbo frames are sparkd's to set.
        text = _link(FABRIC_SLOTS[place], device) + "MTUBytes=1500\n"
        found[f"etc/systemd/network/10-{device}.link"] = (0o644, text)
    return found


def _oneshot(description: str, script: str, order: str = "") -> str:
    kind = "oneshot\nRemainAfterExit=yes"
    order = f"Before=sparkd.service\n{order}".strip()
    return _unit(description, order, kind, f"/{_BIN}/{script}")


def _unit(description: str, order: str, kind: str, command: str) -> str:
    return UNIT.format(description=description, order=order, kind=kind, command=command)


def _link(slot: int, device: str) -> str:
    return f"[Match]\nPath=pci-0000:00:{slot:02x}.0\n[Link]\nName={device}\nNamePolicy=\n"
