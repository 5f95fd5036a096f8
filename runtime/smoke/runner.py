"""The checks by name, and running them one after the other."""

import time
from collections.abc import Callable, Mapping, Sequence

from runtime.openai.client import Client, served_model
from runtime.openai.exchange import Deadline, RequestFailed, Server
from runtime.smoke.answers import arithmetic, structured, tools
from runtime.smoke.batch import batch
from runtime.smoke.prompts import prompts
from runtime.smoke.result import Check, SmokeResult
from runtime.smoke.steady import completion, health, repeat, stream
from runtime.smoke.trial import Failed, Limits, Trial

Proof = Callable[[Trial], str]
"""Returns what was seen, in a sentence. Raises Failed, or RequestFailed; its docstring says what it proves."""

CHECKS: Mapping[str, Proof] = {
    proof.__name__: proof
    for proof in (health, completion, repeat, stream, arithmetic, structured, tools, batch, prompts)
}


def run(
    base_url: str,
    names: Sequence[str],
    *,
    model: str,
    timeout: float,
    report: Callable[[str], None],
    limits: Limits | None = None,
) -> SmokeResult:
    """Run the checks ``names`` against the engine at ``base_url`` (``http://HOST:PORT``) in their order.

    ``model``: the name that the engine serves it under; empty for whatever it serves. ``timeout``: seconds that each
    check has for all of its requests. ``report`` is told of each check as it begins and as it ends. Once the engine
    does not answer at all, the checks that are left are not run, and count as failed.

    :raises ValueError: for a name that is no check's, or an address that is none.
    """
    if unknown := [name for name in names if name not in CHECKS]:
        raise ValueError(f"no smoke check is called {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    server = Server.at(base_url)
    results: list[Check] = []
    gone = ""
    for number, name in enumerate(names, 1):
        if gone:
            results.append(Check(name, False, 0.0, f"not run: the engine did not answer {gone}"))
            continue
        report(f"smoke {number}/{len(names)} {name}")
        began = time.monotonic()
        deadline = Deadline(timeout)
        ok = False
        try:
            # Asked for only once somebody needs it, and by then it counts against that check.
            model = model or served_model(server, deadline)
            sentence = CHECKS[name](Trial(Client(server, model), deadline, limits or Limits()))
            ok = True
        except Failed as failure:
            sentence = str(failure)
        except RequestFailed as failure:
            sentence = failure.sentence
            # One that answered some of the check's requests is slow; whether it hangs, the next check will show.
            gone = name if failure.gone and not deadline.answered else ""
        except Exception as error:  # noqa: BLE001 - a defect of a check is no reason for the rank to die
            sentence = f"the check has a defect: {type(error).__name__}: {error}"
        results.append(Check(name, ok, time.monotonic() - began, sentence))
        report(f"smoke {number}/{len(names)} {results[-1]}")
    return SmokeResult.of(tuple(results))
