"""What the nodes keep of the past, asked for from any of them: incidents, smoke tests, journals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sparkd import wire
from sparkd.core.journal import Query
from sparkd.core.smokes import SmokeRun
from sparkd.ports import DoorError
from sparkd.reconcile.cycle import Cycle
from sparkd.reconcile.journals import Journals
from sparkd.reconcile.refusal import Refusal


async def _no_smokes() -> tuple[SmokeRun, ...]:
    """Of an engine that has none, such as the probe."""
    return ()


class Kept(Cycle):
    _read_smokes: Callable[[], Awaitable[tuple[SmokeRun, ...]]] = staticmethod(_no_smokes)

    async def incidents(self) -> wire.Incidents:
        """What every node has kept of the failures there were."""
        return await self._incidents.everywhere(self._peers)

    async def incident(self, epoch: int) -> wire.IncidentDetails:
        """Raises Refusal if no node has kept anything of it, as far as they answer."""
        found = await self._incidents.details(epoch, self._peers)
        if not any(node.incident or node.error for node in found.nodes):
            raise Refusal("no-such-incident", f"no node has kept anything of epoch {epoch}")
        return found

    async def own_incidents(self) -> wire.NodeIncidents:
        return await self._incidents.own()

    async def own_incident(self, epoch: int) -> wire.NodeIncident:
        return await self._incidents.own_details(epoch)

    def smokes_from(self, read: Callable[[], Awaitable[tuple[SmokeRun, ...]]]) -> None:
        """`read` gives what this host's rank has kept of its smoke tests. Without it there is nothing."""
        self._read_smokes = read

    async def own_smokes(self) -> wire.SmokeRuns:
        """Never raises: what cannot be read is said."""
        try:
            return wire.SmokeRuns(self.site.node, await self._read_smokes())
        except DoorError as error:
            return wire.SmokeRuns(self.site.node, (), str(error))

    async def smokes(self) -> wire.SmokeRuns:
        """What rank 0's host has kept of the smoke tests."""
        conductor = self.site.cluster.conductor.name
        if self.site.node == conductor:
            return await self.own_smokes()
        try:
            return wire.loads(wire.SmokeRuns, await self._peers.fetch(conductor, "smoke"))
        except (DoorError, wire.WireError) as error:
            return wire.SmokeRuns(conductor, (), str(error))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All, by rank."""
        return tuple(node.name for node in self.site.cluster.nodes)

    async def logs(self, query: Query, rank: int | None, cursors: Mapping[str, str]) -> bytes:
        """The journals of all nodes, or of that rank's, as the JSON of Journals. Raises Refusal."""
        if rank is not None and rank >= len(self.nodes):
            raise Refusal("bad-request", f"query.rank: {rank} is none of a ring of {len(self.nodes)}")
        only = () if rank is None else (self.nodes[rank],)
        return await self._journals().everywhere(query, self._peers, only, cursors)

    async def own_logs(self, query: Query) -> bytes:
        """This host's NodeJournal, as JSON."""
        return await self._journals().own(query)

    def _journals(self) -> Journals:
        if self.journals is None:
            raise Refusal("starting", "sparkd has only just started")
        return self.journals
