"""The fabric ports of one Spark.

A Spark has one ConnectX-7 with two QSFP cages. Socket Direct shows each cage as two PCIe functions, one per PCI
domain, so a cage has two network devices and two RDMA devices, and a cable between two cages carries two links.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """One PCIe function of a cage.

    cage: 0 or 1, the number printed in the device's name. domain: PCI domain, "0000" or "0002".
    device: network device. hca: RDMA device.
    """

    cage: int
    domain: str
    device: str
    hca: str


PORTS: tuple[Port, ...] = (
    Port(0, "0000", "enp1s0f0np0", "rocep1s0f0"),
    Port(0, "0002", "enP2p1s0f0np0", "roceP2p1s0f0"),
    Port(1, "0000", "enp1s0f1np1", "rocep1s0f1"),
    Port(1, "0002", "enP2p1s0f1np1", "roceP2p1s0f1"),
)
"""All fabric ports of a node: cage 0 before cage 1, and within a cage domain 0000 before 0002."""

FABRIC_DEVICES: frozenset[str] = frozenset(port.device for port in PORTS)
"""Network devices that belong to the fabric, and so can never be a management interface."""
