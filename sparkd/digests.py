"""What must be equal on all hosts before a rank starts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ring_mesh import engine_environment, plan
from sparkd import wire
from sparkd.config import Settings
from sparkd.core.railfacts import RailPolicy
from sparkd.host.sources import SourceFiles, registry

_OF_ONE_HOST = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"})


def digests(settings: Settings) -> dict[str, str]:
    """What must be equal on all hosts before a rank starts, by key of sparkd.toml; secrets by their fingerprint."""
    cluster = settings.cluster
    return {
        "cluster.name": cluster.name,
        "cluster.base_range": str(cluster.base_range),
        "cluster.node": ", ".join(f"{node.rank} {node.name} {node.address}" for node in cluster.nodes),
        "cluster.key": hashlib.sha256(b"fingerprint" + settings.cluster_key).hexdigest()[:16],
        "engine.name": settings.engine.name,
        "engine.rendezvous_port": str(settings.engine.rendezvous_port),
        "engine.api": settings.engine.api,
        "fabric.address_plan": "adopt" if settings.policy.adopt else "base",
        **_rail_digests(settings.policy.rails),
        "wire": str(wire.WIRE_VERSION),
        **_environment_in_common(settings),
    }


async def fingerprints(settings: Settings) -> dict[str, str]:
    sources = SourceFiles(registry(Path(__file__).parents[1], settings.paths.config.parent))
    try:
        return await sources.observe()
    finally:
        sources.close()


def _environment_in_common(settings: Settings) -> dict[str, str]:
    """The engine's variables that have to be equal, each under a key of its own so that a difference is told by name.

    As planned for a host with all its RDMA devices, over any cables: neither makes a difference to the others.
    """
    the_plan = plan(settings.cluster)
    hcas = [end.hca for end in the_plan.ends_of(settings.node)]
    planned = engine_environment(the_plan, settings.node, hcas=hcas)
    return {f"environment.{name}": value for name, value in planned.items() if name not in _OF_ONE_HOST}


def _rail_digests(policy: RailPolicy | None) -> dict[str, str]:
    """What is measured on one host and not on another is missing for ever."""
    if policy is None:
        return {"fabric.measure_seconds": "0"}
    return {
        "fabric.measure_seconds": f"{policy.seconds:g}",
        "fabric.rail_min_gbps": f"{policy.min_gbps:g}",
        "fabric.rail_min_tcp_gbps": f"{policy.min_tcp_gbps:g}",
        "fabric.node_slow_ratio": f"{policy.slow_ratio:g}",
    }
