"""pip, which is what downloads and unpacks wheels; and what its errors mean."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.trouble import Trouble

VARIABLES = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
)
"""Set, they would make pip look at other packages than those of the environment, or put them elsewhere."""
_MEANINGS = (
    (r"No space left on device|Errno 28", "the disk is full", "make room; what has been downloaded is kept"),
    (
        r"DO NOT MATCH THE HASHES|Expected sha256",
        "what the index has is not what the lock says",
        "an index or a proxy in between has another file under that name; nothing of it was installed",
    ),
    (
        r"Failed to establish a new connection|ame ?[rR]esolution|NewConnectionError|ConnectTimeout|ReadTimeout|"
        r"Network is unreachable|Connection refused|ProxyError|SSLError|Max retries exceeded",
        "the package index does not answer",
        "check the network and pip's settings (pip config list); what has been downloaded is kept. Without a network: "
        "--wheels DIR with the files of the lock",
    ),
    (
        r"No matching distribution found|Could not find a version",
        "no index that pip knows has it",
        "pip's settings say where it looks (pip config list): PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS",
    ),
)


@dataclass
class Pip:
    """How pip is started: `command` is an interpreter that has it. Several threads may start it at once."""

    command: tuple[str, ...]
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _ended: bool = False

    def run(self, arguments: Sequence[str], what: str) -> str:
        """To its end; returns what it printed. Raises Trouble: `what` could not be done, and why."""
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        settings = {"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        # Killed with its parent: what goes on would write into what the next start removes.
        argv = ["setpriv", "--pdeathsig", "KILL", *self.command, *arguments]
        with subprocess.Popen(
            argv, env={**kept, **settings}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            self._running.add(process)
            if self._ended:
                process.kill()
            output, errors = process.communicate()
            self._running.discard(process)
        if process.returncode != 0:
            raise failure(what, errors or output)
        return output

    def end(self) -> None:
        """End all that run, and those that begin: the operator has had enough, or one of them has failed."""
        self._ended = True
        for process in tuple(self._running):
            process.kill()


def find(python: Path, tools: Path) -> Pip:
    """pip of the interpreter, or of an environment of our own made with it. Raises Trouble if there is none."""
    if _works([str(python), "-m", "pip"]):
        return Pip((str(python), "-m", "pip"))
    own = tools / "bin/python"
    if not _works([str(own), "-m", "pip"]):
        made = subprocess.run(
            [str(python), "-m", "venv", "--clear", str(tools)], capture_output=True, check=False, text=True
        )  # fmt: skip
        if made.returncode != 0:
            raise Trouble(
                f"{python} has no pip, and makes no environment with it: {last(made.stdout + made.stderr)}",
                "apt install python3-venv",
            )
    return Pip((str(own), "-m", "pip"))


def failure(what: str, output: str) -> Trouble:
    """What pip's output means."""
    for pattern, meaning, hint in _MEANINGS:
        if re.search(pattern, output):
            return Trouble(f"{what}: {meaning}: {last(output)}", hint)
    return Trouble(f"{what}: pip failed: {last(output)}")


def last(output: str) -> str:
    """The line that says most: the last one that is marked as an error, or the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")[:400]


def _works(command: Sequence[str]) -> bool:
    try:
        return subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
