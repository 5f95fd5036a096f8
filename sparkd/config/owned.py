"""What a profile may not set, and why: the launcher's options, sparkd's variables, and NCCL's beyond its tuning."""

from __future__ import annotations

# What each of the launcher's own options follows from. Aliases too: SGLang takes the last one that it reads.
_LAUNCHER = {
    "nnodes": "the number of [[cluster.node]]",
    "node-rank": "rank of [[cluster.node]]",
    "tp-size": "the number of [[cluster.node]]",
    "tensor-parallel-size": "the number of [[cluster.node]]",
    "dist-init-addr": "rank 0's address and [engine] rendezvous_port",
    "nccl-init-addr": "rank 0's address and [engine] rendezvous_port",
    "host": "[engine] api",
    "port": "[engine] api",
}
# SGLang reads more options from such a file, which nobody has compared or checked.
_FILES = ("config",)
# The API is on the loopback address, and the launcher asks it whether tokens flow, in plain HTTP and without a key.
# Everybody could read a key besides: SGLang prints it into its log, and it is on its command line.
_DOOR = ("api-key", "admin-api-key", "ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-keyfile-password")

# NCCL's variables that say how much and how often, not where and by which way. They may be set by name, and the
# profile's value then replaces the one that ring_mesh plans.
TUNING = frozenset(
    {
        "NCCL_ALGO",
        "NCCL_BUFFSIZE",
        "NCCL_CUMEM_ENABLE",
        "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_GRAPH_REGISTER",
        "NCCL_IB_ADAPTIVE_ROUTING",
        "NCCL_IB_AR_THRESHOLD",
        "NCCL_IB_FIFO_TC",
        "NCCL_IB_PCI_RELAXED_ORDERING",
        "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_IB_RETRY_CNT",
        "NCCL_IB_SL",
        "NCCL_IB_SPLIT_DATA_ON_QPS",
        "NCCL_IB_TC",
        "NCCL_IB_TIMEOUT",
        "NCCL_LAUNCH_MODE",
        "NCCL_LL128_BUFFSIZE",
        "NCCL_LL_BUFFSIZE",
        "NCCL_LOCAL_REGISTER",
        "NCCL_MAX_CTAS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MAX_P2P_NCHANNELS",
        "NCCL_MIN_CTAS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MIN_P2P_NCHANNELS",
        "NCCL_NCHANNELS_PER_NET_PEER",
        "NCCL_NSOCKS_PERTHREAD",
        "NCCL_NTHREADS",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_PROTO",
        "NCCL_SOCKET_NTHREADS",
        "NCCL_THREAD_THRESHOLDS",
        "NCCL_WORK_FIFO_BYTES",
    }
)

_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "INVOCATION_ID")
# torch.distributed takes the place of this rank from these when they are set.
_TORCH = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def whose_argument(name: str) -> str:
    """Why a profile may not set this option, as what is expected instead; "" if it may."""
    if name in _LAUNCHER:
        return f"no such key: sparkd gives --{name} to each rank itself, from {_LAUNCHER[name]}"
    if name in _DOOR:
        return "no such key: the API is plain HTTP on the loopback address; a proxy before it can have keys and TLS"
    owned = (*_LAUNCHER, *_FILES, *_DOOR)
    meant = next((own for own in owned if name and own.startswith(name) and own != name), "")
    if meant:
        return f"the whole name of an option: SGLang would take --{name} for --{meant}"
    if name in _FILES:
        return f"no such key: --{name} has SGLang read options that nobody has checked; write them into [arguments]"
    return ""


def whose_variable(name: str) -> str:
    """As whose_argument, for an environment variable."""
    if name.startswith("SPARKD_"):
        return "no such key: sparkd sets the variables SPARKD_* itself"
    if name in _SYSTEMD:
        return f"no such key: systemd sets {name}, by which it follows the rank"
    if name in _TORCH:
        return f"no such key: {name} would contradict the rank that sparkd gives to SGLang"
    if name.startswith("NCCL_DEBUG"):
        return f"no such key: the proof of the transport is read from what NCCL logs, so sparkd sets {name} itself"
    if name.startswith(("NCCL_", "GLOO_")) and name not in TUNING:
        return f"no such key: sparkd plans the way between the ranks; only NCCL's tuning may be set, {_some_tuning()}"
    return ""


def _some_tuning() -> str:
    return "such as NCCL_BUFFSIZE or NCCL_MAX_NCHANNELS (sparkd(8) lists it)"
