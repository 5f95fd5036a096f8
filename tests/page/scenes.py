"""Rings as the API would tell them: composed documents, of the wire's own types, for pictures and tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ring_mesh import plan_as_json
from sparkd import __version__, wire
from sparkd.core import findings as catalogue
from sparkd.core.model import Death, EndState, Finding
from sparkd.core.progress import Work
from sparkd.reconcile.samples import History
from tests.page.documents import (
    FIRST,
    GIB,
    NOW,
    details,
    doctor,
    ends,
    event,
    fabric,
    history,
    kept,
    ring,
    trial,
)

UNHEARD = catalogue.peer_unheard("spark1", "spark3", "no answer in time")
_LOAD = "DeepSeek-V4.1-Flash shards"


@dataclass
class Scene:
    """What each resource answers with. `trial`: to a change that is only tried."""

    ring: wire.RingStatus
    plan: dict[str, Any]
    doctor: wire.DoctorStatus
    history: History
    events: list[wire.Event] = field(default_factory=list)
    incidents: wire.Incidents = field(default_factory=lambda: wire.Incidents(()))
    details: dict[int, wire.IncidentDetails] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)


def ready(size: int = 3) -> Scene:
    planned = fabric(size)
    told = [
        event(1, 3400, "intent", "down", "epoch 8: up, by operator at 127.0.0.1 on spark1: start asked for"),
        event(2, 3399, "action", "starting", "fabric: 4 ports up, 4 MTUs set, 4 addresses added"),
        event(3, 3398, "action", "starting", "starting sparkd-rank@8.service"),
        event(4, 3390, "summary", "starting", "epoch 8 is starting: rank 0 (spark1): load 1/46, shards (and 2 more)"),
        event(5, 3050, "summary", "ready", f"epoch 8 is ready: all {size} ranks serve"),
    ]
    phases = ((30, "starting"), (330, "ready"))
    scene = Scene(ring(planned), plan_as_json(planned), doctor(planned), history(phases=phases), told)
    return replace(scene, trial=trial("stop", "epoch 9: down; 3 ranks end"))


def gated() -> Scene:
    """One cable is missing, one node is silent."""
    planned = fabric()
    dark = ("enp1s0f0np0", "enP2p1s0f0np0")
    missing = catalogue.cable_missing("spark2", 0, dark, 2, "spark3", 1)
    silent = catalogue.peer_unheard("spark1", "spark3", "spark3 has not answered for 21 s (no answer in time)")
    waits = ("spark3 has not answered for 21 s (no answer in time)", missing.sentence)
    told = ring(planned)
    ranks = tuple(replace(rank, state="down", stage=None, text="", pid=0) for rank in told.ranks)
    ranks = (*ranks[:2], replace(ranks[2], state="unknown"))
    parts = ends(told, "spark2", dark, carrier=False)
    parts = (*parts[:2], wire.FabricStatus("spark3", None, None))
    told = replace(
        told,
        phase="gated",
        summary=f"epoch 8 waits: {waits[0]} (and 1 more)",
        waits=waits,
        ranks=ranks,
        fabric=parts,
        findings=(missing, silent),
        peers=(told.peers[0], wire.PeerStatus("spark3", 21.4, "no answer in time", 8, __version__)),
        cables=(),
        rails=told.rails[:2],
        work=None,
    )
    memory = (*(replace(m, available_kib=int(112.4 * GIB)) for m in told.memory[:2]), told.memory[2])
    events = [
        event(1, 95, "intent", "down", "epoch 8: up, by operator at 127.0.0.1 on spark1: start asked for"),
        event(2, 94, "finding", "gated", f"cable-missing: {missing.sentence}. Fix: {missing.fix}"),
        event(3, 60, "summary", "gated", told.summary),
    ]
    phases = ((351, "down"), (9, "gated"))
    seen = replace(history(phases=phases), rails=())
    return Scene(
        replace(told, memory=memory),
        plan_as_json(planned),
        doctor(planned, (missing,)),
        seen,
        events,
        trial=trial("stop", "epoch 9: down"),
    )


def degraded() -> Scene:
    planned = fabric()
    told = ring(planned)
    half = ("enP2p1s0f1np1",)
    finding = catalogue.cable_missing("spark1", 1, half, 2, "spark3", 0)
    foreign = catalogue.address_foreign("spark3", "enp1s0f0np0", "169.254.7.7/16", "NetworkManager (pid 812)", "")
    told = replace(
        told,
        phase="degraded",
        summary=f"epoch 8 serves, but {finding.sentence}",
        fabric=ends(told, "spark1", half, carrier=False),
        findings=(finding, foreign),
        budget=wire.BudgetStatus(2, 3, 3600.0),
        work=Work(28.3, 2, 4),
        memory=(told.memory[0], told.memory[1], replace(told.memory[2], available_kib=int(5.1 * GIB))),
    )
    scene = ready()
    events = [*scene.events, event(6, 40, "summary", "degraded", told.summary)]
    phases = ((60, "ready"), (12, "stopping"), (30, "starting"), (254, "ready"), (4, "degraded"))
    return replace(
        scene,
        ring=told,
        doctor=doctor(planned, (finding, foreign)),
        events=events,
        history=history(phases=phases),
        incidents=kept((6, 2900.0, 1, "spark2", "the carrier of enp1s0f0np0 has changed 2 times since the start", "")),
    )


def held() -> Scene:
    planned = fabric()
    told = ring(planned)
    why = "the same end twice while coming up: rank 2 (spark3) ended: load: CUDA out of memory"
    death = Death(8, 2, "spark3", NOW - 61, True, False, "2:exit:72:load", "load: CUDA out of memory")
    told = replace(
        told,
        phase="held",
        want="down",
        epoch=9,
        summary=f"epoch 9 is held: {why}",
        reason=why,
        by="recovery",
        ranks=tuple(replace(rank, state="down", stage=None, text="", pid=0) for rank in told.ranks),
        fabric=tuple(
            replace(part, ends=tuple(EndState(end.device, True, False) for end in part.ends or ()))
            for part in told.fabric
        ),
        deaths=(replace(death, epoch=7, at=NOW - 240), death),
        budget=wire.BudgetStatus(2, 3, 3600.0),
        memory=tuple(replace(memory, available_kib=int(112.4 * GIB)) for memory in told.memory),
        work=None,
    )
    told = replace(told, findings=(catalogue.held("spark1", _intent(why)),))
    events = [
        event(1, 240, "action", "starting", "sparkd-rank@7.service has ended: stopped by sparkd", 7),
        event(2, 235, "intent", "starting", "epoch 8: up, by recovery: restart: rank 2 (spark3) ended"),
        event(3, 61, "action", "starting", "evidence of epoch 8 is kept: sparkctl incidents show 8"),
        event(4, 60, "intent", "held", f"epoch 9: down, held, by recovery: {why}", 9),
        event(5, 60, "summary", "held", told.summary, 9),
    ]
    phases = ((300, "ready"), (1, "stopping"), (30, "starting"), (2, "stopping"), (20, "starting"), (7, "held"))
    incidents = kept(
        (8, 61.0, 2, "spark3", "load: CUDA out of memory", FIRST),
        (7, 240.0, 2, "spark3", "load: CUDA out of memory", FIRST),
    )
    return Scene(
        told,
        plan_as_json(planned),
        doctor(planned),
        history(phases=phases),
        events,
        incidents,
        details(incidents, 8),
        trial("clear", "spark3 has to be heard first", (UNHEARD,)),
    )


def starting() -> Scene:
    scene = ready()
    done = (31, 12, 44)
    ranks = tuple(
        replace(rank, state="starting", stage="load", progress=wire.Progress(n, 46), text=_LOAD)
        for rank, n in zip(scene.ring.ranks, done, strict=True)
    )
    summary = f"epoch 8 is starting: rank 1 (spark2): load 12/46, {_LOAD} (and 2 more)"
    told = replace(scene.ring, phase="starting", summary=summary, waits=(summary,), ranks=ranks, work=None)
    return replace(
        scene, ring=told, events=scene.events[:-1], history=history(phases=((340, "down"), (20, "starting")))
    )


def draining() -> Scene:
    scene = ready()
    drain = wire.DrainStatus("operator at 127.0.0.1 on spark1", 600.0, 412.0, 2)
    summary = "epoch 8 drains: 2 requests on rank 0 (spark1), 412 s at most"
    told = replace(scene.ring, phase="draining", want="down", summary=summary, waits=(summary,), drain=drain)
    return replace(scene, ring=told, history=history(phases=((341, "ready"), (19, "draining"))))


def hostile() -> Scene:
    """Every text that comes from elsewhere is an attack."""
    evil = '"><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
    scene = held()
    told = scene.ring
    finding = Finding(evil, evil, "refuse", evil, evil, evil, evil)
    told = replace(
        told,
        summary=evil,
        waits=(evil, evil + "2"),
        reason=evil,
        by=evil,
        cluster=evil,
        version=evil,
        findings=(finding,),
        ranks=tuple(replace(rank, node=evil, text=evil, stage="load", state="starting") for rank in told.ranks),
        peers=tuple(replace(peer, node=evil, error=evil) for peer in told.peers),
        engine=wire.EngineStatus(evil, evil, evil),
    )
    bad = kept((8, 61.0, 2, evil, evil, evil))
    return replace(
        scene,
        ring=told,
        events=[replace(each, text=evil, kind=evil) for each in scene.events],
        incidents=bad,
        details=details(bad, 8, evil),
        doctor=wire.DoctorStatus(
            (wire.NodeChecks(evil, 1.0, (wire.CheckStatus(evil, evil, evil, evil),), ()),), (), ()
        ),
        trial=trial("clear", evil, (finding,)),
    )


def _intent(reason: str) -> Any:
    from sparkd.core.model import Intent

    return Intent(9, "down", "recovery", reason, NOW - 60, held=True)


SCENES: dict[str, Callable[[], Scene]] = {
    "ready": ready,
    "gated": gated,
    "degraded": degraded,
    "held": held,
    "starting": starting,
    "draining": draining,
    "ready-of-two": partial(ready, 2),
    "ready-of-four": partial(ready, 4),
}
