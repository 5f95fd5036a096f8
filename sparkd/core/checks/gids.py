"""The RoCE v2 GID of each RDMA device's IPv4 address: NCCL connects by it, and its index moves."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, not_applicable, unknown
from sparkd.core.hardware import GidFact
from sparkd.core.model import Finding, NetworkFacts


def gid_missing(node: str, gid: GidFact) -> Finding:
    if gid.absent:
        return Finding(
            "gid-missing",
            node,
            "refuse",
            gid.hca,
            f"no RDMA device for {gid.netdev}, though other ports have theirs",
            f"{gid.hca}, with a RoCE v2 GID of {gid.wanted or 'its IPv4 address'}",
            "while no rank runs: modprobe -r mlx5_ib; modprobe mlx5_ib; or reboot the node; dmesg may say why",
        )
    table = "only link-local (fe80) GIDs" if gid.link_local else "no GID"
    met = f", and of other addresses {', '.join(gid.others)}" if gid.others else ""
    what = gid.wanted or f"an IPv4 address of {gid.netdev or 'its network device'}"
    return Finding(
        "gid-missing",
        node,
        "refuse",
        gid.hca,
        f"{table}{met} in {gid.hca}'s table",
        f"a RoCE v2 GID of {what}",
        f"set {gid.netdev or 'the network device'} down and up (ip link set), or reload mlx5_ib; see "
        f"/sys/class/infiniband/{gid.hca}/ports/1/gids",
    )


def gid_moved(node: str, before: GidFact, now: GidFact) -> Finding:
    return Finding(
        "gid-moved",
        node,
        "warn",
        now.hca,
        f"GID of {now.address} at index {now.index}",
        f"index {before.index}, as at the last start",
        "none needed before a start, which resolves GIDs anew; a serving ring has to be restarted",
    )


def common_index(gids: tuple[GidFact, ...]) -> int | None:
    """The index for NCCL_IB_GID_INDEX, or None when it is not the same everywhere and must stay unset."""
    indices = {gid.index for gid in gids}
    return indices.pop() if len(indices) == 1 else None


def check_missing(seen: Seen) -> Outcome:
    gids = seen.hardware.gids
    if gids is None:
        return unknown(seen.hardware.why("gids"))
    if not gids:
        return not_applicable("no RDMA device here")
    findings, doubts = [], []
    for gid in gids:
        if gid.index is not None:
            continue
        if gid.unsure:
            doubts.append(f"{gid.hca}'s table has an IPv4 GID that does not tell its type")
        elif not _addressed(gid, seen.network):
            # The kernel makes the GID when the address is set, which sparkd does on the way to a start.
            doubts.append(f"{gid.netdev or gid.hca} has no IPv4 address yet, so no GID can be expected")
        else:
            findings.append(gid_missing(seen.node, gid))
    told = ", ".join(f"{gid.hca} {gid.index}" for gid in gids if gid.index is not None)
    return judged(findings, told, doubts)


def _addressed(gid: GidFact, network: NetworkFacts | None) -> bool:
    """Whether the GID can be expected. Without facts of the network it is."""
    if network is None or not gid.netdev:
        return True
    own = [address.address.partition("/")[0] for address in network.addresses if address.device == gid.netdev]
    return gid.wanted in own if gid.wanted else bool(own)


def check_moved(seen: Seen) -> Outcome:
    gids = seen.hardware.gids
    if gids is None:
        return unknown(seen.hardware.why("gids"))
    if not gids:
        return not_applicable("no RDMA device here")
    if seen.gids_before is None:
        return not_applicable("nothing to compare with: GIDs have not been resolved before")
    before = {gid.hca: gid for gid in seen.gids_before if gid.index is not None}
    both = [(before[gid.hca], gid) for gid in gids if gid.index is not None and gid.hca in before]
    return judged(
        [gid_moved(seen.node, old, new) for old, new in both if old.index != new.index],
        f"{len(both)} GIDs where they were",
        [f"{gid.hca} has no GID now" for gid in gids if gid.index is None and gid.hca in before],
    )
