"""The conductor without the others: they are down and well, and do nothing of themselves."""

from __future__ import annotations

from ring_mesh import FABRIC_DEVICES
from sparkd.core.model import Intent, Report
from tests.core.builders import NOW
from tests.core.builders import report as peer_report
from tests.reconcile.cluster import Cluster, Machine
from tests.reconcile.running import turns

DOWN = Intent(3, "down", "operator", "stop asked for", NOW)


def hear(machine: Machine, intent: Intent = DOWN) -> None:
    """Both peers of spark1 are down and well."""
    for name in ("spark2", "spark3"):
        machine.peers.receive(peer_report(name, intent))


async def alone(ring: Cluster) -> Machine:
    """The conductor, whose loop does not turn by itself, with peers that are well."""
    machine = ring.conductor
    machine.build()
    for name in ("spark2", "spark3"):
        ring.mesh.wake(name)
        for device in FABRIC_DEVICES:
            ring[name].links.set_up(device, True)
    hear(machine)
    await machine.loop.cycle()
    await turns()
    await machine.loop.cycle()  # the ports are up now, and what they are cabled to is heard
    return machine


def published(machine: Machine) -> Report:
    report: Report | None = machine.peers.published
    assert report is not None
    return report
