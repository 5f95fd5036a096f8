"""The environment files that the rank units read: DIRECTORY/rank-EPOCH.env, in systemd's EnvironmentFile syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from sparkd.host.files import replace
from sparkd.host.worker import Worker

_KEY = re.compile(r"[A-Z_][A-Z0-9_]*")
# systemd's parser gives quotes, backslashes and white space a meaning; nothing that a rank needs contains them.
_VALUE = re.compile(r"[!#-&(-\[\]-~]*")
# But for these two, which hold text that people write. Between single quotes systemd takes every character as it is,
# since version 246 also a backslash; only a single quote itself cannot be there.
_QUOTED = ("SPARKD_ENGINE_CONFIG", "SPARKD_ADAPTERS")
_BETWEEN_QUOTES = re.compile(r"[ -&(-~]*")


class RunFiles:
    """The files hold the key of the epoch's group, so not everyone may read them; for a unit systemd does, as root."""

    def __init__(self, directory: Path, deadline: float = 2.0) -> None:
        self._directory = directory
        self._worker = Worker("rank files", deadline)

    async def write(self, epoch: int, environment: Mapping[str, str]) -> None:
        """Raises ValueError naming the key that systemd would read differently, DoorError if it cannot be written."""
        content = render(environment).encode("ascii")
        await self._worker.call(partial(replace, self._path(epoch), content, 0o640))

    async def remove(self, epoch: int) -> None:
        await self._worker.call(partial(self._path(epoch).unlink, missing_ok=True))

    def close(self) -> None:
        self._worker.close()

    def _path(self, epoch: int) -> Path:
        return self._directory / f"rank-{epoch}.env"


def render(environment: Mapping[str, str]) -> str:
    """The file's text. Raises ValueError naming the first key or value that systemd would not read as it is."""
    for key, value in environment.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no name of an environment variable: upper case letters, digits and _")
        if not (_BETWEEN_QUOTES if key in _QUOTED else _VALUE).fullmatch(value):
            raise ValueError(f"{key}: {value!r} has a character that an environment file does not carry unchanged")
    return "".join(f"{key}={_written(key, value)}\n" for key, value in environment.items())


def _written(key: str, value: str) -> str:
    return f"'{value}'" if key in _QUOTED else value
