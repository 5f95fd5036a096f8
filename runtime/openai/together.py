"""Several requests at once."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run all ``jobs`` at the same time, none before each has a thread, and return what they return in their order.

    Each job has to bound its own time. If some raise, all are waited for and the first one's exception goes on.
    """
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T:
        start.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]
