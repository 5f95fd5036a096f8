"""The entry point in SGLang's plug-in group: installs the adapters of SPARKD_ADAPTERS, or ends the process.

SPARKD_ADAPTERS is a JSON object of options by adapter. In each process every adapter's symbols are compared with their
digests, so that the main process refuses before it starts another; each is installed only where it is needed, since
a detokenizer that imported the model would cost memory that the GPU has to do without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "SPARKD_ADAPTERS"
PROOF = "SPARKD_PLUGIN_PROOF"
"""A file that gets a line "ADAPTER=NAME DIGEST PID" from each process in which an adapter was installed, and in the end
one of NAME in every process: all that it needs is installed, and the digest is that of the whole set."""
NAME = "sparkd"


def load() -> None:
    """What SGLang calls. Off is off: without adapters nothing is imported."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    from adapter.declare import AdapterError, end_process

    try:
        install(text, os.environ)
    except AdapterError as error:
        end_process("check", str(error))
    except Exception as error:  # noqa: BLE001 - SGLang would log it and go on without the adapter
        end_process("check", f"{type(error).__name__}: {error}")


def install(text: str, environ: Mapping[str, str]) -> None:
    """Raises AdapterError for what cannot be installed as asked; ends the process if that is found on the way."""
    from adapter import frame, source

    wanted = frame.wanted(text)
    try:
        prepared = frame.prepared(wanted, source.installed())
    finally:
        source.forget()
    for each in prepared:
        if frame.process() in each.adapter.processes:
            frame.install(each)
            frame.prove(environ.get(PROOF, ""), each.adapter.name, each.digest)
    frame.prove(environ.get(PROOF, ""), NAME, frame.digest_of(prepared))
