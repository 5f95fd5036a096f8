"""A terminal of tmux with a shell in it, in which a test types as a person would and reads what is there."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.lab.shell import PATH

_PROMPT = re.compile(r"^\[(\d+)\]> ?(.*)$", re.MULTILINE)
_SIZE = (140, 50)


class Terminal:
    """`folder` for its socket; `start` is the working directory, and `environment` what the shell has besides."""

    def __init__(self, folder: Path, start: Path, environment: dict[str, str]) -> None:
        self._socket = folder / "tmux"
        self._start = start
        given = {"PATH": PATH, "TERM": "screen", "LANG": "C.UTF-8", "HOME": str(folder), "PS1": "[$?]> ", **environment}
        variables = [f"{key}={value}" for key, value in given.items()]
        self._shell = ["env", "-i", *variables, "bash", "--norc", "--noprofile"]

    def __enter__(self) -> Terminal:
        columns, lines = _SIZE
        size = ["-x", str(columns), "-y", str(lines)]
        # Without a file of the user's, who may have bound keys.
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(self._start), *self._shell)
        self._tmux("set-option", "-g", "history-limit", "20000")
        self._until(1, 10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def type(self, line: str, seconds: float = 30) -> tuple[int, str]:
        """The exit status, and what was written from the line on to the next prompt. Raises AssertionError."""
        prompts = len(_PROMPT.findall(self._screen()))
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")
        screen = self._until(prompts + 1, seconds)
        found = list(_PROMPT.finditer(screen))
        return int(found[-1][1]), screen[found[-2].end() : found[-1].start()].strip()

    def _until(self, prompts: int, seconds: float) -> str:
        end = time.monotonic() + seconds
        while True:
            screen = self._screen()
            found = _PROMPT.findall(screen)
            if len(found) >= prompts and not found[-1][1]:
                return screen
            assert time.monotonic() < end, f"no prompt after {seconds:g} s:\n{screen}"
            time.sleep(0.1)

    def _screen(self) -> str:
        """All that was ever there, with lines that were wrapped as one."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
