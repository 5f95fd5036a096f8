"""A whole run: every case in turn, up to the first that fails."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime

from runtime.bench.machine import this_engine, this_machine
from runtime.bench.measure import Measure, Settings
from runtime.bench.report import Decode, Prefill, Report
from runtime.bench.scrape import BETWEEN_TOKENS
from runtime.openai.client import Client, served_model
from runtime.openai.exchange import Deadline, RequestFailed, Server
from runtime.openai.facts import Facts, read_facts

# The words of a prompt make about as many tokens as are asked for, not exactly.
MARGIN_TOKENS = 32
ASK_SECONDS = 30.0


def run(url: str, model: str, settings: Settings, report: Callable[[str], None]) -> Report:
    """Measure the engine at ``url``. What fails ends the run; what was measured before it is kept.

    ``model`` may be empty: then it is what the engine serves.

    :raises ValueError: for an address that is none.
    """
    server = Server.at(url)
    shown = {key: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for key, v in asdict(settings).items()}
    result = Report(datetime.now(UTC).isoformat(timespec="seconds"), this_machine(), {"address": str(server)}, shown)
    decoded: list[Decode] = []
    filled: list[Prefill] = []
    notes: list[str] = []
    failed = ""
    try:
        client = Client(server, model or served_model(server, Deadline(ASK_SECONDS)))
        facts = read_facts(client, Deadline(ASK_SECONDS))
        result = replace(result, engine=this_engine(client, facts))
        if facts.why_not:
            notes.append(f"version and arguments of the engine are not known: {facts.why_not}")
        measure = Measure(client, facts, settings, report)
        for streams in settings.streams:
            decoded.append(measure.decode(streams))
            _note_metrics(measure, decoded[-1], notes)
        for tokens in _possible(settings.prefill, facts, notes):
            # One by one: what was measured before a failure is kept.
            filled += [measure.prefill(tokens)]
    except RequestFailed as failure:
        failed = failure.sentence
    return replace(result, decode=tuple(decoded), prefill=tuple(filled), notes=tuple(notes), failed=failed)


def _possible(lengths: tuple[int, ...], facts: Facts, notes: list[str]) -> list[int]:
    """Those that the engine takes; the others are named."""
    longest = facts.longest
    if longest is None:
        return list(lengths)
    possible = [tokens for tokens in lengths if tokens + MARGIN_TOKENS <= longest]
    left_out = [tokens for tokens in lengths if tokens not in possible]
    notes += [f"prefill of {tokens} tokens is left out: the engine takes {longest} at most" for tokens in left_out]
    return possible


def _note_metrics(measure: Measure, case: Decode, notes: list[str]) -> None:
    """Say once that the engine's own times are missing."""
    if case.engine is not None or any("client's clock" in note for note in notes):
        return
    why = measure.scraper.missing or f"the engine's metrics have no {BETWEEN_TOKENS}"
    notes.append(f"{why}; all times are by the client's clock alone")
