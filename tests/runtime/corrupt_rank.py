"""A launcher whose rank contributes one wrong element to the third all-reduce."""

import sys
from array import array

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode
from runtime.launch import main
from runtime.notify import Progress
from runtime.probe.engine import Probe


class CorruptProbe(Probe):
    """Like memory or a wire that flips one bit."""

    def vector(self, rank: int, operation: int, length: int) -> "array[int]":
        """The right vector, but for element 5 in operation 2."""
        values = super().vector(rank, operation, length)
        if operation == 2:
            values[5] ^= 1
        return values


def _run(environment: RankEnvironment, progress: Progress) -> ExitCode:
    return CorruptProbe(environment, progress).main()


if __name__ == "__main__":
    sys.exit(main(engines={"probe": _run}))
