"""A triangle whose rank 2 hangs on wires that a test can cut."""

import contextlib
from collections.abc import Iterator

from tests.runtime.proxy import Wire
from tests.runtime.triangle import Ranks


@contextlib.contextmanager
def wired(ranks: Ranks) -> Iterator[list[Wire]]:
    """Start the group, wait until it is ready and yield the wires of rank 2's four rails.

    The first leads to rank 1 in PCI domain 0.
    """
    # The highest rank only connects, so another port at it alone leads to the wires.
    ranks[2].environ["SPARKD_RAIL_PORT"] = "20200"
    ends = [(5, 6), (7, 8), (10, 9), (12, 11)]
    with contextlib.ExitStack() as stack:
        wires = [
            stack.enter_context(Wire(f"{ranks.net}.{low}", f"{ranks.net}.{high}", 20200, 20100)) for low, high in ends
        ]
        ranks.start()
        ranks.until_ready()
        yield wires


@contextlib.contextmanager
def managed(ranks: Ranks) -> Iterator[Wire]:
    """The wire of rank 2's management network; the group is not started yet."""
    ranks[2].environ["SPARKD_RENDEZVOUS"] = f"{ranks.net}.100:20001"
    with Wire(f"{ranks.net}.100", f"{ranks.net}.102", 20001, 20000) as wire:
        yield wire
