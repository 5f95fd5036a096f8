"""The engine's command line and environment, made of the rank's environment and the engine's configuration."""

from collections.abc import Mapping
from pathlib import Path

from runtime.environment import BadEnvironment, Endpoint, RankEnvironment
from runtime.sglang.config import VARIABLE, EngineConfig

WORKER_PORT = 8888
ADAPTERS = "SPARKD_ADAPTERS"
"""What sparkd adds to SGLang, as JSON; read by the plug-in within its processes."""
# Has only the plug-in and its description, so that nothing else of sparkd can be imported in the engine.
PLUGIN_PATH = Path(__file__).parents[2] / "plugin"
# systemd's word with the launcher. A child that spoke to the notify socket would be taken for it, and one that finds
# $JOURNAL_STREAM would write priorities into a pipe.
_LAUNCHERS = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "MAINPID",
        "NOTIFY_SOCKET",
        "PYTHONPATH",
        "SYSTEMD_EXEC_PID",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
_FABRIC = ("NCCL_", "GLOO_")


def bind_address(environment: RankEnvironment) -> Endpoint:
    """Where the engine of this rank listens: rank 0 at SPARKD_API; the others on loopback.

    The server of a rank above 0 answers 200 whatever state its engine is in: nobody else may take it for a way to ask.
    """
    if environment.rank == 0:
        if environment.api is None:
            raise BadEnvironment(["SPARKD_API: expected IPV4:PORT, not set"])
        return environment.api
    return Endpoint("127.0.0.1", environment.api.port if environment.api is not None else WORKER_PORT)


def ask_address(environment: RankEnvironment) -> Endpoint:
    """Where the launcher itself reaches what :func:`bind_address` names."""
    bound = bind_address(environment)
    return Endpoint("127.0.0.1", bound.port) if bound.host == "0.0.0.0" else bound


def command(environment: RankEnvironment, config: EngineConfig) -> tuple[str, ...]:
    """The engine's argument vector."""
    bound = bind_address(environment)
    own = {
        "--nnodes": environment.world_size,
        "--node-rank": environment.rank,
        "--tp-size": environment.world_size,
        "--dist-init-addr": environment.rendezvous,
        "--host": bound.host,
        "--port": bound.port,
    }
    pairs = [text for name, value in own.items() for text in (name, str(value))]
    return (config.python, "-m", "sglang.launch_server", *config.arguments, *pairs)


def asked(environ: Mapping[str, str], config: EngineConfig) -> dict[str, str]:
    """The variables that every engine process has to have: the plan's for NCCL and Gloo, and the profile's.

    :raises BadEnvironment: for a variable that plan and profile want to be different.
    """
    planned = {name: value for name, value in environ.items() if name.startswith(_FABRIC)}
    problems = [
        f"{VARIABLE}: environment.{name}: {value!r}, but the plan of the fabric has {planned[name]!r}; "
        "take it out of the profile"
        for name, value in config.environment.items()
        if planned.get(name, value) != value
    ]
    if problems:
        raise BadEnvironment(problems)
    wanted = {**planned, **config.environment}
    if config.launch.transport == "ib":
        # An image's nccl.conf may set these two to 1, which freezes the first small all-reduce. The process
        # environment wins over that file.
        wanted.setdefault("NCCL_IB_USE_INLINE", "0")
        wanted.setdefault("NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", "0")
    # An empty list of SGLang's means every plug-in that is installed.
    wanted.setdefault("SGLANG_PLUGINS", ",".join(config.launch.plugins) or "-")
    if environ.get(ADAPTERS):
        wanted |= {ADAPTERS: environ[ADAPTERS], "PYTHONPATH": str(PLUGIN_PATH)}
    return wanted


def engine_environ(environ: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The engine's whole environment, with all that is ``wanted``. What the rank itself has of SPARKD_*, where the
    group's key is, does not reach it.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("SPARKD_") and name not in _LAUNCHERS}
    defaults = {
        # What is said into a pipe would otherwise come in pieces of 8 KiB.
        "PYTHONUNBUFFERED": "1",
        # SIGABRT then makes a process print the stacks of its threads.
        "PYTHONFAULTHANDLER": "1",
        # setproctitle writes over the memory that /proc/PID/environ shows, unless told not to.
        "SPT_NOENV": "1",
    }
    return {**kept, **defaults, **wanted}
