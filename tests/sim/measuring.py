"""How the simulated hosts measure their rails: by a unit on each, which have to meet over the management network."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ring_mesh import End, Plan
from sparkd.core.actions import Measure, StopMeasuring
from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts
from tests.sim.machine import Daemon, Host

PATIENCE = 10.0
"""Seconds that a unit waits for the others."""


class Measuring:
    """`gbps`: what each host can do. `walled`: hosts that nobody can meet. `runs`: of the unit that measures."""

    def __init__(self, hosts: dict[str, Host], plan: Plan) -> None:
        self._hosts = hosts
        self._plan = plan
        self.gbps: dict[str, float] = dict.fromkeys(hosts, 98.0)
        self.walled: set[str] = set()
        self.runs = 0

    @staticmethod
    def facts(host: Host, daemon: Daemon, now: float) -> RailFacts:
        facts = daemon.trials.seen(RailFacts(tuple(host.measured.values()), host.measuring), now)
        assert isinstance(facts, RailFacts)
        return facts

    def start(self, host: Host, action: Measure, now: float) -> None:
        assert not host.alive(), "rails are never measured beside a rank"
        assert host.measuring is None
        assert host.daemon is not None
        host.daemon.trials.began()
        host.measuring, host.meant, host.since = MeasureUnit(action.epoch), action.devices, now
        self.runs += 1

    @staticmethod
    def stop(host: Host, action: StopMeasuring) -> None:
        assert host.measuring == MeasureUnit(action.epoch)
        host.measuring, host.meant = None, ()

    def go_on(self, now: float, cut: Container[frozenset[str]]) -> None:
        """What either end wants, both measure."""
        for link in self._plan.links:
            a, b = (self._hosts[end.node] for end in link.ends)
            wanted = any(end.device in self._hosts[end.node].meant for end in link.ends)
            meet = a.measuring == b.measuring and not self.walled & {a.name, b.name}
            if a.measuring is not None and wanted and meet and frozenset((a.name, b.name)) not in cut:
                for end, far in (link.ends, link.ends[::-1]):
                    host = self._hosts[end.node]
                    host.measured[end.device] = self._fact(end, far, True, now)
                    host.meant = tuple(device for device in host.meant if device != end.device)
        for host in self._hosts.values():
            late = now - host.since >= PATIENCE
            for end in self._plan.ends_of(host.name):
                if host.measuring is not None and late and end.device in host.meant:
                    host.measured[end.device] = self._fact(end, self._plan.far_end(end), False, now)
            if late or not host.meant:
                host.measuring, host.meant = None, ()

    def all(self, now: float) -> None:
        """Every rail has been measured, as after an earlier start."""
        for link in self._plan.links:
            for end, far in (link.ends, link.ends[::-1]):
                self._hosts[end.node].measured[end.device] = self._fact(end, far, True, now)

    def _fact(self, end: End, far: End, met: bool, now: float) -> RailFact:
        host = self._hosts[end.node]
        link = host.network.link(end.device)
        assert link is not None
        fact = RailFact(end.device, far.node, far.device, boot_id=host.boot_id, at=now)
        if not met:
            return replace(fact, error=f"{far.node} did not come")
        rate = min(self.gbps[end.node], self.gbps[far.node])
        return replace(fact, gbps=rate, method="rdma", mtu_passed=True, carrier_changes=link.carrier_changes)
