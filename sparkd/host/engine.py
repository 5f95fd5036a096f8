"""The engine's Python environment: which SGLang is installed there, and what that says of its options.

Nothing of it is imported or run. The version is in the name of a directory; the options are read from the source by
sparkd.host.engineoptions, in a process that ends with its answer: the syntax trees would stay in the daemon's heap.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sparkd.host.worker import Worker
from sparkd.ports import DoorError

T = TypeVar("T")
_PLACES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")
_INFO = re.compile(r"sglang-([0-9][^-]*)\.dist-info")
_READER = Path(__file__).with_name("engineoptions.py")
_SECONDS = 8.0  # for reading the options; 0.3 s on an idle machine


@dataclass(frozen=True)
class Installed:
    """`version` is "" without an SGLang. `python`: the interpreter is there. `stamp` is another after an installation.

    `package` is the directory of the sources, None where they are not beside the description of the package.
    """

    version: str
    python: bool
    package: Path | None = None
    stamp: tuple[int, ...] = ()


class EngineFiles:
    """`root` stands for / in tests; `deadline` is in seconds."""

    def __init__(self, root: Path = Path("/"), deadline: float = 10.0, seconds: float = _SECONDS) -> None:
        self._root = root
        self._seconds = seconds
        self._worker = Worker("the engine's files", deadline)

    async def run(self, look: Callable[[], T]) -> T:
        """What `look` returns, which may call what follows. Raises DoorError."""
        return await self._worker.call(look)

    def close(self) -> None:
        self._worker.close()

    def installed(self, python: Path) -> Installed:
        """Of the environment of this interpreter, e.g. /opt/sparkd/engine/bin/python. Raises DoorError, OSError."""
        interpreter = self._root / python.relative_to("/")
        found = {
            info: match[1]
            for place in _PLACES
            for packages in sorted(interpreter.parent.parent.glob(place))
            for info in sorted(packages.iterdir())
            if (match := _INFO.fullmatch(info.name))
        }
        if len(found) > 1:
            raise DoorError(f"several SGLang are installed beside {python}: {', '.join(map(str, found))}")
        there = interpreter.exists() or interpreter.is_symlink()
        for info, version in found.items():
            package = info.parent / "sglang"
            status = info.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            return Installed(version, there, package if package.is_dir() else None, stamp)
        return Installed("", there)

    def options(self, package: Path, options: Iterable[str], variables: Iterable[str]) -> dict[str, Any]:
        """As sparkd.host.engineoptions.ask. Raises DoorError, OSError."""
        command = [sys.executable, "-I", "-S", str(_READER), str(package)]
        question = json.dumps({"options": list(options), "variables": list(variables)})
        try:
            child = subprocess.run(
                command, input=question, capture_output=True, text=True, timeout=self._seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise DoorError(f"the options in {package} could not be read within {self._seconds:g} s") from None
        try:
            answer: dict[str, Any] = json.loads(child.stdout)
        except ValueError:
            last = (child.stderr.strip().splitlines() or [f"status {child.returncode}"])[-1]
            raise DoorError(f"the options in {package} could not be read: {last}") from None
        if "error" in answer:
            raise DoorError(f"the options in {package} could not be read: {answer['error']}")
        return answer
