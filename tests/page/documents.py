"""The documents of which rings are composed, each of one resource of the API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from itertools import cycle
from typing import Any

from ring_mesh import FABRIC_DEVICES, Cluster, Node, Plan, by_order, plan
from ring_mesh.plan import Cable, Link
from sparkd import __version__, wire
from sparkd.core import checks
from sparkd.core.incidents import Incident
from sparkd.core.model import EndState, Finding
from sparkd.core.progress import Work
from sparkd.reconcile import samples

NOW = 1_790_000_000.0
GIB = 1024 * 1024
FIRST = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def fabric(size: int = 3) -> Plan:
    nodes = tuple(Node(f"spark{n}", n - 1, IPv4Address(f"192.168.77.{n}"), "enP7s7") for n in range(1, size + 1))
    return plan(Cluster("attic", IPv4Network("10.77.0.0/21"), nodes), by_order([node.name for node in nodes]))


def ring(planned: Plan, **changes: Any) -> wire.RingStatus:
    """A ring that serves."""
    names = [node.name for node in planned.cluster.nodes]
    ready = tuple(
        wire.RankStatus(rank, name, "sparkd-rank@8.service", "ready", "ready", None, "", 4000 + rank)
        for rank, name in enumerate(names)
    )
    ready = (replace(ready[0], text="47.0 tokens/s, 3 running, 1 queued"), *ready[1:])
    rates = (96.4, 97.1, 96.8, 95.9, 97.3, 96.6)
    plain = wire.RingStatus(
        phase="ready",
        want="up",
        epoch=8,
        summary=f"epoch 8 is ready: all {len(names)} ranks serve",
        waits=(),
        ranks=ready,
        node=names[0],
        conductor=names[0],
        cluster="attic",
        version=__version__,
        reason="start asked for",
        by="operator at 127.0.0.1 on spark1",
        findings=(),
        peers=tuple(wire.PeerStatus(name, 1.2, "", 8, __version__) for name in names[1:]),
        fabric=tuple(
            wire.FabricStatus(name, tuple(EndState(end.port.device, True, True) for end in planned.ends_of(name)), ())
            for name in names
        ),
        engine=wire.EngineStatus("sglang", "127.0.0.1:8888", "deepseek-v4.1-flash-tp3"),
        deaths=(),
        cables=tuple(map(cable_name, planned.cables)),
        rails=tuple(
            wire.RailStatus(rail_end(link, 0), rail_end(link, 1), rate, "rdma", True)
            for link, rate in zip(planned.links, cycle(rates), strict=False)
        ),
        budget=wire.BudgetStatus(0, 3, 3600.0),
        memory=tuple(
            wire.NodeMemory(name, 121 * GIB, int((14.6 - rank * 1.3) * GIB), 4 * GIB) for rank, name in enumerate(names)
        ),
        work=Work(47.0, 3, 1),
    )
    return replace(plain, **changes)


def rail_end(link: Link, which: int) -> wire.RailEnd:
    return wire.RailEnd(link.ends[which].node, link.ends[which].device)


def cable_name(cable: Cable) -> str:
    a, b = cable.links[0].ends
    return f"{a.node}.{a.port.cage}~{b.node}.{b.port.cage}"


def ends(told: wire.RingStatus, node: str, devices: Sequence[str], *, carrier: bool) -> tuple[wire.FabricStatus, ...]:
    """The fabric with some ends that are not as planned."""

    def one(end: EndState) -> EndState:
        return EndState(end.device, carrier, False) if end.device in devices else end

    return tuple(
        replace(part, ends=tuple(one(end) for end in part.ends or ())) if part.node == node else part
        for part in told.fabric
    )


def history(node: str = "spark1", *, phases: Sequence[tuple[int, str]] = ((360, "ready"),)) -> samples.History:
    """An hour. `phases`: so many samples of each, the last ones last."""
    told = [phase for count, phase in phases for _ in range(count)][-360:]
    serving = [phase in ("ready", "degraded", "draining") for phase in told]

    def wave(step: int, base: float, swing: float) -> float:
        return base + swing * math.sin(step / 17) + swing / 2 * math.sin(step / 5.3 + base)

    def busy(base: float, swing: float, idle: float | None) -> tuple[float | None, ...]:
        values = [round(wave(step, base, swing), 1) if up else idle for step, up in enumerate(serving)]
        return tuple(values)

    memory = tuple(round(wave(step, 14.6 if up else 96, 0.12) * 2**30) for step, up in enumerate(serving))
    rails = tuple(
        samples.RailHistory(device, busy(2.1e8 - 9e6 * n, 3e7, 1e3), busy(2.0e8 - 9e6 * n, 3e7, 1e3))
        for n, device in enumerate(sorted(FABRIC_DEVICES))
    )
    count = len(told)
    return samples.History(
        node=node,
        last=count,
        step=10.0,
        at=tuple(NOW - 10.0 * (count - 1 - step) for step in range(count)),
        phases=tuple(told),
        memory_total=121 * 2**30,
        memory_available=memory,
        tokens_per_second=busy(40, 6, None),
        running=busy(3, 1, None),
        queued=busy(1, 0, None),
        rails=rails,
    )


def doctor(planned: Plan, findings: Sequence[Finding] = ()) -> wire.DoctorStatus:
    def outcome(check: checks.Check, node: str) -> wire.CheckStatus:
        against = next((f for f in findings if f.id == check.id and f.node == node), None)
        if against is not None:
            return wire.CheckStatus(check.id, check.about, "fail", against.observed)
        if check.id == "gid-moved":
            return wire.CheckStatus(check.id, check.about, "not-applicable", "no rank has been started in this boot")
        if check.id == "swap-off" and node == "spark2":
            return wire.CheckStatus(check.id, check.about, "unknown", "/proc/swaps did not answer within 2 s")
        return wire.CheckStatus(check.id, check.about, "pass", "as it should be")

    nodes = tuple(
        wire.NodeChecks(
            node.name,
            1.0,
            tuple(outcome(check, node.name) for check in checks.CHECKS),
            tuple(finding for finding in findings if finding.node == node.name),
        )
        for node in planned.cluster.nodes
    )
    compared = tuple(wire.CheckStatus(c.id, c.about, "pass", "equal on all nodes") for c in checks.COMPARISONS)
    return wire.DoctorStatus(nodes, compared, ())


def event(number: int, ago: float, kind: str, phase: str, text: str, epoch: int = 8) -> wire.Event:
    return wire.Event(number, NOW - ago, "spark1", kind, epoch, phase, text)


def kept(*told: tuple[int, float, int, str, str, str]) -> wire.Incidents:
    def one(node: str) -> wire.NodeIncidents:
        return wire.NodeIncidents(
            node,
            tuple(
                Incident(
                    epoch,
                    NOW - ago,
                    root,
                    rank,
                    f"{rank}:x",
                    sentence,
                    node,
                    sentence if node == root else "stopped by sparkd",
                    first if node == root else "",
                    (),
                    True,
                )
                for epoch, ago, rank, root, sentence, first in told
            ),
        )

    roots = {root for _, _, _, root, _, _ in told}
    return wire.Incidents(tuple(one(name) for name in sorted({"spark1", "spark2", "spark3"} | roots)))


def details(incidents: wire.Incidents, epoch: int, text: str = FIRST) -> dict[int, wire.IncidentDetails]:
    nodes = tuple(
        wire.NodeIncident(
            part.node,
            next(i for i in part.incidents if i.epoch == epoch),
            {"rank.txt": text, "kernel.txt": "-- none --"},
        )
        for part in incidents.nodes
    )
    return {epoch: wire.IncidentDetails(epoch, nodes)}


def trial(request: str, summary: str, findings: Sequence[Finding] = ()) -> dict[str, Any]:
    told: dict[str, Any] = wire.encode(
        {
            "request": request,
            "accepted": not findings,
            "changes": not findings,
            "code": "start-refused" if findings else "",
            "summary": summary,
            "epoch": 8,
            "findings": tuple(findings),
        }
    )
    return told
