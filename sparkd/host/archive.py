"""The incidents of this host: a directory each, DIRECTORY/EPOCH, with incident.json and what was found as text."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from sparkd import wire
from sparkd.core.incidents import Incident
from sparkd.host.files import replace
from sparkd.host.worker import Worker, describe
from sparkd.ports import DoorError

_HEAD = "incident.json"
FILE_LIMIT = 64 * 1024
"""Bytes that are kept of a file: what is too long loses its middle."""


class FileArchive:
    """`days` and `mebibytes` are the limits; the newest incident stays whatever its size."""

    def __init__(self, directory: Path, days: float, mebibytes: float, deadline: float = 10.0) -> None:
        self._directory = directory
        self._age = days * 86400
        self._size = mebibytes * 1024 * 1024
        self._worker = Worker(str(directory), deadline)

    async def keep(self, incident: Incident, files: Mapping[str, str]) -> None:
        await self._worker.call(partial(self._keep, incident, files))

    async def kept(self) -> tuple[Incident, ...]:
        return await self._worker.call(self._list)

    async def files(self, epoch: int) -> Mapping[str, str]:
        return await self._worker.call(partial(self._files, epoch))

    def close(self) -> None:
        self._worker.close()

    def _keep(self, incident: Incident, files: Mapping[str, str]) -> None:
        place = self._directory / str(incident.epoch)
        try:
            place.mkdir(mode=0o750, parents=True, exist_ok=True)
            for name, text in files.items():
                replace(place / name, _cut(text.encode()), 0o640)
            # Last: a directory without it is one that was interrupted.
            replace(place / _HEAD, json.dumps(wire.encode(incident), indent=1).encode() + b"\n", 0o640)
            self._prune(place)
        except OSError as error:
            raise DoorError(f"{place} cannot be written: {describe(OSError(error.errno, error.strerror))}") from error

    def _places(self) -> list[Path]:
        """The newest epoch first."""
        if not self._directory.is_dir():
            return []
        found = [path for path in self._directory.iterdir() if path.name.isdecimal() and path.is_dir()]
        return sorted(found, key=lambda path: int(path.name), reverse=True)

    def _prune(self, newest: Path) -> None:
        size = 0
        for place in [newest, *(path for path in self._places() if path != newest)]:
            size += sum(file.stat().st_size for file in place.iterdir())
            old = time.time() - place.stat().st_mtime > self._age
            if place != newest and (old or size > self._size):
                shutil.rmtree(place)

    def _list(self) -> tuple[Incident, ...]:
        found = []
        for place in self._places():
            try:
                found.append(wire.loads(Incident, (place / _HEAD).read_bytes()))
            except (OSError, wire.WireError):  # interrupted, or of another version: no reason to hide the others
                continue
        return tuple(found)

    def _files(self, epoch: int) -> Mapping[str, str]:
        place = self._directory / str(epoch)
        if not place.is_dir():
            return {}
        names = sorted(path for path in place.iterdir() if path.suffix == ".txt")
        return {path.name: path.read_text("utf-8", errors="replace") for path in names}


def _cut(content: bytes) -> bytes:
    if len(content) <= FILE_LIMIT:
        return content
    half = FILE_LIMIT // 2
    return content[:half] + f"\n[{len(content) - 2 * half} bytes left out]\n".encode() + content[-half:]
