"""The closed set of things sparkd may do to its own host, as values. sparkd.reconcile.executor carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, FabricMemory, Intent

ROUTE_PROTOCOL = 173  # our number in rtm_protocol, free in iproute2's rt_protos; what carries it is ours to remove
ADDRESS_LABEL = "s"  # IFA_LABEL "DEVICE:s": the longest fabric name has 13 characters and a label holds 15


@dataclass(frozen=True)
class SetUp:
    device: str


@dataclass(frozen=True)
class SetMtu:
    device: str
    mtu: int


@dataclass(frozen=True)
class SetDown:
    device: str


@dataclass(frozen=True)
class SetSysctl:
    """net.ipv4.conf.DEVICE.NAME, or net.ipv6.conf.DEVICE.addr_gen_mode."""

    device: str
    name: str
    value: str


@dataclass(frozen=True)
class AddAddress:
    """`address` with prefix length, e.g. 10.77.0.1/24."""

    device: str
    address: str
    label: str


@dataclass(frozen=True)
class RemoveAddress:
    device: str
    address: str


@dataclass(frozen=True)
class AddRoute:
    """A /32 over the direct cable, with our protocol number."""

    destination: str
    gateway: str
    device: str
    source: str


@dataclass(frozen=True)
class RemoveRoute:
    destination: str
    gateway: str
    device: str


FabricChange = SetUp | SetDown | SetSysctl | SetMtu | AddAddress | RemoveAddress | AddRoute | RemoveRoute


@dataclass(frozen=True)
class Adopt:
    """Save the intent durably; from then on it is this host's."""

    intent: Intent


@dataclass(frozen=True)
class ApplyFabric:
    changes: tuple[FabricChange, ...]


@dataclass(frozen=True)
class Remember:
    """Save how the ports were, before they are changed, or that they are released."""

    memory: FabricMemory


@dataclass(frozen=True)
class NoteBoot:
    """Save which boot of the host this is, and which resets there were."""

    boots: BootMemory


@dataclass(frozen=True)
class StartRank:
    """Record the attempt durably, write the environment file, start the unit of this epoch.

    hcas: the planned RDMA devices that this host has, in the plan's order; empty without RDMA.
    """

    attempt: Attempt
    hcas: tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """Start the unit that measures rails. devices: of this host, to be measured; hcas: as in StartRank."""

    epoch: int
    devices: tuple[str, ...]
    hcas: tuple[str, ...]


@dataclass(frozen=True)
class StopMeasuring:
    epoch: int
    why: str


@dataclass(frozen=True)
class StopRank:
    epoch: int
    why: str


@dataclass(frozen=True)
class TellRank:
    """Have the rank drain, that is, take no new requests and go on with those that run; or serve again."""

    epoch: int
    drain: bool


@dataclass(frozen=True)
class ForgetRank:
    """Drop a failed unit of an older epoch from systemd's memory, and its environment file."""

    epoch: int


@dataclass(frozen=True)
class Record:
    """Save what has become of this host's attempt."""

    attempt: Attempt


Action = (
    Adopt
    | ApplyFabric
    | Remember
    | NoteBoot
    | Measure
    | StopMeasuring
    | StartRank
    | StopRank
    | TellRank
    | ForgetRank
    | Record
)
