"""Field report peer-lost: both planes are silent, each in its own way. In a ring of four, whose opposite nodes share no
cable, so that none can be dark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ring_mesh import by_order
from sparkd.core import guard
from sparkd.core.cabling import names
from sparkd.core.model import HelloFacts, Intent, Neighbour, NetworkFacts, PeerView
from sparkd.core.snapshot import Snapshot
from tests.core.builders import NODES, NOW, bare_network, cluster_of, report, snapshot, with_peer

FOUR = (*NODES, "spark4")
UP = Intent(7, "up", "operator", "start asked for", NOW, cables=names(by_order(FOUR)))


def silent(name: str) -> Snapshot:
    """spark1's own cables are dark, it hears no hello, and of its peers one does not answer."""
    views = [PeerView(other, report(other, UP), 20.0, "no answer" if other == name else "") for other in NODES[1:]]
    cluster = cluster_of(FOUR)
    seen = bare_network("spark1", cluster)
    return snapshot("spark1", cluster=cluster, intent=UP, network=seen, hello=HelloFacts("id"), peers=tuple(views))


@pytest.mark.parametrize(("name", "lost"), [("spark2", True), ("spark3", False)])
def test_a_silent_peer_is_lost_by_the_cables_to_it_and_by_no_others(name: str, lost: bool) -> None:
    told = guard.peer_lost(silent(name))
    assert told.startswith(f"peer-lost: {name} does not answer (no answer)") if lost else told == ""


def answers(s: Snapshot) -> Snapshot:
    return with_peer(s, PeerView("spark2", report("spark2", UP), 20.0))


def was_never_heard(s: Snapshot) -> Snapshot:
    return with_peer(s, PeerView("spark2", None, None, "no answer"))


def has_said_hello(s: Snapshot) -> Snapshot:
    """Its last one counts until it is too old, also when the carrier has gone since."""
    return replace(s, hello=HelloFacts("id", (Neighbour("enp1s0f0np0", "spark2", "id-2", "enp1s0f1np1", "test"),)))


def one_link_is_lit(s: Snapshot) -> Snapshot:
    assert isinstance(s.network, NetworkFacts)
    links = [replace(x, up=True, carrier=True) if x.device == "enp1s0f0np0" else x for x in s.network.links]
    return replace(s, network=replace(s.network, links=tuple(links)))


@pytest.mark.parametrize("sign", [answers, was_never_heard, has_said_hello, one_link_is_lit])
def test_a_single_sign_of_it_is_enough(sign: Callable[[Snapshot], Snapshot]) -> None:
    assert guard.peer_lost(silent("spark2")) != ""
    assert guard.peer_lost(sign(silent("spark2"))) == ""
