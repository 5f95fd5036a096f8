"""What a rank, and the unit that measures rails, find in their environment files."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ring_mesh import engine_environment, measure_environment, rank_environment
from sparkd.config import Settings
from sparkd.core.actions import Measure
from sparkd.core.cabling import plan_of
from sparkd.core.checks.gids import gid_missing
from sparkd.core.hardware import GidFact
from sparkd.core.railfacts import RailPolicy
from sparkd.host.gids import SysfsGids
from sparkd.host.procfs import ProcHost
from sparkd.ports import DoorError, EngineDoor
from sparkd.reconcile.executor import Environment, RailEnvironment, State


def environment_of_ranks(
    settings: Settings, state: State, gids: StartGids, engine: EngineDoor | None = None
) -> Environment:
    """`engine`: None for the probe. What its profile says of NCCL's tuning replaces what is planned."""

    async def environment(epoch: int, hcas: tuple[str, ...]) -> Mapping[str, str]:
        the_plan = plan_of(settings.cluster, state.intent.cables, state.intent.addresses)
        # Each epoch has a key of its own: a rank of another epoch cannot join, whatever it believes.
        key = hmac.new(settings.cluster_key, f"rank group of epoch {epoch}".encode(), hashlib.sha256).hexdigest()
        own = rank_environment(
            the_plan,
            settings.node,
            epoch,
            engine=settings.engine.name,
            group_key=key,
            rendezvous_port=settings.engine.rendezvous_port,
            api=settings.engine.api,
        )
        planned = own | engine_environment(the_plan, settings.node, hcas=hcas, gid_indices=gids.indices)
        return planned if engine is None else {**planned, **engine.environment()}

    return environment


class StartGids:
    """The GIDs of this host's RDMA devices, looked up for a start. `indices` are those of the last look."""

    def __init__(self, settings: Settings, state: State, gids: SysfsGids) -> None:
        self._settings, self._state, self._gids = settings, state, gids
        self.indices: list[int] = []

    async def look(self, hcas: tuple[str, ...]) -> Mapping[str, str]:
        """Index and address for each of `hcas`. Raises DoorError if one has none."""
        self.indices = []
        if not hcas:
            return {}
        node, intent = self._settings.node, self._state.intent
        ends = plan_of(self._settings.cluster, intent.cables, intent.addresses).ends_of(node)
        found = {gid.hca: gid for gid in await self._gids.observe({e.device: str(e.address.ip) for e in ends})}
        marks = {}
        for hca in hcas:
            gid = found.get(hca, GidFact(hca))
            if gid.index is None:
                finding = gid_missing(node, gid)
                raise DoorError(f"{finding.id}: {finding.observed}; expected {finding.expected}")
            self.indices.append(gid.index)
            marks[hca] = f"{gid.index} {gid.address}"
        return marks


def environment_of_measuring(settings: Settings, state: State, gids: StartGids, host: ProcHost) -> RailEnvironment:
    policy = settings.policy.rails or RailPolicy()

    async def environment(measure: Measure) -> Mapping[str, str]:
        the_plan = plan_of(settings.cluster, state.intent.cables, state.intent.addresses)
        label = f"measuring before epoch {measure.epoch}".encode()
        await gids.look(measure.hcas)
        return measure_environment(
            the_plan,
            settings.node,
            measure.epoch,
            devices=measure.devices,
            gid_indices=dict(zip(measure.hcas, gids.indices, strict=True)),
            key=hmac.new(settings.cluster_key, label, hashlib.sha256).hexdigest(),
            boot_id=(await host.observe()).boot_id,
            seconds=policy.seconds,
            expected_rdma=policy.min_gbps,
            expected_tcp=policy.min_tcp_gbps,
        )

    return environment
