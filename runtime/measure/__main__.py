"""The main process of ``sparkd-measure@EPOCH.service``; everything comes from the environment::

    SPARKD_EPOCH=7 SPARKD_CLUSTER=lab SPARKD_NODE=spark1 SPARKD_RANK=0 SPARKD_NODES=spark1,spark2,spark3
    SPARKD_MEASURE_ADDRESSES=192.168.77.1,192.168.77.2,192.168.77.3 SPARKD_MEASURE_RAILS=RAIL,RAIL,...
    SPARKD_MEASURE_KEY=HEX SPARKD_BOOT_ID=ID RUNTIME_DIRECTORY=/run/sparkd-measure

A RAIL is INDEX:DEVICE:LOCAL_IP:PEER_RANK:PEER_DEVICE:PEER_IP:HCA:GID_INDEX:WANTED. Optional: SPARKD_MEASURE_SECONDS
(1), SPARKD_MEASURE_EXPECTED_RDMA and _TCP (0 Gb/s), SPARKD_MEASURE_PATIENCE (10), SPARKD_MEASURE_PORT (20200).

What was found goes to rails.json in ``RUNTIME_DIRECTORY``, rail by rail, and to standard error. Exit status: 0 also
when rails could not be measured, 64 bad environment.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from runtime.environment import BadEnvironment
from runtime.exits import ExitCode
from runtime.log import configure, goes_to_journal, log
from runtime.measure.environment import MeasureEnvironment, read_environment
from runtime.measure.results import Result, Results
from runtime.measure.session import Session
from runtime.notify import Notifier, one_line


def main(environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Measure the rails that ``environ`` describes and return the exit status."""
    configure("", goes_to_journal(environ))
    try:
        environment = read_environment(environ)
        # systemd joins the directories of a unit with colons.
        directory = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
        if not directory:
            raise BadEnvironment(["RUNTIME_DIRECTORY: expected the directory of the results, not set"])
    except BadEnvironment as error:
        for problem in error.problems:
            log.error("%s", problem)
        return ExitCode.BAD_ENVIRONMENT
    asyncio.run(_measure(environment, Path(directory), Notifier(environ)))
    return ExitCode.OK


async def _measure(environment: MeasureEnvironment, directory: Path, notifier: Notifier) -> None:
    results = Results(directory, environment.boot_id)

    def tell(text: str) -> None:
        notifier.send(f"STATUS={one_line(text)}")

    def done(result: Result) -> None:
        log.log(logging.WARNING if result.error else logging.INFO, "%s", result)
        results.add(result)

    await Session(environment, tell, done).run()


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    # The ranks wait for this process to be gone.
    os._exit(status)
