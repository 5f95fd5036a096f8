"""What persists: DIRECTORY/intent.json, attempt.json and boots.json, and fabric.json, the ports as before sparkd."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import TypeVar

from sparkd import wire
from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, FabricMemory, Intent
from sparkd.host.files import replace, sync_directory
from sparkd.host.worker import Worker, describe
from sparkd.ports import DoorError

T = TypeVar("T")
_VERSION = 1


class FileStore:
    """A damaged file counts as lost: it is put aside under another name and the host behaves like one that never had
    it, which is safe because a host without a past overrules nobody. `notes` says so, one sentence for each file.

    `deadline` in seconds is for a save: a disk that is being filled with a checkpoint can take long for an fsync. What
    could not be saved in time is taken back once it is on the disk after all: whoever asked was told that nothing has
    changed, and the next daemon must not find that it has.
    """

    def __init__(self, directory: Path, deadline: float = 10.0) -> None:
        self._directory = directory
        self._worker = Worker(str(directory), deadline)
        self._notes: list[str] = []
        self._saved: dict[Path, bytes | None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def load_intent(self) -> Intent:
        """Raises DoorError if the file is there but cannot be read, or is of a newer version."""
        return self._load("intent", Intent) or Intent()

    def load_attempt(self) -> Attempt | None:
        """Raises DoorError like load_intent."""
        return self._load("attempt", Attempt)

    def load_memory(self) -> FabricMemory:
        """Raises DoorError like load_intent."""
        return self._load("fabric", FabricMemory) or FabricMemory()

    def load_boots(self) -> BootMemory:
        """Raises DoorError like load_intent."""
        return self._load("boots", BootMemory) or BootMemory()

    async def save_boots(self, boots: BootMemory) -> None:
        await self._save("boots", boots)

    async def save_memory(self, memory: FabricMemory) -> None:
        await self._save("fabric", memory)

    async def save_intent(self, intent: Intent) -> None:
        await self._save("intent", intent)

    async def save_attempt(self, attempt: Attempt) -> None:
        await self._save("attempt", attempt)

    def close(self) -> None:
        self._worker.close()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    async def _save(self, name: str, value: Intent | Attempt | FabricMemory | BootMemory) -> None:
        text = json.dumps({"version": _VERSION, name: wire.encode(value)}, indent=1)
        late = threading.Event()
        try:
            await self._worker.call(partial(self._write, self._path(name), text.encode() + b"\n", late))
        except DoorError:
            late.set()
            raise

    def _write(self, path: Path, content: bytes, late: threading.Event) -> None:
        try:
            before = self._saved[path] if path in self._saved else _content(path)
            replace(path, content, 0o640)
            if late.is_set() and before is not None:
                replace(path, before, 0o640)
            elif late.is_set():
                path.unlink(missing_ok=True)
            else:
                self._saved[path] = content
        except OSError as error:
            # Named by the file that is missing, not by its draft.
            raise DoorError(f"{path} cannot be saved: {describe(OSError(error.errno, error.strerror))}") from error

    def _load(self, name: str, kind: type[T]) -> T | None:
        path = self._path(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DoorError(f"{path} cannot be read: {describe(OSError(error.errno, error.strerror))}") from error
        self._saved[path] = content
        try:
            return wire.decode(kind, _payload(path, name, json.loads(content)))
        except (ValueError, RecursionError) as error:  # the latter for JSON that is nested too deeply
            self._saved[path] = None
            self._set_aside(path, str(error))
            return None

    def _set_aside(self, path: Path, reason: str) -> None:
        number = 1
        while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
            number += 1
        try:
            path.replace(aside)
            sync_directory(self._directory)
        except OSError as error:
            raise DoorError(f"{path} is damaged and cannot be put aside: {describe(error)}") from error
        self._notes.append(f"{path} was damaged ({reason}), is kept as {aside.name} and counts as lost")


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _payload(path: Path, name: str, document: object) -> object:
    if not isinstance(document, dict) or type(document.get("version")) is not int or name not in document:
        raise ValueError(f"no object with a version and the key {name!r}")
    if document["version"] > _VERSION:
        raise DoorError(
            f"{path} is of version {document['version']}, written by a newer sparkd; this one knows {_VERSION}"
        )
    return document[name]
