"""Machines that have one id, as copies of one disk do: told apart by their boots and their ports' addresses."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core import gates
from sparkd.core.model import Finding, HelloFacts, Neighbour
from tests.core.builders import hears, snapshot

P0, P0_TWIN, P1, P1_TWIN = "enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1"
OWN = replace(hears("spark1"), boot="boot-1", macs=("02:01:00:00:00:01", "02:01:00:00:00:02"))


def against(*changed: Neighbour, own: HelloFacts = OWN) -> list[Finding]:
    """What spark1 has against its cables when these are heard in place of what is heard on their devices."""
    devices = {neighbour.device for neighbour in changed}
    kept = tuple(neighbour for neighbour in own.neighbours if neighbour.device not in devices)
    return list(gates.own_findings(snapshot(hello=replace(own, neighbours=(*kept, *changed)))))


def here(device: str, **changed: str) -> Neighbour:
    found = next(n for n in OWN.neighbours if n.device == device)
    return replace(found, **changed)  # type: ignore[arg-type]


def test_healthy() -> None:
    assert against() == []


def test_node_id_twice_when_a_neighbour_has_this_hosts_id_under_another_name() -> None:
    copies = [here(device, node_id=OWN.node_id, boot="boot-2", mac="02:02:00:00:00:01") for device in (P0, P0_TWIN)]
    (finding,) = against(*copies)
    assert (finding.id, finding.severity, finding.subject) == ("node-id-twice", "refuse", "port 0")
    assert finding.observed == (
        "spark2 (02:02:00:00:00:01) has the same id as spark1 itself, id-spark...: one's disk is a copy of the other's"
    )
    assert "rm /var/lib/sparkd/node-id" in finding.fix


def test_node_id_twice_when_the_copy_also_has_the_name() -> None:
    copies = [
        here(device, node="spark1", node_id=OWN.node_id, boot="boot-2", mac="02:02:00:00:00:01")
        for device in (P0, P0_TWIN)
    ]
    assert [finding.id for finding in against(*copies)] == ["node-id-twice"]


def test_a_copy_that_runs_as_a_second_machine_of_one_boot_is_known_by_its_ports_address() -> None:
    copies = [here(device, node_id=OWN.node_id, boot="boot-1", mac="02:02:00:00:00:01") for device in (P0, P0_TWIN)]
    assert [finding.id for finding in against(*copies)] == ["node-id-twice"]


def test_a_copy_of_a_virtual_machine_with_its_addresses_is_known_by_its_boot() -> None:
    copies = [here(device, node_id=OWN.node_id, boot="boot-2", mac=OWN.macs[0]) for device in (P0, P0_TWIN)]
    assert [finding.id for finding in against(*copies)] == ["node-id-twice"]


def test_a_loop_is_no_copy() -> None:
    loop = [
        here(device, node="spark1", node_id=OWN.node_id, boot="boot-1", mac=mac, remote=remote)
        for device, remote, mac in ((P0, P1, OWN.macs[0]), (P0_TWIN, P1_TWIN, OWN.macs[1]))
    ]
    assert {finding.id for finding in against(*loop)} == {"cable-loop"}


def test_node_id_twice_when_both_neighbours_have_one_id() -> None:
    far = [here(device, node_id="id-spark2", boot="boot-3", mac="02:03:00:00:00:01") for device in (P1, P1_TWIN)]
    near = [here(device, boot="boot-2", mac="02:02:00:00:00:01") for device in (P0, P0_TWIN)]
    found = against(*far, *near)
    assert {finding.id for finding in found} == {"node-id-twice"}
    assert {finding.subject for finding in found} == {P0, P0_TWIN, P1, P1_TWIN}
    assert "spark3 (02:03:00:00:00:01) at" in next(f.observed for f in found if f.subject == P0)
