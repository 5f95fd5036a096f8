"""The steps of one host towards its part of an epoch: stop what is stale, mend the fabric, pass the gates, start."""

from __future__ import annotations

from dataclasses import replace

from ring_mesh import FABRIC_DEVICES
from sparkd.core import free, gates, links, measuring, rails, recovery, settle
from sparkd.core.actions import (
    Action,
    ApplyFabric,
    ForgetRank,
    Measure,
    Record,
    Remember,
    StartRank,
    StopMeasuring,
    StopRank,
)
from sparkd.core.checks import pci
from sparkd.core.model import Attempt, FabricMemory, NetworkFacts, RankUnit, RoceFact, Unknown
from sparkd.core.railfacts import MeasureUnit
from sparkd.core.snapshot import Snapshot


def clean(s: Snapshot) -> tuple[Action, ...]:
    """Stop ranks that must not be, and forget dead ones of other epochs.

    A host that knows of no intent has lost its disk, or is new: what its ranks are for is for the peers to say.
    """
    if isinstance(s.units, Unknown) or (s.intent.epoch == 0 and any(peer.report is None for peer in s.peers)):
        return ()
    actions: list[Action] = []
    for unit in s.units:
        why = _must_stop(s, unit)
        if why and unit.active != "deactivating" and unit.job != "stop":
            actions += _stop(s, unit, why)
        elif not unit.alive and unit.epoch != s.intent.epoch:
            actions.append(ForgetRank(unit.epoch))
    return tuple(actions)


def _must_stop(s: Snapshot, unit: RankUnit) -> str:
    if not unit.alive:
        return ""
    if s.intent.want == "down":
        return s.intent.reason
    if unit.epoch != s.intent.epoch:
        return f"the ring is at epoch {s.intent.epoch}"
    dead = recovery.deaths(s)
    if dead:
        return recovery.describe(dead[0])
    over = next(gates.ended(s), None)
    return f"the rank on {over[0]} has ended: {over[1]}" if over else ""


def _stop(s: Snapshot, unit: RankUnit, why: str) -> list[Action]:
    """The stop goes first: a whole group waits for it, and no disk should. Were sparkd to die in between, the end would
    look like one of the rank's own, but a later one than that which it was stopped for."""
    a = s.attempt
    mark = a is not None and a.epoch == unit.epoch and a.ended_at is None and not a.stopped and not a.incident
    record: list[Action] = [Record(_stopped(a, why))] if mark and a is not None else []
    return [StopRank(unit.epoch, why), *record]


def _stopped(a: Attempt, why: str) -> Attempt:
    return replace(a, stopped=f"stopped by sparkd: {why}")


def mend(s: Snapshot) -> tuple[Action, ...]:
    """Bring the fabric to the plan while no rank runs on it, and back to nothing of ours when the ring is down.

    Never under a running rank: the engine holds addresses and GIDs that a repair would replace. Never on a range that
    another network of this host uses: that would take its traffic. Never on ports that an operator has released. How
    the ports were is on disk before they are first changed.
    """
    if isinstance(s.network, Unknown) or isinstance(s.host, Unknown) or isinstance(s.units, Unknown):
        return ()
    if any(unit.alive for unit in s.units) or free.left(s) != ():
        return ()
    memory = s.memory
    if memory.boot_id != s.host.boot_id:
        # The boot has reset the ports, so what they were before it is of no use.
        memory = FabricMemory(s.host.boot_id, (), memory.released)
    if memory.released:
        changes = links.restore(s.network, memory.before)
        if not changes and memory.before:
            return (Remember(replace(memory, before=())),)
        return (ApplyFabric(changes),) if changes else ()
    collides = any(finding.id == "subnet-overlap" for finding in gates.own_findings(s))
    wanted = s.intent.want == "up" and not collides
    changes = links.changes(s.plan, s.node, s.network, wanted=wanted)
    if not changes:
        return ()
    if not memory.before:
        memory = replace(memory, before=links.found(s.network))
    return (ApplyFabric(changes),) if memory == s.memory else (Remember(memory), ApplyFabric(changes))


def start(s: Snapshot) -> tuple[Action, ...]:
    """Start this host's rank if the ring is to be up, it was not tried in this epoch, and every gate is open."""
    if s.intent.want == "down" or s.intent.drain or isinstance(s.host, Unknown) or isinstance(s.roce, Unknown):
        return ()
    if tried(s) or gates.waits(s):
        return ()
    attempt = Attempt(
        s.intent.epoch, s.host.boot_id, s.now, cluster=s.description, available_kib=settle.before_start(s, s.host)
    )
    if not isinstance(s.network, Unknown):
        others = tuple(f"{c.device} {c.address}" for c in links.foreign(s.plan, s.node, s.network))
        attempt = replace(attempt, flaps=_flaps(s.network), foreign=others)
    if s.hardware is not None and s.hardware.pci is not None:
        attempt = replace(attempt, pci={f.address: pci.mark(f) for f in s.hardware.pci.functions})
    return (StartRank(attempt, _hcas(s, s.roce)),)


def measure(s: Snapshot) -> tuple[Action, ...]:
    """Measure what is not measured of this host's rails once every earlier gate is open; stop what measures in vain.

    Never while a rank runs anywhere: both would suffer. A rail that could not be measured is tried again after a pause.
    """
    if isinstance(s.rails, Unknown):
        return ()
    running = s.rails.running
    if running is not None:
        why = _measures_in_vain(s, running)
        return (StopMeasuring(running.epoch, why),) if why and not running.stopping else ()
    if s.intent.want == "down" or isinstance(s.roce, Unknown) or tried(s):
        return ()
    devices = rails.wanted(s)
    if not devices or measuring.pause(s) or gates.before_measuring(s) or _any_rank(s):
        return ()
    return (Measure(s.intent.epoch, devices, _hcas(s, s.roce)),)


def _measures_in_vain(s: Snapshot, running: MeasureUnit) -> str:
    if s.intent.want == "down":
        return s.intent.reason
    if running.epoch != s.intent.epoch:
        return f"the ring is at epoch {s.intent.epoch}"
    return _any_rank(s)


def _any_rank(s: Snapshot) -> str:
    """That a rank is alive somewhere, in words; empty if none is."""
    own = () if isinstance(s.units, Unknown) else s.units
    for node, units in ((s.node, own), *((report.node, report.units or ()) for _, report in gates.fresh(s))):
        if any(unit.alive for unit in units):
            return f"a rank runs on {node}"
    return ""


def _hcas(s: Snapshot, roce: tuple[RoceFact, ...]) -> tuple[str, ...]:
    present = {fact.hca for fact in roce}
    return tuple(end.hca for end in s.plan.ends_of(s.node) if end.hca in present)


def _flaps(seen: NetworkFacts) -> dict[str, int]:
    return {link.device: link.carrier_changes for link in seen.links if link.device in FABRIC_DEVICES}


def tried(s: Snapshot) -> bool:
    """Each host starts at most one rank per epoch, whatever becomes of it."""
    return s.attempt is not None and s.attempt.epoch >= s.intent.epoch
