"""What is told of a cycle: this host's report to its peers, and the ring's status to everyone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkd import __version__, wire
from sparkd.core import checks, doctor, draining, floor, gates, links, progress, rails, recovery
from sparkd.core.decide import Decision
from sparkd.core.enginefacts import PROBE
from sparkd.core.model import CheckOutcome, Finding, Report, Unknown
from sparkd.core.ranks import RankView
from sparkd.core.snapshot import Snapshot
from sparkd.reconcile.history import History

_MEMORY_STEP = 64 * 1024  # KiB


@dataclass(frozen=True)
class Identity:
    """`instance` is new with each daemon process. `probe_port`: the TCP port that peers try."""

    instance: str
    engine: str
    engine_api: str
    probe_port: int = 0
    profile: str = ""


def report(s: Snapshot, d: Decision, identity: Identity, sequence: int) -> Report:
    boot_id = "" if isinstance(s.host, Unknown) else s.host.boot_id
    return Report(
        node=s.node,
        instance=identity.instance,
        sequence=sequence,
        boot_id=boot_id,
        version=__version__,
        wire=wire.WIRE_VERSION,
        intent=d.intent,
        attempt=d.attempt,
        units=None if isinstance(s.units, Unknown) else s.units,
        ends=None if isinstance(s.network, Unknown) else links.ends(s.plan, s.node, s.network),
        findings=d.findings,
        digests=s.digests,
        neighbours=None if isinstance(s.hello, Unknown) else s.hello.neighbours,
        addresses=() if isinstance(s.network, Unknown) else links.claims(s.node, s.network),
        checks=doctor.outcomes(doctor.examine(s)),
        hardware=doctor.shared(s.hardware),
        unknown=unknowns(s),
        memory_available_kib=0 if isinstance(s.host, Unknown) else s.host.memory_available_kib,
        memory_total_kib=0 if isinstance(s.host, Unknown) else s.host.memory_total_kib,
        memory_floor_kib=floor.limit(s),
        left=d.left,
        probe_port=identity.probe_port,
        rails=rails.valid(s),
        measuring=_measuring(s),
    )


def _measuring(s: Snapshot) -> str:
    """Never empty while the unit is alive, whatever it says."""
    if isinstance(s.rails, Unknown) or s.rails.running is None:
        return ""
    return s.rails.running.text or "about to measure its rails"


def unknowns(s: Snapshot) -> tuple[str, ...]:
    return tuple(
        fact.why for fact in (s.units, s.network, s.roce, s.host, s.hello, s.rails) if isinstance(fact, Unknown)
    )


def ring(s: Snapshot, d: Decision, identity: Identity) -> wire.RingStatus:
    cluster, drain = s.cluster, d.intent.drain
    return wire.RingStatus(
        phase=d.phase,
        want="down" if drain else d.intent.want,
        epoch=d.intent.epoch,
        summary=d.summary,
        waits=d.waits,
        ranks=tuple(_rank(view) for view in d.ranks),
        node=s.node,
        conductor=cluster.conductor.name,
        cluster=cluster.name,
        version=__version__,
        reason="stop asked for" if drain else d.intent.reason,
        by=drain.by if drain else d.intent.by,
        findings=_findings(s, d),
        peers=tuple(
            wire.PeerStatus(
                node=peer.name,
                age=None if peer.age is None else round(peer.age, 1),
                error=peer.error,
                epoch=peer.report.intent.epoch if peer.report else None,
                version=peer.report.version if peer.report else None,
            )
            for peer in s.peers
        ),
        fabric=_fabric(s),
        cables=s.cables,
        engine=_engine(s, identity),
        deaths=d.intent.deaths,
        maintenance=d.intent.maintenance if d.intent.paused else None,
        rails=tuple(_rail(rail) for rail in s.rated),
        budget=wire.BudgetStatus(len(recovery.spent(s, d.intent.deaths)), s.policy.restarts, s.policy.window),
        memory=_memory(s),
        work=next((progress.work(view.text) for view in d.ranks if view.rank == 0 and view.condition == "ready"), None),
        drain=_drain(s, d),
        serving=d.phase in ("ready", "degraded") and not any(rank.silent for rank in d.ranks),
    )


def _engine(s: Snapshot, identity: Identity) -> wire.EngineStatus:
    adapters = s.hardware.engine.adapters if s.hardware is not None and s.hardware.engine is not None else ()
    told = wire.EngineStatus(identity.engine, identity.engine_api, identity.profile, adapters=adapters)
    return told if identity.engine == PROBE else replace(told, openai=f"http://{identity.engine_api}/v1")


def _drain(s: Snapshot, d: Decision) -> wire.DrainStatus | None:
    drain = d.intent.drain
    if drain is None:
        return None
    return wire.DrainStatus(drain.by, drain.seconds, round(drain.left(s.now), 1), draining.running(s, d.ranks))


def _memory(s: Snapshot) -> tuple[wire.NodeMemory, ...]:
    told = {p.name: p.report for p in s.peers if p.report is not None and p.report.memory_total_kib}
    found = {
        name: wire.NodeMemory(name, r.memory_total_kib, _rough(r.memory_available_kib), r.memory_floor_kib)
        for name, r in told.items()
    }
    if not isinstance(s.host, Unknown):
        available = _rough(s.host.memory_available_kib)
        found[s.node] = wire.NodeMemory(s.node, s.host.memory_total_kib, available, floor.limit(s))
    return tuple(found.get(node.name) or wire.NodeMemory(node.name, None, None, None) for node in s.cluster.nodes)


def _rough(kib: int) -> int:
    """So that the status of a ring that rests is the same from one moment to the next."""
    return round(kib / _MEMORY_STEP) * _MEMORY_STEP


def _rank(view: RankView) -> wire.RankStatus:
    progress = None
    if view.done is not None and view.total is not None:
        progress = wire.Progress(view.done, view.total)
    return wire.RankStatus(view.rank, view.node, view.unit, view.condition, view.stage, progress, view.text, view.pid)


def _rail(rail: rails.Rail) -> wire.RailStatus:
    a, b = (wire.RailEnd(end.node, end.device) for end in rail.link.ends)
    return wire.RailStatus(a, b, rail.gbps, rail.method, rail.mtu_passed)


def _findings(s: Snapshot, d: Decision) -> tuple[Finding, ...]:
    theirs = [finding for peer in s.peers if peer.report is not None for finding in peer.report.findings]
    return (*d.findings, *theirs, *rails.findings(s))


def _fabric(s: Snapshot) -> tuple[wire.FabricStatus, ...]:
    states = []
    for node in s.cluster.nodes:
        if node.name == s.node:
            ends = None if isinstance(s.network, Unknown) else links.ends(s.plan, s.node, s.network)
        else:
            ends = next((p.report.ends for p in s.peers if p.name == node.name and p.report is not None), None)
        heard = tuple(s.heard[node.name]) if node.name in s.heard else None
        states.append(wire.FabricStatus(node.name, ends, heard))
    return tuple(states)


def host(s: Snapshot, own: Report) -> wire.HostStatus:
    return wire.HostStatus(
        node=s.node,
        rank=s.rank,
        version=__version__,
        host=None if isinstance(s.host, Unknown) else s.host,
        links=None if isinstance(s.network, Unknown) else s.network.links,
        roce=None if isinstance(s.roce, Unknown) else s.roce,
        report=own,
        unknown=unknowns(s),
    )


def operation(epoch: int, d: Decision, history: History) -> wire.OperationStatus | None:
    """How the operation of `epoch` stands; None for an epoch that never was."""
    now = d.intent
    if not 0 < epoch <= now.epoch:
        return None
    if epoch < now.epoch:
        return history.ended(epoch, d)
    if now.drain is not None:
        # The stop itself is an epoch of its own, by which this one will be superseded.
        return wire.OperationStatus(epoch, "down", "running", d.summary)
    done = d.phase == "ready" if now.want == "up" else d.phase == "down"
    state = "failed" if now.held else "done" if done else "running"
    return wire.OperationStatus(epoch, now.want, state, d.summary)


def doctors(s: Snapshot, d: Decision) -> wire.DoctorStatus:
    """Every node's checks, as it last told them, and what comparing the nodes says."""
    alone = {check.id: check.about for check in checks.CHECKS}
    together = {check.id: check.about for check in checks.COMPARISONS}

    def told(outcome: CheckOutcome) -> wire.CheckStatus:
        return wire.CheckStatus(outcome.id, alone.get(outcome.id, ""), outcome.verdict, outcome.why)

    own = doctor.outcomes(doctor.examine(s))
    nodes = [wire.NodeChecks(s.node, 0.0, tuple(map(told, own)) if own else None, d.findings)]
    for peer in s.peers:
        report = peer.report
        listed = tuple(map(told, report.checks)) if report is not None and report.checks is not None else None
        age = None if peer.age is None else round(peer.age, 1)
        nodes.append(wire.NodeChecks(peer.name, age, listed, report.findings if report else (), peer.error))
    together |= rails.ABOUT
    compared = (*doctor.compare(s), *rails.examine(s))
    listed_already = {finding for node in nodes for finding in node.findings}
    order = [node.name for node in s.cluster.nodes]
    return wire.DoctorStatus(
        tuple(sorted(nodes, key=lambda node: order.index(node.node))),
        tuple(wire.CheckStatus(r.id, together[r.id], r.verdict, r.why) for r in compared),
        tuple(finding for finding in gates.ring_findings(s) if finding not in listed_already),
    )
