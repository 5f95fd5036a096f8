"""What the host's own files tell of its hardware, kernel, driver, memory and of others who use the network.

Frozen dataclasses of plain values that travel between daemons. None and "" stand for "this host cannot tell" where a
field says so; a source that could not be read at all is None in HardwareFacts, with the reason in `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkd.core.enginefacts import EngineFacts


@dataclass(frozen=True)
class KernelFacts:
    """`release` as uname shows it. `kho` is the last kho= of the kernel's command line, None without one.

    `kho_default`: whether this kernel was built to start kexec handover by itself.

    `module` is the version of the loaded NVIDIA kernel module ("" when none is loaded), `library` that of the installed
    user-space library ("" when none is found). `reboot_packages` are those that asked for the reboot.
    """

    release: str
    kho: str | None = None
    kho_default: bool | None = None
    module: str = ""
    library: str = ""
    product: str = ""
    reboot_required: bool = False
    reboot_packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class PciFunction:
    """One ConnectX-7 function, e.g. 0002:01:00.1. Speed in GT/s and width in lanes; None when it does not tell.

    `fatal`: fatal errors that it has reported since the boot (AER); None on a kernel that does not count them.
    """

    address: str
    driver: str = ""
    netdev: str = ""
    hca: str = ""
    speed: float | None = None
    width: int | None = None
    firmware: str = ""
    fatal: int | None = None


@dataclass(frozen=True)
class PciFacts:
    """`gb10`: the GPU of a DGX Spark is on the bus, driver or not. `nvidia`: any NVIDIA GPU is.

    `hotplug`: /etc/nvidia/cx7-hotplug-enabled exists, by which functions without a cable are taken off the bus; None
    when this user may not look.
    """

    functions: tuple[PciFunction, ...] = ()
    gb10: bool = False
    nvidia: bool = False
    hotplug: bool | None = False


@dataclass(frozen=True)
class MemoryFacts:
    """Fields of /proc/meminfo in KiB. CMA fields are None on a kernel without CMA."""

    total: int
    available: int
    free: int = 0
    cached: int = 0
    shmem: int = 0
    anonymous: int = 0
    swap_total: int = 0
    cma_total: int | None = None
    cma_free: int | None = None
    swappiness: int | None = None


@dataclass(frozen=True)
class GidFact:
    """The RoCE v2 GID of an IPv4 address in one RDMA device's table (port 1).

    `index` is None when there is none. `link_local`: the table holds fe80:: GIDs. `wanted`: the address that was
    looked for, or "" for any; `others` are addresses of the same kind that were met on the way. `unsure`: a slot with
    an IPv4 GID did not tell its type. `absent`: the device is not there, though others of its host are.
    """

    hca: str
    netdev: str = ""
    index: int | None = None
    address: str = ""
    wanted: str = ""
    others: tuple[str, ...] = ()
    link_local: bool = False
    unsure: bool = False
    absent: bool = False


@dataclass(frozen=True)
class Profile:
    """A file that gives a fabric port to another owner of the network.

    `owner` is netplan, NetworkManager or systemd-networkd. `dhcp` is None when the file cannot be read and only its
    name tells the device. `modified` is UTC, e.g. "2026-07-01 12:03 UTC".
    """

    device: str
    path: str
    owner: str
    dhcp: bool | None = None
    addresses: tuple[str, ...] = ()
    modified: str = ""


@dataclass(frozen=True)
class Manager:
    """A network manager that runs on this host, and the fabric ports that it says it manages."""

    name: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnerFacts:
    """`unreadable` are files of which not even the name tells whether they are about a fabric port."""

    profiles: tuple[Profile, ...] = ()
    unreadable: tuple[str, ...] = ()
    managers: tuple[Manager, ...] = ()


@dataclass(frozen=True)
class ConfLine:
    """One assignment in an nccl.conf; `line` counts from 1."""

    path: str
    line: int
    key: str
    value: str


@dataclass(frozen=True)
class RankFacts:
    """What a rank will find on this host.

    `memlock` is the soft limit of the running rank `pid` ("unlimited" or bytes), "" without one; `unit_memlock` is what
    the unit's files ask of systemd, and `unit_file` the file that has the last word.
    """

    pid: int = 0
    memlock: str = ""
    unit_memlock: str = ""
    unit_file: str = ""
    nccl_conf: tuple[ConfLine, ...] = ()
    nccl_unreadable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket on one of the ring's ports. `pid` is 0 when this user may not know."""

    port: int
    address: str
    uid: int
    user: str = ""
    pid: int = 0
    command: str = ""
    unit: str = ""

    @property
    def ours(self) -> bool:
        return is_rank_unit(self.unit) if self.pid else self.user == RANK_USER


@dataclass(frozen=True)
class Engine:
    """A process of an inference engine that is in no rank unit."""

    pid: int
    user: str
    command: str
    unit: str = ""


@dataclass(frozen=True)
class SupervisorFacts:
    """`hidden`: /proc does not show the processes of other users, so that none of them can be found."""

    listeners: tuple[Listener, ...] = ()
    engines: tuple[Engine, ...] = ()
    hidden: bool = False


@dataclass(frozen=True)
class RailFact:
    """What an RDMA device has sent over the last whole window in which one epoch served: bytes, and its seconds."""

    hca: str
    sent: int
    seconds: float


@dataclass(frozen=True)
class HardwareFacts:
    """A source that failed is None here and its reason is in `unknown` under the field's name.

    `broken`: what the kernel's log has said, while sparkd followed it, of ConnectX functions that cannot be trusted, by
    PCI address (see sparkd.core.kernellog).
    """

    kernel: KernelFacts | None = None
    pci: PciFacts | None = None
    memory: MemoryFacts | None = None
    gids: tuple[GidFact, ...] | None = None
    owners: OwnerFacts | None = None
    rank: RankFacts | None = None
    supervisors: SupervisorFacts | None = None
    rails: tuple[RailFact, ...] | None = None
    engine: EngineFacts | None = None
    broken: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def why(self, source: str) -> str:
        return self.unknown.get(source, f"{source} was not looked at")

    @property
    def spark(self) -> bool | None:
        """Whether this is a DGX Spark (or another maker's box of its kind): they share the GPU, not the name."""
        if self.pci is not None and self.pci.gb10:
            return True
        if self.kernel is not None and any(word in self.kernel.product for word in ("DGX_Spark", "DGX Spark")):
            return True
        return None if self.pci is None else False


RANK_USER = "sparkd-rank"


def is_rank_unit(unit: str) -> bool:
    return unit.startswith("sparkd-rank@") and unit.endswith(".service")
