"""What was seen on a host, source by source. Frozen dataclasses of plain values; durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

# ActiveState values in which a unit's processes may exist.
ALIVE_STATES = frozenset({"active", "activating", "deactivating", "reloading"})


@dataclass(frozen=True)
class Unknown:
    """A source that could not be asked. It has not said no: nothing may be concluded from it but that it is unknown."""

    why: str


@dataclass(frozen=True)
class RankUnit:
    """One loaded `sparkd-rank@EPOCH.service` as systemd shows it.

    `job` is the type of a queued job ("start", "stop", or empty): between StartUnit's answer and the fork the unit is
    still inactive and only its job tells that it is about to live.
    """

    epoch: int
    active: str
    sub: str = ""
    job: str = ""
    main_pid: int = 0
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0
    text: str = ""

    @property
    def name(self) -> str:
        return f"sparkd-rank@{self.epoch}.service"

    @property
    def alive(self) -> bool:
        return self.active in ALIVE_STATES or self.job in {"start", "restart"}

    @property
    def runs(self) -> bool:
        """Its main process exists and nothing is ending it."""
        return self.active in {"active", "activating"} and self.main_pid > 0


@dataclass(frozen=True)
class LinkFact:
    """One network device. `carrier_changes` counts every flap; netlink events miss short ones.

    `settings`: the sysctls net.ipv4.conf.DEVICE.NAME, and IPv6's addr_gen_mode, that sparkd sets, by name, of fabric
    ports. `link_local` is False for a fabric port on which IPv6 works but for its fe80:: address, which is not there.
    """

    device: str
    up: bool
    carrier: bool
    mtu: int
    mac: str = ""
    carrier_changes: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    link_local: bool = True


@dataclass(frozen=True)
class AddressFact:
    """One IPv4 address with prefix length, e.g. 10.77.0.1/24. `label` is the kernel's IFA_LABEL."""

    device: str
    address: str
    label: str = ""


@dataclass(frozen=True)
class RouteFact:
    """One unicast IPv4 route of the main table. `destination` in CIDR form; gateway and source empty when absent."""

    destination: str
    device: str
    gateway: str = ""
    source: str = ""
    protocol: int = 0


@dataclass(frozen=True)
class NetworkFacts:
    """`writer`: the other process that has just changed an address or a route, e.g. "NetworkManager (pid 812)".

    `ways`: how the kernel would send to the single addresses that sparkd's routes and subnets are there for.
    """

    links: tuple[LinkFact, ...] = ()
    addresses: tuple[AddressFact, ...] = ()
    routes: tuple[RouteFact, ...] = ()
    writer: str = ""
    ways: tuple[RouteFact, ...] = ()

    def link(self, device: str) -> LinkFact | None:
        return next((link for link in self.links if link.device == device), None)


@dataclass(frozen=True)
class RoceFact:
    """One RDMA device of /sys/class/infiniband. `state` is port 1's, e.g. "ACTIVE".

    `gid`: where the address that a rank was started with is in its GID table, as in Attempt.gids; empty when it is
    nowhere, None when nobody has looked or the table did not tell. `received`, `sent`: bytes over RDMA since the device
    is there, None where it does not count them, as Soft-RoCE.
    """

    hca: str
    state: str = ""
    netdev: str = ""
    gid: str | None = None
    received: int | None = None
    sent: int | None = None


@dataclass(frozen=True)
class Neighbour:
    """Who is heard on a fabric port of this host, by the hello that its port sends.

    `ours`: the hello carries the cluster's key. A foreign one is only as true as whoever sent it. `boot` and `mac` (of
    the far port) tell machines apart that have one id, as copies of one disk do.
    """

    device: str
    node: str
    node_id: str
    remote: str
    cluster: str = ""
    ours: bool = True
    boot: str = ""
    mac: str = ""


@dataclass(frozen=True)
class HelloFacts:
    """`node_id`, `boot` and `macs` (of its fabric ports) are this host's own. `deaf` are the ports that cannot hear:
    IPv6 is switched off on them. `settled` are those that have listened for so long that a neighbour would have been
    heard.
    """

    node_id: str
    neighbours: tuple[Neighbour, ...] = ()
    deaf: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    boot: str = ""
    macs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PortBefore:
    """A fabric port as sparkd found it, to be restored by `sparkctl fabric down`. settings: sysctls by name."""

    device: str
    up: bool
    mtu: int
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FabricMemory:
    """What persists of the fabric: the ports as found in this boot, and whether an operator took them from sparkd."""

    boot_id: str = ""
    before: tuple[PortBefore, ...] = ()
    released: bool = False


@dataclass(frozen=True)
class Process:
    """A process in the control group of a rank's unit. `command`: the beginning of its command line."""

    pid: int
    user: str
    command: str
    unit: str

    @property
    def words(self) -> str:
        return f"pid {self.pid} ({self.command}, user {self.user})"


@dataclass(frozen=True)
class PortBytes:
    """What has passed a fabric port through the kernel's network stack, which RDMA does not."""

    device: str
    received: int
    sent: int


@dataclass(frozen=True)
class HostFacts:
    """`rank_processes`: all in the control groups of rank units, whether the unit is alive or not."""

    boot_id: str
    memory_total_kib: int = 0
    memory_available_kib: int = 0
    kernel: str = ""
    rank_processes: tuple[Process, ...] = ()
    traffic: tuple[PortBytes, ...] = ()
