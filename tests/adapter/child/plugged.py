"""SGLang's own loading of plug-ins, as in its processes: for each case of a JSON list, in a fork of its own.

A case has `process`, whose main function is named as SGLang's, and `variables`. Prints what each has ended with.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from sglang.srt.plugins import load_plugins


def run_scheduler_process() -> None:
    load_plugins()


def run_detokenizer_process() -> None:
    load_plugins()


def launch() -> None:
    load_plugins()


MAINS: dict[str, Callable[[], None]] = {
    "main": launch,
    "scheduler": run_scheduler_process,
    "detokenizer": run_detokenizer_process,
}


def run(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 2)
            os.environ.update(case["variables"])
            MAINS[case["process"]]()
            ours = sorted(name for name in sys.modules if name == "adapter" or name.startswith("adapter."))
            print("modules:", *ours, file=sys.stderr)
            print("model:", "sglang.srt.models.deepseek_v4" in sys.modules, file=sys.stderr, flush=True)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        return {"status": status, "error": output.read()}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps([run(case) for case in json.loads(sys.argv[1])]))
