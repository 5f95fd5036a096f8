"""The profile's smoke tests, run in a process of their own: what they import is not kept, and they cannot hang us."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from runtime.sglang.prctl import die_with_parent

MISSING = "this installation has no runtime.smoke, which the profile's smoke tests need"


@dataclass(frozen=True)
class Outcome:
    """``sentence``: what failed, or how many tests passed. ``results``: of each test, as it can be written as JSON."""

    ok: bool
    sentence: str
    results: tuple[dict[str, object], ...] = ()


class Smoke:
    """Forked off; ``output`` is readable when there is something for :meth:`read`."""

    def __init__(self, base_url: str, names: Sequence[str], model: str, timeout: float) -> None:
        self.output, inner = os.pipe()
        os.set_blocking(self.output, False)
        self.outcome: Outcome | None = None
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            _smoke(inner, base_url, names, model, timeout)
        os.close(inner)

    def read(self) -> list[str]:
        """What it reports; at its end ``outcome`` is set."""
        said: list[str] = []
        while True:
            try:
                data = os.read(self.output, 65536)
            except BlockingIOError:
                return said
            if not data:
                if self.outcome is None:
                    self.outcome = Outcome(False, "the process of the smoke tests ended without a result")
                return said
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "ok" in message:
                    results = tuple(message.get("results", ()))
                    self.outcome = Outcome(message["ok"] is True, str(message["sentence"]), results)
                else:
                    said.append(str(message["said"]))

    def close(self) -> None:
        os.close(self.output)


def _smoke(output: int, base_url: str, names: Sequence[str], model: str, timeout: float) -> NoReturn:
    """In the new process."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        outcome = run_smoke(base_url, names, model, timeout, lambda text: _tell(output, {"said": text}))
        _tell(output, {"ok": outcome.ok, "sentence": outcome.sentence, "results": outcome.results})
    except Exception as error:  # noqa: BLE001 - it is told to the launcher, which decides
        _tell(output, {"ok": False, "sentence": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _tell(output: int, message: dict[str, object]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(output, data) :]


def run_smoke(
    base_url: str, names: Sequence[str], model: str, timeout: float, report: Callable[[str], None]
) -> Outcome:
    """Run the named smoke tests; ``timeout`` in seconds is that of each of their requests."""
    try:
        from importlib import import_module

        smoke = import_module("runtime.smoke")
    except ModuleNotFoundError as error:
        return Outcome(False, MISSING if error.name == "runtime.smoke" else f"runtime.smoke: {error}")
    result = smoke.run(base_url, tuple(names), model=model, timeout=timeout, report=report)
    results = tuple(
        {"name": check.name, "ok": check.ok, "seconds": round(check.seconds, 3), "sentence": check.sentence}
        for check in result.results
    )
    failed = [f"{check.name}: {check.sentence}" for check in result.results if not check.ok]
    if result.ok and not failed:
        return Outcome(True, f"{len(result.results)} smoke tests passed", results)
    return Outcome(False, "; ".join(failed) or "a smoke test failed without a word", results)
