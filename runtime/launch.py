"""The launcher: the main process of ``sparkd-rank@EPOCH.service``.

Usage: ``python -m runtime.launch``, everything else comes from the environment::

    SPARKD_ENGINE=probe SPARKD_EPOCH=7 SPARKD_CLUSTER=lab SPARKD_NODE=spark1 SPARKD_RANK=0 SPARKD_WORLD_SIZE=3
    SPARKD_NODES=spark1,spark2,spark3 SPARKD_RENDEZVOUS=192.168.77.1:20000 SPARKD_MANAGEMENT_ADDRESS=192.168.77.1
    SPARKD_API=127.0.0.1:8888 SPARKD_RAILS=DEVICE:LOCAL_IP:PEER_RANK:PEER_IP,... SPARKD_GROUP_KEY=HEX

Optional, in seconds: SPARKD_RENDEZVOUS_TIMEOUT (60), SPARKD_RAIL_TIMEOUT (10), SPARKD_MEASURE_SECONDS (0.2),
SPARKD_CANARY_INTERVAL (1), SPARKD_CANARY_TIMEOUT (10), SPARKD_CONTROL_GRACE (300: from then on a management network
that is silent while the rails go on is a warning; it never ends a group); and SPARKD_RAIL_PORT (20100).

SIGUSR1 has a rank that serves drain, that is, take no new requests and tell how many run; SIGUSR2 has it serve again.

With SPARKD_ENGINE=sglang, SGLang runs as a child, and SPARKD_ENGINE_CONFIG says how: the profile that the daemon has
resolved, as JSON (see :mod:`runtime.sglang.config`). Its NCCL_* and GLOO_* variables are passed on, SPARKD_* never.

Exit status: 0 told to stop, 64 bad environment or a port that is taken, 65 the engine refused its arguments or
configuration, 69 rendezvous failed, 70 a member was lost, 71 the engine's group did not form, 72 no progress while
loading, 73 it hangs, 74 a rail failed a check, 75 transport or environment are not as asked, 76 a smoke test failed,
77 the kernel killed it for memory, 1 a defect of the engine, or that it was killed otherwise. Progress goes to
``$NOTIFY_SOCKET``, the story to standard error.
"""

import logging
import os
from collections.abc import Mapping

from runtime.engines import ENGINES, Engine
from runtime.environment import BadEnvironment, RankEnvironment, read_environment
from runtime.exits import ExitCode, RankFailure
from runtime.log import configure, goes_to_journal, log
from runtime.notify import Notifier, Progress


def main(environ: Mapping[str, str] = os.environ, engines: Mapping[str, Engine] = ENGINES) -> ExitCode:
    """Run the rank that ``environ`` describes and return its exit status."""
    journal = goes_to_journal(environ)
    configure("", journal)
    progress = Progress(Notifier(environ))
    try:
        environment = _read(environ, engines)
        configure(environment.name(environment.rank), journal)
        log.info("engine %s, epoch %d of %s", environment.engine, environment.epoch, environment.cluster)
        return engines[environment.engine](environment, progress)
    except BadEnvironment as error:
        for problem in error.problems:
            log.error("%s", problem)
        progress.failed(str(error))
        return ExitCode.BAD_ENVIRONMENT
    except RankFailure as failure:
        log.error("%s", failure.sentence)
        progress.failed(failure.sentence)
        return failure.code
    except Exception as error:  # noqa: BLE001 - whatever it is, the daemon must read it
        log.exception("the engine has a defect")
        progress.failed(f"{type(error).__name__}: {error}")
        return ExitCode.INTERNAL_ERROR


def _read(environ: Mapping[str, str], engines: Mapping[str, Engine]) -> RankEnvironment:
    problems: list[str] = []
    name = environ.get("SPARKD_ENGINE")
    if name is not None and name not in engines:
        problems.append(f"SPARKD_ENGINE: expected one of {', '.join(sorted(engines))}, got {name!r}")
    environment = None
    try:
        environment = read_environment(environ)
    except BadEnvironment as error:
        problems += error.problems
    if environment is None or problems:
        raise BadEnvironment(problems)
    return environment


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    # The others of the group wait for this process to be gone, and for its memory. Taking the interpreter apart first
    # would only keep them.
    os._exit(status)
