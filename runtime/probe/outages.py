"""Members that cannot be heard on the management network while the rails go on."""

from collections.abc import Callable, Mapping

from runtime.log import log


class Outages:
    """Keeps the words for the status, and logs each outage when it begins, after ``grace`` seconds and at its end.

    ``name(rank)`` names a member; silence of up to ``timeout`` seconds is no outage.
    """

    def __init__(self, name: Callable[[int], str], timeout: float, grace: float) -> None:
        self._name = name
        self._timeout = timeout
        self._grace = max(grace, timeout)
        self._silences: dict[int, float] = {}
        self._warned: set[int] = set()

    def look(self, silences: Mapping[int, float]) -> None:
        """Take down the seconds of silence by rank."""
        for rank, seconds in silences.items():
            if seconds <= self._timeout:
                if rank in self._silences:
                    log.info("management to %s is back", self._name(rank))
                self._warned.discard(rank)
                continue
            if rank not in self._silences:
                log.info("management to %s silent for %.0f s, the rails go on: serving", self._name(rank), seconds)
            if seconds > self._grace and rank not in self._warned:
                self._warned.add(rank)
                log.warning(
                    "management to %s silent for %.0f s: serving on, but a group that ends now cannot form again",
                    self._name(rank),
                    seconds,
                )
        self._silences = {rank: seconds for rank, seconds in silences.items() if seconds > self._timeout}

    def silent(self, rank: int) -> bool:
        """True while ``rank`` cannot be heard."""
        return rank in self._silences

    def text(self) -> str:
        """``management to rank 2 (spark3) silent for 40 s``, or an empty string."""
        members = [
            f"to {self._name(rank)} silent for {seconds:.0f} s" for rank, seconds in sorted(self._silences.items())
        ]
        return f"management {', '.join(members)}" if members else ""
