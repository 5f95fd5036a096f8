"""What the ports hear, and what that says of the cables: every wrong cable gets a sentence with a node and a port."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import Cabling, CablingError, Socket, by_order
from sparkd.core import cabling, links
from sparkd.core.actions import AddAddress, AddRoute
from sparkd.core.decide import decide
from sparkd.core.facts import AddressFact, HelloFacts, Neighbour, NetworkFacts
from sparkd.core.gates import own_findings, ring_findings
from sparkd.core.intent import Accepted, Refused, accept
from sparkd.core.model import Finding, Intent
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import CABLES, CLUSTER, NODES, NOW, PLAN, bare_network, hears, peer, snapshot

DOWN = Intent(6, "down", "operator", "stop asked for", NOW)


def wired(*pairs: str) -> Cabling:
    """Cables as "10-21": node 1 port 0 to node 2 port 1."""
    return Cabling(
        tuple((Socket(f"spark{pair[0]}", int(pair[1])), Socket(f"spark{pair[3]}", int(pair[4]))) for pair in pairs)
    )


def cabled(wires: Cabling, node: str = "spark1", **changed: object) -> Snapshot:
    """An idle ring whose ports hear what is at the other end of those cables."""
    peers = tuple(peer(n, DOWN, neighbours=hears(n, wires).neighbours, ends=()) for n in NODES if n != node)
    return snapshot(node, **({"intent": DOWN, "hello": hears(node, wires), "peers": peers} | changed))


def found(s: Snapshot) -> list[tuple[str, str]]:
    return [(finding.id, finding.subject) for finding in own_findings(s)]


def only(s: Snapshot) -> Finding:
    (finding,) = own_findings(s)
    return finding


@pytest.mark.parametrize("order", list(permutations(NODES)))
def test_a_triangle_in_any_direction_is_a_ring_whatever_the_ranks(order: tuple[str, ...]) -> None:
    s = cabled(by_order(order))
    assert found(s) == []
    answer = accept(s, "start", "x")
    assert isinstance(answer, Accepted)
    assert cabling.parse(answer.intent.cables) == by_order(order)
    planned = cabling.plan_of(CLUSTER, answer.intent.cables)
    for end in planned.ends_of("spark1"):
        heard = next(n for n in hears("spark1", by_order(order)).neighbours if n.device == end.device)
        assert (planned.far_end(end).node, planned.far_end(end).device) == (heard.node, heard.remote)


@given(st.permutations(NODES))
def test_cables_survive_the_wire(order: list[str]) -> None:
    assert cabling.parse(cabling.names(by_order(order))) == by_order(order)


def test_cable_same_port_names_the_cable_and_the_node_at_which_to_exchange_two() -> None:
    """Field report cable-same-port: 1.p0-2.p0 and 2.p1-3.p1; both are mended at spark2."""
    wires = wired("10-20", "21-31", "30-11")
    for node, port in (("spark1", 0), ("spark2", 0), ("spark2", 1), ("spark3", 1)):
        named = [f for f in own_findings(cabled(wires, node)) if f.subject == f"port {port}"]
        assert [f.id for f in named] == ["cable-same-port"]
        assert f"joins port {port} to port {port}" in named[0].observed
        assert named[0].fix == "at spark2, exchange the two cables"


def test_cable_same_port_with_the_third_cable_out_moves_one_end() -> None:
    finding = only(cabled(wired("10-20"), hello=hears("spark1", wired("10-20")), network=dark_port(1)))
    assert (finding.id, finding.fix) == ("cable-same-port", "at spark2, move this cable's end from port 0 to port 1")


def dark_port(cage: int) -> object:
    from tests.core.builders import configured_network

    seen = configured_network("spark1")
    links = tuple(replace(x, carrier=False, up=False) if f"f{cage}np{cage}" in x.device else x for x in seen.links)
    return replace(seen, links=links)


def test_cable_loop() -> None:
    """Field report cable-loop."""
    s = cabled(wired("10-11"))
    assert found(s) == [("cable-loop", "port 0"), ("cable-loop", "port 1")]
    assert "spark1 itself" in own_findings(s)[0].observed


def test_cable_foreign_names_what_the_stranger_says_of_itself() -> None:
    """Field report cable-foreign."""
    own = hears("spark1")
    strange = tuple(
        replace(n, ours=False, node="box", cluster="home") if "f0np0" in n.device else n for n in own.neighbours
    )
    finding = only(cabled(by_order(NODES), hello=replace(own, neighbours=strange)))
    assert (finding.id, finding.subject) == ("cable-foreign", "port 0")
    assert "box of home" in finding.observed


def test_a_port_with_carrier_on_which_nobody_is_heard() -> None:
    """Field report cable-missing: a switch, a foreign machine, or a Spark whose sparkd does not run."""
    own = hears("spark1")
    deaf = replace(own, neighbours=tuple(n for n in own.neighbours if "f0np0" not in n.device))
    finding = only(cabled(by_order(NODES), hello=deaf))
    assert (finding.id, finding.subject) == ("cable-missing", "port 0")
    assert "carrier, but nobody is heard on enp1s0f0np0, enP2p1s0f0np0" in finding.observed
    half = replace(own, neighbours=tuple(n for n in own.neighbours if n.device != "enP2p1s0f0np0"))
    told = only(cabled(by_order(NODES), hello=half)).observed
    assert told == "carrier, but nobody is heard on enP2p1s0f0np0, while its twin reaches spark2 port 1 (enp1s0f1np1)"


def test_a_port_that_has_only_just_come_up_is_given_time() -> None:
    own = hears("spark1")
    young = replace(own, neighbours=tuple(n for n in own.neighbours if "f0np0" not in n.device), settled=())
    s = cabled(by_order(NODES), hello=young)
    assert found(s) == [("cable-unheard", "port 0")]
    answer = accept(s, "start", "x")
    assert isinstance(answer, Accepted), "a start does not have to be asked for twice"
    waiting = decide(replace(s, intent=answer.intent))
    assert waiting.actions == ()
    assert any("only just come up" in wait for wait in waiting.waits)
    heard = decide(replace(s, intent=answer.intent, hello=own))
    assert (heard.intent.epoch, heard.intent.want) == (answer.intent.epoch + 1, "up")
    assert cabling.parse(heard.intent.cables) == by_order(NODES)


def test_nothing_starts_while_the_cables_are_not_known_whatever_else_is_found() -> None:
    """A warning, or a port that has only just come up, is no reason to take the default plan for the cables."""
    up = Intent(7, "up", "operator", "start asked for", NOW)
    for node in NODES:
        peers = tuple(peer(n, up, neighbours=()) for n in NODES if n != node)
        s = snapshot(node, intent=up, hello=HelloFacts(f"id-{node}"), peers=peers)
        assert decide(s).actions == ()
        assert any("only just come up" in wait for wait in decide(s).waits)
    deaf = cabled(by_order(NODES), hello=HelloFacts("id-spark1", settled=hears("spark1").settled))
    assert isinstance(accept(deaf, "start", "x"), Refused)


def test_twins_that_reach_different_nodes() -> None:
    own = hears("spark1")
    split = tuple(
        replace(n, node="spark3", node_id="id-spark3") if n.device == "enP2p1s0f0np0" else n for n in own.neighbours
    )
    finding = only(cabled(by_order(NODES), hello=replace(own, neighbours=split)))
    assert finding.id == "twins-split"
    assert "enP2p1s0f0np0 reaches spark3 port 1" in finding.observed


def test_two_machines_of_one_name_are_told_apart_by_their_ids() -> None:
    own = hears("spark1")
    double = tuple(replace(n, node="spark1", node_id="other") if "f1np1" in n.device else n for n in own.neighbours)
    assert found(cabled(by_order(NODES), hello=replace(own, neighbours=double))) == [("name-clash", "port 1")]


def test_several_ports_on_one_cable() -> None:
    own = hears("spark1")
    more = (*own.neighbours, Neighbour("enp1s0f0np0", "spark3", "id-spark3", "enp1s0f0np0"))
    finding = only(cabled(by_order(NODES), hello=replace(own, neighbours=more)))
    assert finding.id == "cable-shared"
    assert "spark2, spark3" in finding.observed


def test_a_port_without_ipv6_says_so_and_is_not_called_a_missing_cable() -> None:
    own = hears("spark1")
    heard = tuple(n for n in own.neighbours if n.device != "enp1s0f0np0")
    finding = only(cabled(by_order(NODES), hello=HelloFacts(own.node_id, heard, ("enp1s0f0np0",))))
    assert (finding.id, finding.subject) == ("ipv6-off", "enp1s0f0np0")
    assert "disable_ipv6=0" in finding.fix


def test_a_start_waits_until_every_cable_is_seen_from_both_ends() -> None:
    s = cabled(by_order(NODES))
    unheard = replace(s, peers=(peer("spark2", DOWN, neighbours=()), s.peers[1]))
    answer = accept(unheard, "start", "x")
    assert isinstance(answer, Refused)
    assert [f.id for f in answer.findings] == ["cable-ring"]
    assert ring_findings(s) == ()


def test_a_stale_plan_is_not_started_and_the_conductor_makes_a_new_one_for_the_cables_that_are_there() -> None:
    turned = by_order(("spark1", "spark3", "spark2"))
    up = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES)
    peers = tuple(peer(n, up, neighbours=hears(n, turned).neighbours) for n in ("spark2", "spark3"))
    conductor = snapshot("spark1", intent=up, hello=hears("spark1", turned), peers=peers)
    again = decide(conductor).intent
    assert (again.epoch, again.want, again.cables) == (8, "up", cabling.names(turned))
    worker = snapshot(
        "spark2",
        intent=up,
        hello=hears("spark2", turned),
        peers=tuple(peer(n, up, neighbours=hears(n, turned).neighbours) for n in ("spark1", "spark3")),
    )
    assert decide(worker).intent == up
    assert any("spark1 is to plan for the cables that are there" in wait for wait in decide(worker).waits)


def test_a_plan_is_not_changed_once_a_rank_has_been_tried() -> None:
    from tests.core.builders import attempt

    turned = by_order(("spark1", "spark3", "spark2"))
    up = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES)
    peers = tuple(peer(n, up, neighbours=hears(n, turned).neighbours, attempt=attempt(n)) for n in ("spark2", "spark3"))
    assert decide(snapshot("spark1", intent=up, hello=hears("spark1", turned), peers=peers)).intent == up


def test_cables_that_are_no_ring_of_this_cluster_fall_back_to_the_ranks() -> None:
    assert cabling.plan_of(CLUSTER, ("spark1.0~spark9.1",)) == cabling.plan_of(CLUSTER, ())
    with pytest.raises(CablingError):
        cabling.discovered(CLUSTER, {})


def claimed(node: str, third: int = 50) -> NetworkFacts:
    """As netplan might have configured it: 172.20.x.y/24, by other hands than sparkd's."""
    seen = bare_network(node)
    up = tuple(replace(link, up=True, carrier=True) for link in seen.links)
    own = tuple(
        AddressFact(
            end.device, f"172.20.{third + int(str(end.address.ip).split('.')[2])}.{end.rank + 1}/24", end.device
        )
        for end in PLAN.ends_of(node)
    )
    return replace(seen, links=up, addresses=(*seen.addresses, *own))


def adopting(**networks: NetworkFacts) -> Snapshot:
    given = {node: networks.get(node) or claimed(node) for node in NODES}
    peers = tuple(
        peer(n, DOWN, neighbours=hears(n).neighbours, addresses=links.claims(n, given[n])) for n in ("spark2", "spark3")
    )
    return snapshot("spark1", intent=DOWN, network=given["spark1"], peers=peers, policy=Policy(adopt=True))


def test_addresses_that_the_hosts_have_are_adopted_instead_of_renumbered() -> None:
    s = adopting()
    answer = accept(s, "start", "x")
    assert isinstance(answer, Accepted)
    assert len(answer.intent.addresses) == 12
    up = replace(s, intent=answer.intent)
    assert {str(end.address) for end in up.plan.ends_of("spark1")} == {
        claim.address for claim in links.claims("spark1", claimed("spark1"))
    }
    changes = [change for action in decide(up).actions for change in getattr(action, "changes", ())]
    assert not any(isinstance(change, AddAddress) for change in changes)
    assert {change.destination for change in changes if isinstance(change, AddRoute)} == {
        str(route.destination) for route in up.plan.routes_of("spark1")
    }


def test_an_address_that_cannot_be_adopted_is_refused_by_its_node_and_device() -> None:
    lost = claimed("spark1")
    lost = replace(lost, addresses=tuple(a for a in lost.addresses if a.device != "enp1s0f0np0"))
    answer = accept(adopting(spark1=lost), "start", "x")
    assert isinstance(answer, Refused)
    assert ("address-unfit", "spark1", "enp1s0f0np0") in {(f.id, f.node, f.subject) for f in answer.findings}


def test_twins_in_one_subnet_are_not_adopted() -> None:
    twins = claimed("spark1")
    twins = replace(
        twins,
        addresses=tuple(
            replace(a, address="172.20.50.9/24") if a.device == "enP2p1s0f0np0" else a for a in twins.addresses
        ),
    )
    answer = accept(adopting(spark1=twins), "start", "x")
    assert isinstance(answer, Refused)
    assert {f.id for f in answer.findings} >= {"address-unfit"}
