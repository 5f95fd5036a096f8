"""What the rank of this host has kept of its smoke tests: DIRECTORY/EPOCH.json, which runtime.sglang writes."""

from __future__ import annotations

from pathlib import Path

from sparkd import wire
from sparkd.core.smokes import SmokeRun
from sparkd.host.worker import Worker, describe
from sparkd.ports import DoorError

DIRECTORY = Path("/var/lib/sparkd-rank/smoke")
_LIMIT = 256 * 1024
_MOST = 100


class SmokeFiles:
    def __init__(self, directory: Path = DIRECTORY, deadline: float = 2.0) -> None:
        self._directory = directory
        self._worker = Worker(str(directory), deadline)

    async def read(self) -> tuple[SmokeRun, ...]:
        """The newest epoch first. One that is damaged, or of another version, hides no other."""
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> tuple[SmokeRun, ...]:
        try:
            found = [path for path in self._directory.iterdir() if path.suffix == ".json" and path.stem.isdecimal()]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise DoorError(f"{self._directory} cannot be read: {describe(error)}") from error
        runs = []
        for path in sorted(found, key=lambda path: int(path.stem), reverse=True)[:_MOST]:
            try:
                with path.open("rb") as file:
                    runs.append(wire.loads(SmokeRun, file.read(_LIMIT)))
            except (OSError, wire.WireError):
                continue
        return tuple(runs)
