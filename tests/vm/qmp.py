"""QEMU's machine protocol: what can be done to a machine from outside, such as pulling its cables."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.lab.shell import LabError


def command(path: Path, execute: str, *, seconds: float = 60, **arguments: object) -> Any:
    """One command to the QEMU behind the socket; what it returns. Raises LabError if it refuses or does not answer."""
    step = f"{path.parent.name}: {execute}"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            with connection.makefile("rwb") as lines:
                lines.readline()  # its greeting
                result: Any = None
                for name, with_ in (("qmp_capabilities", {}), (execute, arguments)):
                    lines.write(json.dumps({"execute": name, "arguments": with_}).encode() + b"\n")
                    lines.flush()
                    result = _answer(lines.readline, step)
                return result
    except OSError as error:
        raise LabError(f"{step}: {error}") from None


def monitor(path: Path, line: str, seconds: float = 120) -> None:
    """One line of the monitor for people, which says nothing unless it fails. Raises LabError with what it says."""
    said = str(command(path, "human-monitor-command", seconds=seconds, **{"command-line": line})).strip()
    if said:
        raise LabError(f"{path.parent.name}: {line}: {said}")


def _answer(read: Any, step: str) -> Any:
    while line := read():
        answer = json.loads(line)
        if "error" in answer:
            raise LabError(f"{step}: {answer['error']['desc']}")
        if "return" in answer:
            return answer["return"]
        # Events come in between.
    raise LabError(f"{step}: QEMU has ended")
