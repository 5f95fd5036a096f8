"""The environment of the unit that measures the rails of one node before a start."""

from collections.abc import Collection, Mapping

from ring_mesh.plan import Link, Plan

MEASURE_PORT = 20200
"""TCP on the management address, and TCP and UDP on the rails' own; the next two ports too."""
PATIENCE = 10
"""Seconds for which a node waits for another one to come and measure with it."""


def measure_environment(
    plan: Plan,
    node: str,
    epoch: int,
    *,
    devices: Collection[str],
    gid_indices: Mapping[str, int],
    key: str,
    boot_id: str,
    seconds: float,
    expected_rdma: float,
    expected_tcp: float,
) -> dict[str, str]:
    """The variables of `runtime.measure` on `node`.

    devices: those whose rails are wanted; the others are measured if their far end wants it. gid_indices: by RDMA
    device, of those that can be used. key: hexadecimal, the same on all nodes. seconds: per rail and direction.
    expected_rdma, expected_tcp: Gb/s, equal on all nodes; a rail below is measured a second time. Raises ClusterError
    for an unknown node.
    """
    own = plan.cluster.node(node)
    rails = []
    for link in in_order(plan):
        for end in link.ends:
            if end.node != node:
                continue
            far = plan.far_end(end)
            roce = f"{end.hca}:{gid_indices[end.hca]}" if end.hca in gid_indices else "-:-"
            place = f"{link.index}:{end.device}:{end.address.ip}:{far.rank}:{far.device}:{far.address.ip}"
            rails.append(f"{place}:{roce}:{int(end.device in devices)}")
    return {
        "SPARKD_EPOCH": str(epoch),
        "SPARKD_CLUSTER": plan.cluster.name,
        "SPARKD_NODE": own.name,
        "SPARKD_RANK": str(own.rank),
        "SPARKD_NODES": ",".join(each.name for each in plan.cluster.nodes),
        "SPARKD_MEASURE_ADDRESSES": ",".join(str(each.address) for each in plan.cluster.nodes),
        "SPARKD_MEASURE_RAILS": ",".join(rails),
        "SPARKD_MEASURE_SECONDS": f"{seconds:g}",
        "SPARKD_MEASURE_EXPECTED_RDMA": f"{expected_rdma:g}",
        "SPARKD_MEASURE_EXPECTED_TCP": f"{expected_tcp:g}",
        "SPARKD_MEASURE_PATIENCE": str(PATIENCE),
        "SPARKD_MEASURE_PORT": str(MEASURE_PORT),
        "SPARKD_MEASURE_KEY": key,
        "SPARKD_BOOT_ID": boot_id,
    }


def in_order(plan: Plan) -> tuple[Link, ...]:
    """The links in the order in which they are measured: those of every second cable first.

    All nodes keep to it, each as far as its own links go, so that no two wait for each other crosswise. In a ring of
    four, cables that share no node are measured side by side.
    """
    cables = sorted(plan.cables, key=lambda cable: (cable.index % 2, cable.index))
    return tuple(link for cable in cables for link in cable.links)
