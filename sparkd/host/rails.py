"""What was measured of the rails: the results that the measuring unit leaves, and the unit itself.

The results are in DIRECTORY/rails.json, which belongs to the unit's user. What sparkd forgets of them is a time in a
file of its own; both are gone with the next boot, like the measurements.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sparkd.codec import WireError, decode
from sparkd.core.model import RankUnit
from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts
from sparkd.host.files import replace
from sparkd.host.rankfiles import render
from sparkd.host.systemd import MEASURE
from sparkd.host.worker import Worker

RESULTS = Path("/run/sparkd-measure")
_VERSION = 1
_LARGEST = 65536  # bytes; four rails take less than two thousand


class Manager(Protocol):
    """What SystemdUnits does with units of either template."""

    async def observe(self, template: str) -> tuple[RankUnit, ...]: ...

    async def start(self, epoch: int, template: str) -> None: ...

    async def stop(self, epoch: int, template: str) -> None: ...


class UnitRails:
    """`run` is sparkd's own runtime directory, `results` the unit's."""

    def __init__(self, units: Manager, run: Path, results: Path = RESULTS, deadline: float = 2.0) -> None:
        self._units = units
        self._run = run
        self._results = results / "rails.json"
        self._forgotten = run / "rails-forgotten"
        self._worker = Worker("results of measuring", deadline)

    async def observe(self) -> RailFacts:
        """Results that cannot be read, or are of another version, are none: they are measured anew."""
        alive = [unit for unit in await self._units.observe(MEASURE) if unit.alive]
        # After the unit, so that one that has ended has left all it found.
        facts = await self._worker.call(partial(self._read, {unit.epoch for unit in alive}))
        return RailFacts(facts, _running(alive[-1]) if alive else None)

    async def start(self, epoch: int, environment: Mapping[str, str]) -> None:
        content = render(environment).encode("ascii")
        await self._worker.call(partial(replace, self._run / f"measure-{epoch}.env", content, 0o640))
        await self._units.start(epoch, MEASURE)

    async def stop(self, epoch: int) -> None:
        await self._units.stop(epoch, MEASURE)

    async def forget(self) -> None:
        await self._worker.call(lambda: self._forgotten.write_text(f"{time.monotonic()}\n", "ascii"))

    def close(self) -> None:
        self._worker.close()

    def _read(self, alive: set[int]) -> tuple[RailFact, ...]:
        # They hold the key of a run that is over.
        for path in self._run.glob("measure-*.env"):
            if path.name not in {f"measure-{epoch}.env" for epoch in alive}:
                path.unlink(missing_ok=True)
        since, facts = _time(self._forgotten), _facts(self._results)
        if since and all(fact.at > since for fact in facts):
            self._forgotten.unlink(missing_ok=True)  # everything has been measured anew
        return tuple(fact for fact in facts if fact.at > since)


def _running(unit: RankUnit) -> MeasureUnit:
    return MeasureUnit(unit.epoch, unit.text, unit.active == "deactivating" or unit.job == "stop")


def _time(path: Path) -> float:
    try:
        return float(path.read_text("ascii"))
    except (OSError, ValueError):
        return 0.0


def _content(path: Path) -> bytes:
    """Raises OSError. The file is the unit's user's, who could put a pipe in its place that nobody ever writes to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(_LARGEST)


def _facts(path: Path) -> tuple[RailFact, ...]:
    try:
        document: Any = json.loads(_content(path))
    except (FileNotFoundError, ValueError, RecursionError):
        return ()
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        return ()
    try:
        return decode(tuple[RailFact, ...], document.get("rails"))
    except WireError:
        return ()
