"""The engines a rank can run, by the name in ``SPARKD_ENGINE``."""

from collections.abc import Callable, Mapping

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode
from runtime.notify import Progress

Engine = Callable[[RankEnvironment, Progress], ExitCode]
"""Runs until told to stop by SIGTERM and returns the exit status.

:raises RankFailure: with the first error.
"""


def _probe(environment: RankEnvironment, progress: Progress) -> ExitCode:
    # Imported when chosen: an engine that is a process of its own must not pay for this one's memory.
    from runtime.probe.engine import run_probe

    return run_probe(environment, progress)


def _sglang(environment: RankEnvironment, progress: Progress) -> ExitCode:
    from runtime.sglang.engine import run_sglang

    return run_sglang(environment, progress)


ENGINES: Mapping[str, Engine] = {"probe": _probe, "sglang": _sglang}
