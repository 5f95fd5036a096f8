"""Drift under a serving group: an incident that ends the epoch once, and is put right before the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core import recovery
from sparkd.core.actions import Adopt, ApplyFabric, Record, StopRank
from sparkd.core.decide import decide
from sparkd.core.model import AddressFact, Attempt, NetworkFacts, PeerView, RankUnit, RoceFact, Unknown
from sparkd.core.snapshot import Snapshot
from tests.core.builders import NOW, attempt, configured_network, peer, running, with_peer
from tests.core.test_decide import UP, serving

FLAPS = {link.device: 2 for link in configured_network("spark1").links}


def guarded(seen: NetworkFacts, node: str = "spark1", **changed: object) -> Snapshot:
    """Epoch 7 serves; this host's network is now as given; the ports' counters stood at 2 when it started."""
    own = replace(attempt(node, formed=True, ready=True, flaps=FLAPS), **changed)  # type: ignore[arg-type]
    return replace(serving(node), network=seen, attempt=own)


def whole(node: str = "spark1") -> NetworkFacts:
    seen = configured_network(node)
    return replace(seen, links=tuple(replace(link, carrier_changes=2) for link in seen.links))


def changed_link(seen: NetworkFacts, device: str, **values: object) -> NetworkFacts:
    return replace(
        seen,
        links=tuple(replace(x, **values) if x.device == device else x for x in seen.links),  # type: ignore[arg-type]
    )


FAULTS = {
    "mtu-wrong": changed_link(whole(), "enP2p1s0f0np0", mtu=1500),
    "carrier-flap": changed_link(whole(), "enp1s0f1np1", carrier_changes=4),
    "address-lost": replace(whole(), addresses=tuple(a for a in whole().addresses if a.device != "enp1s0f0np0")),
    "route-lost": replace(whole(), routes=tuple(r for r in whole().routes if r.destination != "10.77.2.2/32")),
    "route-lost (connected)": replace(
        whole(), routes=tuple(r for r in whole().routes if r.destination != "10.77.0.0/24")
    ),
    "cx7-functions-missing": replace(
        whole(), links=tuple(link for link in whole().links if link.device != "enp1s0f0np0")
    ),
}


def test_an_address_that_comes_up_beside_the_planned_one_is_an_incident_unless_it_was_there_at_the_start() -> None:
    """Field report address-foreign, while serving."""
    more = AddressFact("enp1s0f0np0", "172.20.0.1/24", "enp1s0f0np0")
    seen = replace(whole(), addresses=(*whole().addresses, more))
    record = decide(guarded(seen)).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident == "address-foreign: 172.20.0.1/24 has come up on enp1s0f0np0"
    assert decide(guarded(seen, foreign=("enp1s0f0np0 172.20.0.1/24",))).actions == ()


def test_a_fabric_as_it_was_at_the_start_is_no_incident() -> None:
    assert decide(guarded(whole())).actions == ()


@pytest.mark.parametrize("id_", FAULTS)
def test_an_incident_is_recorded_and_stops_this_hosts_rank(id_: str) -> None:
    """Field reports mtu-wrong, carrier-flap, address-lost, route-lost, cx7-functions-missing, while serving."""
    actions = decide(guarded(FAULTS[id_])).actions
    assert [type(action) for action in actions] == [Record, StopRank]
    record, stop = actions
    assert isinstance(record, Record) and isinstance(stop, StopRank)
    assert record.attempt.incident.startswith(f"{id_.partition(' ')[0]}: ")
    assert stop.why == f"incident on spark1: {record.attempt.incident}"


@pytest.mark.parametrize("id_", FAULTS)
def test_an_incident_is_no_incident_before_the_group_has_formed(id_: str) -> None:
    s = guarded(FAULTS[id_], formed=False, ready=False)
    s = replace(s, units=(running(text="rendezvous 1/3", active="activating"),))
    assert decide(s).actions == ()


def test_a_cable_that_is_out_is_no_incident_until_it_is_back() -> None:
    out = changed_link(whole(), "enp1s0f1np1", carrier=False, carrier_changes=3)
    assert decide(guarded(out)).actions == ()
    assert decide(guarded(out)).phase == "degraded"
    back = changed_link(whole(), "enp1s0f1np1", carrier=True, carrier_changes=4)
    assert decide(guarded(back)).actions != ()


def test_an_incident_of_a_peer_stops_this_rank_and_starts_the_next_epoch_after_the_back_off() -> None:
    hit = attempt("spark3", formed=True, ready=True, incident="route-lost: the route to 10.77.0.2 is gone")
    s = with_peer(serving(), peer("spark3", UP, units=(running(),), attempt=hit))
    assert any(isinstance(action, StopRank) for action in decide(s).actions)
    assert "incident on spark3: route-lost" in decide(s).summary
    over = replace(hit, ended_at=NOW, sentence=hit.incident)
    later = replace(with_peer(s, peer("spark3", UP, attempt=over)), now=NOW + 6)
    issued = next(action.intent for action in decide(later).actions if isinstance(action, Adopt))
    assert issued.epoch == 8
    assert issued.deaths[-1].signature == "2:incident:route-lost"
    assert issued.cables == s.cables


def test_what_was_lost_is_mended_only_when_the_rank_is_gone() -> None:
    hit = replace(attempt("spark1", formed=True), incident="route-lost: x", ended_at=NOW, sentence="route-lost: x")
    s = replace(guarded(FAULTS["route-lost"]), attempt=hit)
    for unit in (running(), RankUnit(7, "deactivating", main_pid=3)):
        assert not any(isinstance(a, ApplyFabric) for a in decide(replace(s, units=(unit,))).actions)
    assert any(isinstance(a, ApplyFabric) for a in decide(replace(s, units=())).actions)


def test_the_end_of_a_rank_that_an_incident_stopped_keeps_the_incident_as_its_cause() -> None:
    hit = attempt("spark1", formed=True, incident="mtu-wrong: the MTU of x is 1500, not 9000", flaps=FLAPS)
    s = replace(guarded(whole()), attempt=hit, units=())
    record = decide(s).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.sentence == "mtu-wrong: the MTU of x is 1500, not 9000"


def without(node: str, *, carrier: bool, error: str) -> Snapshot:
    """spark1's view of a serving ring; its ports to `node` and what that peer answers are as given."""
    from sparkd.core.facts import HelloFacts

    s = guarded(whole())
    facing = {end.device for end in s.plan.ends_of("spark1") if s.plan.far_end(end).node == node}
    seen = whole()
    for device in facing:
        seen = changed_link(seen, device, carrier=carrier, carrier_changes=2 if carrier else 3)
    assert isinstance(s.hello, HelloFacts)
    heard = tuple(n for n in s.hello.neighbours if carrier or n.node != node)
    peers = tuple(replace(p, error=error, age=6.0) if p.name == node else p for p in s.peers)
    return replace(s, network=seen, hello=replace(s.hello, neighbours=heard), peers=peers)


def test_peer_lost_when_both_planes_are_silent() -> None:
    """Field report peer-lost."""
    actions = decide(without("spark3", carrier=False, error="no answer in time")).actions
    assert [type(action) for action in actions] == [Record, StopRank]
    record = actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident.startswith("peer-lost: spark3 does not answer (no answer in time)")


@pytest.mark.parametrize(
    ("carrier", "error"), [(True, "no answer in time"), (False, "")], ids=["management alone", "the cable alone"]
)
def test_one_silent_plane_ends_nothing(carrier: bool, error: str) -> None:
    """Field report mgmt-lost-fabric-up, and its opposite."""
    assert decide(without("spark3", carrier=carrier, error=error)).actions == ()


def test_a_configuration_edited_under_a_serving_rank_is_skew_and_no_incident() -> None:
    """The fabric is still as it was when the rank was started; only sparkd.toml on this host is another."""
    digests = {"cluster": "same", "cluster.base_range": "10.78.0.0/21"}
    s = replace(guarded(FAULTS["address-lost"], cluster="cluster.base_range=10.77.0.0/21"), digests=digests)
    decision = decide(s)
    assert (decision.phase, decision.actions) == ("degraded", ())
    assert "cluster.base_range" in decision.summary


def test_whoever_changed_the_network_is_named_with_the_incident() -> None:
    seen = replace(FAULTS["route-lost"], writer="NetworkManager (pid 812)")
    record = decide(guarded(seen)).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.incident.endswith("is gone, changed by NetworkManager (pid 812)")


def test_a_silent_peer_does_not_turn_drift_into_anything_else() -> None:
    s = guarded(FAULTS["route-lost"])
    s = replace(s, peers=tuple(PeerView(p.name, p.report, 400.0) for p in s.peers))
    assert isinstance(decide(s).actions[0], Record)


def test_the_counters_at_the_start_are_kept_with_the_attempt() -> None:
    from sparkd.core.actions import StartRank
    from tests.core.builders import snapshot

    s = snapshot("spark2", network=replace(whole("spark2")))
    started: Attempt = next(a.attempt for a in decide(s).actions if isinstance(a, StartRank))
    assert started.flaps["enp1s0f0np0"] == 2


GIDS = {"rocep1s0f0": "3 10.77.0.1", "rocep1s0f1": "4 10.77.4.2"}


def with_gids(first: str | None, **changed: Any) -> Snapshot:
    """A rank started with GIDS; these are where its devices have them now."""
    roce = (RoceFact("rocep1s0f0", "ACTIVE", "enp1s0f0np0", first), RoceFact("rocep1s0f1", gid=GIDS["rocep1s0f1"]))
    return replace(guarded(whole(), gids=GIDS, **changed), roce=roce)


@pytest.mark.parametrize(
    ("now", "incident"),
    [
        ("5 10.77.0.1", "gid-moved: the GID of 10.77.0.1 is at index 5 of rocep1s0f0's table, not 3 as at the start"),
        ("", "gid-missing: the GID of 10.77.0.1 is no longer in rocep1s0f0's table, where it was at index 3"),
    ],
)
def test_a_gid_that_moves_or_goes_under_a_group_is_an_incident(now: str, incident: str) -> None:
    """Field reports gid-moved and gid-missing, while serving."""
    record, stop = decide(with_gids(now)).actions
    assert isinstance(record, Record) and isinstance(stop, StopRank)
    assert record.attempt.incident == incident


def test_an_rdma_device_that_goes_under_a_group_takes_its_gid_along() -> None:
    s = with_gids(GIDS["rocep1s0f0"])
    record = decide(replace(s, roce=s.roce[1:])).actions[0]  # type: ignore[index]
    assert isinstance(record, Record)
    assert record.attempt.incident == "gid-missing: rocep1s0f0 is gone, and the GID of 10.77.0.1 with it"


def test_gids_that_stay_or_do_not_tell_are_no_incident() -> None:
    assert decide(with_gids(GIDS["rocep1s0f0"])).actions == ()
    assert decide(with_gids(None)).actions == ()
    assert decide(replace(with_gids(""), roce=Unknown("sysfs did not answer within 2 s"))).actions == ()


def test_gids_move_freely_before_the_group_has_formed() -> None:
    s = replace(
        with_gids("5 10.77.0.1", formed=False, ready=False),
        units=(running(text="rendezvous 1/3", active="activating"),),
    )
    assert decide(s).actions == ()


def test_what_befalls_the_fabric_of_a_rank_that_is_being_stopped_is_no_incident() -> None:
    """Its epoch is over already, for the reason for which it is stopped."""
    s = guarded(FAULTS["address-lost"])
    followed = recovery.follow(s)
    assert followed is not None and followed.incident.startswith("address-lost: ")
    stopping = RankUnit(7, "deactivating", "stop-sigterm", "stop", main_pid=107)
    s = replace(guarded(FAULTS["address-lost"], stopped="stopped by sparkd: stop asked for"), units=(stopping,))
    assert recovery.follow(s) is None
