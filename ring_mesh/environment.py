"""The environment of a rank: what NCCL and Gloo need to use the fabric, and what sparkd tells the launcher."""

import re
from collections.abc import Sequence

from ring_mesh.plan import Plan

RENDEZVOUS_PORT = 20000
API = "127.0.0.1:8888"

# systemd reads the values from an EnvironmentFile, where blanks, quotes, backslashes and # have a meaning.
_PLAIN = re.compile(r"[^\s\"'\\#$`]+")


def engine_environment(
    plan: Plan, node: str, *, hcas: Sequence[str], gid_indices: Sequence[int | None] = ()
) -> dict[str, str]:
    """NCCL's and Gloo's variables for the rank on `node`.

    hcas: the RDMA devices that exist on the node, each one a fabric device of the plan. NCCL reads NCCL_IB_HCA as a
    list of prefixes unless it starts with "=", and passes over names that match nothing without a word; so the value
    is "=" and the exact names, in the order of PORTS. Without any RDMA device (a host with virtual interfaces)
    nothing here names RoCE: NCCL_NET and all NCCL_IB_* are left out, so that neither a reader nor a check of the
    environment can take such a ring for one on RoCE; NCCL then uses sockets by itself.

    gid_indices: the index of the RoCE v2 IPv4 GID of each of `hcas`, None where it is not known. NCCL has one
    NCCL_IB_GID_INDEX for all devices, so it is set only if all are known and equal; otherwise NCCL looks for itself.

    Of a ring of four or more, opposite nodes share no cable, and NCCL's tree needs a path between them. What restricts
    NCCL to the ring, or makes that path, is not set here: until it is, NCCL fails on such a ring in tree connect.

    Raises ClusterError for an unknown node; ValueError for a device that is not of the fabric, one named twice, or
    gid_indices of another length than hcas.
    """
    interface = plan.cluster.node(node).management_interface
    # Bootstrap connects every rank to rank 0 at one address. Only the management network has such an address: from
    # three nodes on, each fabric address of rank 0 is on a cable that one of the peers does not have.
    environment = {
        "NCCL_SOCKET_IFNAME": interface,
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_NET_PLUGIN": "none",
        # One GPU per host: the transports within a host have nothing to carry and only pin memory.
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_CUMEM_ENABLE": "0",
        # Host memory is GPU memory. The default buffers pin 4.7 GiB per node, these 0.14 GiB.
        "NCCL_BUFFSIZE": "1048576",
        "NCCL_LL128_BUFFSIZE": "262144",
        "NCCL_PROTO": "^LL128",
        "NCCL_MAX_NCHANNELS": "8",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET",
    }
    return environment | _roce(plan, node, hcas, gid_indices)


def rank_environment(
    plan: Plan,
    node: str,
    epoch: int,
    *,
    engine: str,
    group_key: str,
    rendezvous_port: int = RENDEZVOUS_PORT,
    api: str = API,
) -> dict[str, str]:
    """The SPARKD_* variables of one start of the rank on `node`.

    epoch: number of the start. group_key: hexadecimal, the key with which this epoch's members authenticate.
    api: HOST:PORT where rank 0 serves. Raises ClusterError for an unknown node, and ValueError for a value that an
    EnvironmentFile cannot hold as it is.
    """
    environment = {
        "SPARKD_ENGINE": engine,
        "SPARKD_EPOCH": str(epoch),
        **_place(plan, node, rendezvous_port, api),
        "SPARKD_GROUP_KEY": group_key,
    }
    for key, value in environment.items():
        if not _PLAIN.fullmatch(value):
            raise ValueError(f"{key} is empty or has a blank, a quote or another special character")
    return environment


def planned_environment(plan: Plan, node: str) -> dict[str, str]:
    """What is known of the rank's environment before any start: with all four RDMA devices, without epoch and key."""
    hcas = [end.hca for end in plan.ends_of(node)]
    return _place(plan, node, RENDEZVOUS_PORT, API) | engine_environment(plan, node, hcas=hcas)


def _place(plan: Plan, node: str, rendezvous_port: int, api: str) -> dict[str, str]:
    own = plan.cluster.node(node)
    rails = []
    for end in plan.ends_of(node):
        far = plan.far_end(end)
        rails.append(f"{end.device}:{end.address.ip}:{far.rank}:{far.address.ip}")
    return {
        "SPARKD_CLUSTER": plan.cluster.name,
        "SPARKD_NODE": own.name,
        "SPARKD_RANK": str(own.rank),
        "SPARKD_WORLD_SIZE": str(plan.cluster.world_size),
        "SPARKD_NODES": ",".join(each.name for each in plan.cluster.nodes),
        "SPARKD_RENDEZVOUS": f"{plan.cluster.conductor.address}:{rendezvous_port}",
        "SPARKD_MANAGEMENT_ADDRESS": str(own.address),
        "SPARKD_API": api,
        "SPARKD_RAILS": ",".join(rails),
    }


def _roce(plan: Plan, node: str, hcas: Sequence[str], gid_indices: Sequence[int | None]) -> dict[str, str]:
    planned = [end.hca for end in plan.ends_of(node)]
    for hca in hcas:
        if hca not in planned:
            raise ValueError(f"{hca} is not a fabric device of {node}: the plan has {', '.join(planned)}")
    if len(set(hcas)) != len(hcas):
        raise ValueError(f"an RDMA device is named twice: {', '.join(hcas)}")
    if gid_indices and len(gid_indices) != len(hcas):
        raise ValueError(f"{len(gid_indices)} GID indices for {len(hcas)} RDMA devices")
    if not hcas:
        return {}
    prefixes = {end.address.network.prefixlen for end in plan.ends_of(node)}
    environment = {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=" + ",".join(hca for hca in planned if hca in hcas),
        # NCCL chooses the device per connection by the subnet it shares with the peer, by one length for all subnets.
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_SUBNET_PREFIX_LEN": str(prefixes.pop()),
        "NCCL_IB_MERGE_NICS": "0",
        # An image's /etc/nccl.conf may set these two to 1, which freezes the first small all-reduce. The process
        # environment wins over that file.
        "NCCL_IB_USE_INLINE": "0",
        "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS": "0",
    }
    known = set(gid_indices)
    if len(known) == 1 and None not in known:
        environment["NCCL_IB_GID_INDEX"] = str(known.pop())
    return environment
