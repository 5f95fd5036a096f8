"""The networks between the simulated hosts: management, which loses and delays reports, and the cables."""

from __future__ import annotations

from dataclasses import replace

from ring_mesh import PORTS, Cabling, Socket
from sparkd.core.model import HelloFacts, LinkFact, NetworkFacts, Report
from tests.core.builders import hears
from tests.sim.machine import Host

ANSWER_DEADLINE = 5.0
"""How old a report may be when it arrives, in seconds: whoever asked does not wait any longer."""
Cable = frozenset[Socket]


class Networks:
    """The part of a World that is between its hosts."""

    now: float
    names: tuple[str, ...]
    hosts: dict[str, Host]
    cabling: Cabling
    cut: set[frozenset[str]]  # pairs of hosts without management network between them
    pulled: set[Cable]
    late: list[tuple[str, Report, float]]  # (receiver, report, sent at): under way

    def deliver(self, sender: str, receiver: str) -> None:
        """The last report of `sender` reaches `receiver`, if it can."""
        report = self._asked(sender, receiver)
        if report is not None:
            self._hear(receiver, report)

    def send(self, sender: str, receiver: str) -> None:
        """The same report sets out, and arrives later."""
        report = self._asked(sender, receiver)
        if report is not None:
            self.late.append((receiver, report, self.now))

    def arrive(self) -> None:
        """All that is under way arrives, unless it has taken too long, or whom it was for has died meanwhile."""
        under_way, self.late = self.late, []
        for receiver, report, sent in under_way:
            if self.now - sent <= ANSWER_DEADLINE:
                self._hear(receiver, report)

    def _asked(self, sender: str, receiver: str) -> Report | None:
        source, target = self.hosts[sender].daemon, self.hosts[receiver].daemon
        if target is None:
            return None
        if source is None or source.own is None or frozenset((sender, receiver)) in self.cut:
            target.errors[sender] = "no answer in time"
            return None
        return source.own

    def _hear(self, receiver: str, report: Report) -> None:
        daemon = self.hosts[receiver].daemon
        if daemon is None:
            return
        known = daemon.heard.get(report.node)
        daemon.errors.pop(report.node, None)
        if known is not None and known[0].instance == report.instance and known[0].sequence > report.sequence:
            report = known[0]  # overtaken: an answer all the same
        daemon.heard[report.node] = (report, self.now)

    def gossip(self) -> None:
        for sender in self.names:
            for receiver in self.names:
                if sender != receiver:
                    self.deliver(sender, receiver)

    def cables(self) -> list[Cable]:
        return [frozenset(pair) for pair in self.cabling.cables]

    def _plugged(self, name: str, cage: int) -> str:
        """The host with power that a cage is cabled to; empty if there is none."""
        here = Socket(name, cage)
        for far in self.cabling.far(here):
            if frozenset((here, far)) not in self.pulled and self.hosts[far.node].powered:
                return far.node
        return ""

    def _lit(self, host: Host) -> NetworkFacts:
        """The ports as the kernel shows them. It counts each change of a carrier."""
        cages = {port.device: port.cage for port in PORTS}

        def now(link: LinkFact) -> LinkFact:
            carrier = link.up and link.device in cages and bool(self._plugged(host.name, cages[link.device]))
            if link.device not in cages or carrier == link.carrier:
                return link
            return replace(link, carrier=carrier, carrier_changes=link.carrier_changes + 1)

        host.network = replace(host.network, links=tuple(now(link) for link in host.network.links))
        return host.network

    def _hello(self, host: Host) -> HelloFacts:
        """Hellos come from daemons, over cables that are plugged at both ends."""
        full = hears(host.name, self.cabling)
        cages = {port.device: port.cage for port in PORTS}
        heard = [n for n in full.neighbours if self._plugged(host.name, cages[n.device])]
        return replace(full, neighbours=tuple(n for n in heard if self.hosts[n.node].daemon is not None))
