"""The fabric's rule: what differs from the plan, in which order it is mended, and what refuses a start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import FABRIC_DEVICES, PORTS, plan
from sparkd.core import links
from sparkd.core.actions import AddAddress, AddRoute, RemoveAddress, RemoveRoute, SetMtu, SetSysctl, SetUp
from sparkd.core.model import AddressFact, LinkFact, NetworkFacts, RouteFact
from tests.core.builders import NODES, PLAN, applied, bare_network, configured_network

nodes = pytest.mark.parametrize("node", NODES)


@nodes
def test_a_bare_host_is_configured_in_an_order_that_the_kernel_accepts(node: str) -> None:
    steps = links.changes(PLAN, node, bare_network(node), wanted=True)
    assert [type(step) for step in steps] == [SetUp] * 4 + [SetMtu] * 4 + [SetSysctl] * 12 + [AddAddress] * 4 + [
        AddRoute
    ] * 4
    seen = bare_network(node)
    for step in steps:
        seen = applied(seen, step)
    assert links.changes(PLAN, node, seen, wanted=True) == ()
    assert all(end.verified for end in links.ends(PLAN, node, seen))


@nodes
@given(missing=st.sets(st.integers(0, 11)))
def test_whatever_is_lost_is_mended_and_nothing_else_is_touched(node: str, missing: set[int]) -> None:
    seen = configured_network(node)
    ends, routes = PLAN.ends_of(node), PLAN.routes_of(node)
    bare = {ends[index].device for index in missing if index < 4}
    slow = {ends[index - 4].device for index in missing if 4 <= index < 8}
    lost = {f"{routes[index - 8].destination}/32" for index in missing if index >= 8}
    seen = NetworkFacts(
        tuple(replace(link, mtu=1500) if link.device in slow else link for link in seen.links),
        tuple(address for address in seen.addresses if address.device not in bare),
        tuple(route for route in seen.routes if route.destination not in lost),
    )
    steps = links.changes(PLAN, node, seen, wanted=True)
    assert len(steps) == len(missing)
    for step in steps:
        seen = applied(seen, step)
    assert links.changes(PLAN, node, seen, wanted=True) == ()


@nodes
def test_a_ring_that_is_down_keeps_ports_up_and_nothing_of_ours(node: str) -> None:
    seen = configured_network(node)
    steps = links.changes(PLAN, node, seen, wanted=False)
    assert [type(step) for step in steps] == [RemoveRoute] * 4 + [RemoveAddress] * 4
    for step in steps:
        seen = applied(seen, step)
    assert seen.addresses == bare_network(node).addresses
    assert seen.routes == bare_network(node).routes
    assert links.changes(PLAN, node, seen, wanted=False) == ()


def test_addresses_and_routes_of_others_are_left_alone() -> None:
    seen = configured_network("spark1")
    theirs = AddressFact("enp1s0f0np0", "172.20.0.1/24", "enp1s0f0np0")
    route = RouteFact("172.21.0.0/24", "enp1s0f0np0", "172.20.0.2", "", 4)
    seen = replace(seen, addresses=(*seen.addresses, theirs), routes=(*seen.routes, route))
    for wanted in (True, False):
        for step in links.changes(PLAN, "spark1", seen, wanted=wanted):
            assert "172." not in str(step)
    (found,) = links.judge(PLAN, "spark1", seen)
    assert (found.id, found.severity, found.subject) == ("address-foreign", "warn", "enp1s0f0np0")


def test_a_foreign_address_in_a_planned_subnet_refuses_a_start() -> None:
    """Field report address-foreign: traffic for that subnet would leave by the wrong port."""
    seen = configured_network("spark1")
    theirs = AddressFact("enp1s0f0np0", "10.77.2.99/24", "enp1s0f0np0")
    (found,) = links.judge(PLAN, "spark1", replace(seen, addresses=(*seen.addresses, theirs)))
    assert (found.id, found.severity) == ("address-foreign", "refuse")
    assert "overlaps the planned 10.77.2.0/24" in found.observed


def test_a_connected_route_that_was_flushed_comes_back_with_its_address() -> None:
    """The kernel makes it with the address and not again, and no route has a gateway without it."""
    seen = configured_network("spark1")
    lost = replace(seen, routes=tuple(r for r in seen.routes if r.device != "enp1s0f0np0"))
    assert not links.ends(PLAN, "spark1", lost)[0].verified
    steps = links.changes(PLAN, "spark1", lost, wanted=True)
    assert [type(step) for step in steps] == [RemoveAddress, AddAddress, AddRoute]
    for step in steps:
        lost = applied(lost, step)
    assert all(end.verified for end in links.ends(PLAN, "spark1", lost))


def test_ports_that_the_plan_does_not_use_are_brought_up_too() -> None:
    pair = plan(replace(PLAN.cluster, nodes=PLAN.cluster.nodes[:2]))
    steps = links.changes(pair, "spark1", bare_network("spark1"), wanted=False)
    assert {step.device for step in steps if isinstance(step, SetUp)} == FABRIC_DEVICES


def test_a_planned_address_that_somebody_else_set_is_used_and_not_removed() -> None:
    seen = configured_network("spark1")
    end = PLAN.ends_of("spark1")[0]
    adopted = tuple(replace(a, label=a.device) if a.device == end.device else a for a in seen.addresses)
    seen = replace(seen, addresses=adopted)
    assert links.changes(PLAN, "spark1", seen, wanted=True) == ()
    assert links.judge(PLAN, "spark1", seen) == ()
    removed = [s.address for s in links.changes(PLAN, "spark1", seen, wanted=False) if isinstance(s, RemoveAddress)]
    assert str(end.address) not in removed
    assert len(removed) == 3


def test_an_old_plans_leftovers_with_our_tag_go_after_the_new_is_there() -> None:
    seen = configured_network("spark1")
    old = AddressFact("enp1s0f0np0", "10.99.0.1/24", links.label("enp1s0f0np0"))
    old_route = RouteFact("10.99.2.2/32", "enp1s0f0np0", "10.99.0.2", "10.99.0.1", 173)
    lost = replace(seen, routes=(old_route, *[r for r in seen.routes if r.destination != "10.77.2.2/32"]))
    lost = replace(lost, addresses=(*lost.addresses, old))
    steps = links.changes(PLAN, "spark1", lost, wanted=True)
    assert [type(step) for step in steps] == [AddRoute, RemoveRoute, RemoveAddress]


@nodes
@pytest.mark.parametrize("cage", [0, 1])
def test_cable_missing_names_node_port_and_where_the_cable_goes(node: str, cage: int) -> None:
    """Field report cable-missing."""
    dark = {port.device for port in PORTS if port.cage == cage}
    seen = configured_network(node)
    seen = replace(seen, links=tuple(replace(x, carrier=False) if x.device in dark else x for x in seen.links))
    (found,) = links.judge(PLAN, node, seen)
    end = next(end for end in PLAN.ends_of(node) if end.port.cage == cage)
    far = PLAN.far_end(end)
    assert (found.id, found.node, found.severity, found.subject) == ("cable-missing", node, "refuse", f"port {cage}")
    assert found.expected == f"a cable from {node} port {cage} to {far.node} port {1 - cage}"
    assert [end.verified for end in links.ends(PLAN, node, seen)] == [port.cage != cage for port in PORTS]


def test_one_dark_function_of_a_cage_is_not_called_a_missing_cable_on_both() -> None:
    seen = configured_network("spark1")
    seen = replace(
        seen, links=tuple(replace(x, carrier=False) if x.device == "enP2p1s0f0np0" else x for x in seen.links)
    )
    (found,) = links.judge(PLAN, "spark1", seen)
    assert found.observed == "no carrier on enP2p1s0f0np0 (the other PCI domain of the port has it)"


def test_a_port_that_is_down_is_brought_up_before_it_is_judged() -> None:
    assert links.judge(PLAN, "spark1", bare_network("spark1")) == ()
    assert [end.carrier for end in links.ends(PLAN, "spark1", bare_network("spark1"))] == [False] * 4


def test_cx7_functions_missing_names_port_and_devices() -> None:
    """Field report cx7-functions-missing."""
    seen = configured_network("spark2")
    gone = ("enp1s0f1np1", "enP2p1s0f1np1")
    seen = NetworkFacts(
        tuple(link for link in seen.links if link.device not in gone),
        tuple(address for address in seen.addresses if address.device not in gone),
        tuple(route for route in seen.routes if route.device not in gone),
    )
    (found,) = links.judge(PLAN, "spark2", seen)
    assert (found.id, found.subject) == ("cx7-functions-missing", "port 1")
    assert all(device in found.observed for device in gone)
    assert "cx7-hotplug-enabled" in found.fix
    steps = links.changes(PLAN, "spark2", seen, wanted=True)
    assert steps == (), "nothing is asked of devices that are not there"


@pytest.mark.parametrize(
    ("addresses", "where"),
    [
        ((), "no interface has it"),
        ((AddressFact("wlP9s9", "192.168.77.1/24", "wlP9s9"),), "it is on wlP9s9"),
    ],
)
def test_management_address_elsewhere_is_refused(addresses: tuple[AddressFact, ...], where: str) -> None:
    seen = configured_network("spark1")
    fabric = tuple(a for a in seen.addresses if a.device != "enP7s7")
    (found,) = links.judge(PLAN, "spark1", replace(seen, addresses=(*fabric, *addresses)))
    assert found.id == "management-address"
    assert where in found.observed


@pytest.mark.parametrize("network", ["10.77.0.0/16", "10.77.3.0/24", "10.77.5.77/32"])
def test_subnet_overlap_names_route_and_device_and_proposes_a_free_range(network: str) -> None:
    """Field report subnet-overlap."""
    seen = configured_network("spark1")
    seen = replace(seen, routes=(*seen.routes, RouteFact(network, "docker0")))
    (found,) = links.judge(PLAN, "spark1", seen)
    assert found.id == "subnet-overlap"
    assert f"{network} on docker0" in found.observed
    assert "base_range = " in found.fix


@pytest.mark.parametrize("network", ["0.0.0.0/0", "10.78.0.0/16", "192.168.0.0/16"])
def test_networks_beside_the_range_do_not_matter(network: str) -> None:
    seen = configured_network("spark1")
    assert links.judge(PLAN, "spark1", replace(seen, routes=(*seen.routes, RouteFact(network, "docker0")))) == ()


def test_a_route_of_the_right_destination_by_another_way_does_not_count() -> None:
    """Field report route-leaks: the kernel would send a peer's traffic out elsewhere."""
    seen = configured_network("spark1")
    wrong = tuple(
        replace(r, gateway="192.168.77.2", device="enP7s7") if r.destination.endswith("/32") else r for r in seen.routes
    )
    ends = links.ends(PLAN, "spark1", replace(seen, routes=wrong))
    assert not any(end.verified for end in ends)


def test_an_empty_host_has_no_ends_to_configure() -> None:
    nothing = NetworkFacts((LinkFact("lo", True, True, 65536),))
    assert links.changes(PLAN, "spark1", nothing, wanted=True) == ()
    assert {finding.id for finding in links.judge(PLAN, "spark1", nothing)} == {
        "cx7-functions-missing",
        "management-address",
    }
