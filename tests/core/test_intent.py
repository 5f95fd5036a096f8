"""Who may change what the ring does: acceptance, refusal, idempotence, adoption, a conductor that lost its disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core.enginefacts import EngineFacts
from sparkd.core.hardware import HardwareFacts
from sparkd.core.intent import Accepted, Refused, accept, newest
from sparkd.core.maintenance import Maintenance
from sparkd.core.model import Intent, PeerView, RankUnit
from sparkd.core.snapshot import Snapshot
from tests.core.builders import CABLES, NODES, NOW, bare_network, peer, report, snapshot, with_peer

DOWN = Intent(6, "down", "operator", "stop asked for", NOW - 60)


def idle(**changed: object) -> Snapshot:
    return snapshot("spark1", **({"intent": DOWN} | changed))


def test_a_start_gets_the_next_epoch_and_no_history() -> None:
    answer = accept(idle(), "start", "operator at spark3")
    expected = Intent(7, "up", "operator at spark3", "start asked for", NOW, cables=CABLES, cluster="test")
    assert answer == Accepted(expected, new=True)


def test_a_start_of_an_unconfigured_fabric_is_accepted_because_sparkd_configures_it() -> None:
    assert isinstance(accept(idle(network=bare_network("spark1")), "start", "x"), Accepted)


def test_the_next_epoch_is_above_every_epoch_seen_anywhere() -> None:
    s = with_peer(idle(), peer("spark3", Intent(40, "down")))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Accepted)
    assert answer.intent.epoch == 41


@pytest.mark.parametrize("request_", ["start", "stop", "clear"])
def test_what_is_so_already_is_accepted_and_changes_nothing(request_: str) -> None:
    intent = Intent(7, "up", "x", "", NOW) if request_ == "start" else DOWN
    answer = accept(snapshot("spark1", intent=intent), request_, "x")  # type: ignore[arg-type]
    assert answer == Accepted(intent, new=False)


def test_a_start_is_refused_with_the_findings_of_every_node() -> None:
    from sparkd.core import findings

    theirs = findings.cable_missing("spark3", 1, ["enp1s0f1np1"], 2, "spark2", 0)
    warn = findings.address_foreign("spark3", "enp1s0f1np1", "1.2.3.4/24", "", "")
    s = with_peer(idle(), peer("spark3", DOWN, findings=(theirs, warn)))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.findings) == ("start-refused", (theirs,)), "a warning refuses nothing"
    assert "spark3: port 1" in answer.sentence


@pytest.mark.parametrize("view", [PeerView("spark2"), peer("spark2", DOWN, age=60.0)])
def test_a_start_is_refused_while_a_peer_is_silent(view: PeerView) -> None:
    """Field report unknown-is-a-state."""
    answer = accept(with_peer(idle(), view), "start", "x")
    assert isinstance(answer, Refused)
    assert [(f.id, f.subject) for f in answer.findings] == [("unknown-is-a-state", "peer spark2")]


def test_config_skew_refuses_with_key_and_both_values() -> None:
    """Field report config-skew."""
    s = with_peer(idle(digests={"engine": "a1", "cluster": "c"}), peer("spark3", DOWN, digests={"engine": "b2"}))
    s = with_peer(s, peer("spark2", DOWN, digests={"engine": "a1", "cluster": "c"}))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Refused)
    told = {(f.node, f.subject, f.observed, f.expected) for f in answer.findings}
    assert told == {
        ("spark3", "cluster", "missing", "c, as on spark1"),
        ("spark3", "engine", "b2", "a1, as on spark1"),
    }


def test_config_skew_tells_what_only_the_other_has_and_where_the_package_differs() -> None:
    theirs = {"cluster": "same", "rank.code": "b2", "engine.lock": "c3"}
    s = idle(digests={"cluster": "same", "rank.code": "a1"})
    s = replace(s, peers=(peer("spark2", DOWN, digests=s.digests), peer("spark3", DOWN, digests=theirs)))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Refused)
    told = {f.subject: (f.node, f.observed, f.expected, f.fix) for f in answer.findings}
    assert told == {
        "rank.code": (
            "spark3",
            "b2",
            "a1, as on spark1",
            "install the same version of the package sparkd on spark3 and spark1",
        ),
        "engine.lock": (
            "spark3",
            "c3",
            "missing, as on spark1",
            "make engine.lock equal on spark3 and spark1, then systemctl restart sparkd",
        ),
    }


def test_skew_of_a_profile_names_the_key_and_how_to_mend_it() -> None:
    """Field report config-skew."""
    own = {"engine.profile": "tiny", "engine.version": "0.5.23", "engine.arguments.x": "1", "engine.launch.y": "2"}
    own |= {"engine.installed": "0.5.23-spark-1", "engine.checkpoint": "d1"}
    theirs = own | {"engine.version": "0.5.24", "engine.arguments.x": "3"}
    theirs |= {"engine.installed": "absent", "engine.checkpoint": "d2"}
    s = replace(idle(digests=own), peers=(peer("spark2", DOWN, digests=own), peer("spark3", DOWN, digests=theirs)))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Refused)
    assert {f.subject: (f.node, f.observed, f.expected, f.fix) for f in answer.findings} == {
        "engine.version": (
            "spark3",
            "0.5.24",
            "0.5.23, as on spark1",
            "install the same version of SGLang on spark3 and spark1",
        ),
        "engine.installed": (
            "spark3",
            "absent",
            "0.5.23-spark-1, as on spark1",
            "sparkd-engine use the same version on spark3 and spark1; the next start takes it",
        ),
        "engine.checkpoint": (
            "spark3",
            "d2",
            "d1, as on spark1",
            "sparkd-engine model verify on spark3 and spark1, and fetch on the one that is wrong",
        ),
        "engine.arguments.x": (
            "spark3",
            "3",
            "1, as on spark1",
            "make the profile, and /etc/sparkd/engine.toml, equal on spark3 and spark1; the next start takes them",
        ),
    }


def test_two_profiles_differ_in_one_finding_and_not_in_each_of_their_keys() -> None:
    own = {"engine.profile": "tiny", "engine.arguments.x": "1", "engine.launch.y": "2"}
    theirs = {"engine.profile": "tiny, which cannot be used"}
    s = replace(idle(digests=own), peers=(peer("spark2", DOWN, digests=own), peer("spark3", DOWN, digests=theirs)))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Refused)
    assert [(f.subject, f.observed) for f in answer.findings] == [("engine.profile", "tiny, which cannot be used")]


def test_an_engine_of_another_version_refuses_a_start_and_one_that_cannot_be_told_does_not() -> None:
    engine = EngineFacts("sglang", "tiny", "/p", "0.5.23", version="0.5.24", strangers=None)
    answer = accept(idle(hardware=HardwareFacts(engine=engine)), "start", "x")
    assert isinstance(answer, Refused)
    assert [finding.id for finding in answer.findings] == ["engine-version"]
    unsure = replace(engine, version=None, why="no permission")
    assert isinstance(accept(idle(hardware=HardwareFacts(engine=unsure)), "start", "x"), Accepted)


def test_a_held_ring_stays_held_until_it_is_cleared() -> None:
    held = Intent(9, "down", "recovery", "gave up", NOW, held=True)
    s = snapshot("spark1", intent=held)
    refused = accept(s, "start", "x")
    assert isinstance(refused, Refused)
    assert (refused.code, refused.findings[0].fix) == ("held", "sparkctl clear")
    assert accept(s, "stop", "x") == Accepted(held, new=False)
    cleared = accept(s, "clear", "x")
    assert isinstance(cleared, Accepted)
    assert (cleared.intent.epoch, cleared.intent.want, cleared.intent.held) == (10, "down", False)


def test_a_stop_is_accepted_whatever_the_peers_do() -> None:
    for view in (PeerView("spark2"), peer("spark2", Intent(7, "up"), age=900.0)):
        s = with_peer(snapshot("spark1"), view)
        answer = accept(s, "stop", "x")
        assert isinstance(answer, Accepted)
        assert (answer.intent.want, answer.intent.epoch) == ("down", 8)


def test_everyone_adopts_the_highest_epoch_seen() -> None:
    high = Intent(9, "up")
    for node in NODES:
        other = next(name for name in NODES if name != node)
        assert newest(with_peer(snapshot(node), peer(other, high))) == high
        assert newest(with_peer(snapshot(node), peer(other, Intent(3, "down")))).epoch == 7


def test_a_conductor_that_lost_its_disk_does_not_overrule_its_peers() -> None:
    lost = snapshot("spark1", intent=Intent(), peers=(PeerView("spark2"), PeerView("spark3")))
    refused = accept(lost, "start", "x")
    assert isinstance(refused, Refused)
    running = Intent(12, "up", "operator", "start asked for", NOW)
    s = replace(lost, peers=(peer("spark2", running), PeerView("spark3")))
    assert newest(s) == running


def test_a_stop_given_to_a_conductor_without_a_memory_still_holds_once_peers_are_heard() -> None:
    lost = snapshot("spark1", intent=Intent(), peers=(PeerView("spark2"), PeerView("spark3")))
    answer = accept(lost, "stop", "x")
    assert isinstance(answer, Accepted)
    assert answer.intent.blind
    running = Intent(12, "up", "operator", "start asked for", NOW)
    s = replace(lost, intent=answer.intent, peers=(peer("spark2", running), PeerView("spark3")))
    again = newest(s)
    assert (again.epoch, again.want) == (13, "down")
    adopted = replace(s, intent=again, peers=(peer("spark2", again), peer("spark3", again)))
    assert newest(adopted) == again


def test_a_worker_never_issues_an_epoch_of_its_own() -> None:
    s = snapshot("spark2", intent=Intent(3, "down", blind=True), peers=(peer("spark1", Intent(5, "up")),))
    assert newest(s) == Intent(5, "up")


def test_the_answer_does_not_depend_on_the_order_of_the_peers() -> None:
    s = with_peer(idle(), peer("spark3", DOWN, digests={"cluster": "x"}))
    turned = replace(s, peers=tuple(reversed(s.peers)))
    one, other = accept(s, "start", "x"), accept(turned, "start", "x")
    assert isinstance(one, Refused) and isinstance(other, Refused)
    assert set(one.findings) == set(other.findings)


def test_reports_are_values() -> None:
    assert report("spark2", DOWN) == report("spark2", DOWN)


def test_a_request_is_judged_by_the_newest_intent_that_is_known() -> None:
    """A conductor that has lost its disk has heard its peers, and not adopted yet what they have."""
    up = Intent(9, "up", "operator", "start asked for", NOW - 9, cables=CABLES)
    assert accept(with_peer(idle(), peer("spark3", up)), "start", "x") == Accepted(up, new=False)
    held = Intent(9, "down", "recovery", "3 restarts were not enough", NOW - 9, held=True)
    answer = accept(with_peer(idle(), peer("spark3", held)), "start", "x")
    assert isinstance(answer, Refused)
    assert answer.code == "held"


@pytest.mark.parametrize("where", ["here", "at a peer"])
def test_the_next_epoch_is_above_every_unit_that_is_loaded(where: str) -> None:
    """All disks are lost, and a unit of an old start is still there: its number must not be given again."""
    s = idle(intent=Intent(), peers=tuple(peer(name, Intent()) for name in ("spark2", "spark3")))
    left = (RankUnit(40, "failed", "failed"),)
    s = replace(s, units=left) if where == "here" else with_peer(s, peer("spark3", Intent(), units=left))
    answer = accept(s, "start", "x")
    assert isinstance(answer, Accepted)
    assert answer.intent.epoch == 41


@pytest.mark.parametrize(
    ("mine", "echoed"),
    [
        ({"want": "down", "blind": True}, {"cluster": ""}),
        ({"want": "down", "blind": True, "clears": 2}, {"clears": 0}),
        ({"want": "up", "maintenance": Maintenance("x", "", NOW, blind=True)}, {"maintenance": None}),
    ],
)
def test_an_older_version_that_tells_an_order_without_what_it_does_not_know_is_not_ordered_it_again(
    mine: dict[str, Any], echoed: dict[str, Any]
) -> None:
    order = replace(Intent(7, "down", "x", "stop asked for", NOW, revision=1, cluster="test"), **mine)
    told = replace(order, **echoed)
    s = snapshot("spark1", intent=order, peers=(peer("spark2", told), PeerView("spark3")))
    assert newest(s) == order


def test_of_two_that_tell_the_same_order_differently_it_is_the_conductors_that_counts() -> None:
    order = Intent(7, "up", "x", "start asked for", NOW, revision=1, maintenance=Maintenance("x", "", NOW))
    older, mine = replace(order, maintenance=None), replace(order, revision=0, maintenance=None)
    peers = (peer("spark2", older), peer("spark1", order))
    assert newest(snapshot("spark3", intent=mine, peers=peers)) == order
    assert newest(snapshot("spark3", intent=mine, peers=peers[::-1])) == order
