"""What SGLang's /metrics tells of its work. Pure.

``sglang:realtime_tokens_total`` counts while requests run: on every decode step, and on every chunk of a prefill.
``sglang:generation_tokens_total`` and ``sglang:prompt_tokens_total`` count a request only when it has finished, so that
by them alone a long generation looks like silence.
"""

from dataclasses import dataclass

from runtime.prometheus import read_sample

_OWN = "sglang:"
_COUNTERS = frozenset({"realtime_tokens_total", "generation_tokens_total", "prompt_tokens_total"})


@dataclass(frozen=True)
class Tokens:
    """``total`` only grows while the engine works; ``decoded`` tokens; ``running`` and ``queued`` requests."""

    total: float
    decoded: float
    running: int
    queued: int


def read_tokens(text: str) -> Tokens | None:
    """None if there is none of SGLang's counters in ``text``, as before the first request and without metrics."""
    total = decoded = 0.0
    running = queued = 0
    seen = False
    for line in text.splitlines():
        if not line.startswith(_OWN) or (sample := read_sample(line)) is None:
            continue
        name, value = sample.name.removeprefix(_OWN), sample.value
        if name in _COUNTERS:
            seen = True
            total += value
            if name == "realtime_tokens_total" and sample.labels.get("mode") == "decode":
                decoded += value
        # With priorities there is one value per priority, and their sum.
        elif name == "num_running_reqs":
            running = max(running, int(value))
        elif name == "num_queue_reqs":
            queued = max(queued, int(value))
    return Tokens(total, decoded, running, queued) if seen else None
