"""The engine that ranks run: a profile that can be used, and the SGLang that it is written for."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, not_applicable, unknown
from sparkd.core.enginefacts import PROBE, EngineFacts, Fault
from sparkd.core.model import Finding

SITE = "/etc/sparkd/engine.toml"


def profile_bad(node: str, fault: Fault) -> Finding:
    return Finding(
        "profile-bad",
        node,
        "refuse",
        f"{fault.file}: {fault.key}",
        fault.found,
        fault.expected,
        f"correct {fault.file} (sparkctl profile check lists all that is wrong); the next start takes it as it is then",
    )


def engine_missing(node: str, facts: EngineFacts) -> Finding:
    what = f"no SGLang in the environment of {facts.python}" if facts.interpreter else f"no {facts.python}"
    return Finding(
        "engine-missing",
        node,
        "refuse",
        "SGLang",
        what,
        f"SGLang {facts.wanted or 'of the version that the profile names'}",
        f"{facts.python} -m pip install sglang=={facts.wanted or 'VERSION'}, or name another environment as python in "
        "[engine] of sparkd.toml (not below /home: sparkd does not see it), then systemctl restart sparkd",
    )


def engine_version(node: str, facts: EngineFacts) -> Finding:
    others = f", or {', '.join(facts.allowed)}, which {SITE} allows" if facts.allowed else ""
    return Finding(
        "engine-version",
        node,
        "refuse",
        "SGLang",
        f"version {facts.version} is installed for {facts.python}",
        f"version {facts.wanted}, which the profile {facts.profile} is written for{others}",
        f"install sglang=={facts.wanted} there; to try the other one all the same, allow_sglang = "
        f'["{facts.version}"] in {SITE} on every node',
    )


def engine_options(node: str, fault: Fault) -> Finding:
    return Finding(
        "engine-options",
        node,
        "refuse",
        f"{fault.file}: {fault.key}",
        fault.found,
        fault.expected,
        f"correct it there{'' if fault.file == SITE else f', or in {SITE}'} (false leaves an option out); "
        "sparkctl profile check lists all",
    )


def _facts(seen: Seen) -> EngineFacts | Outcome:
    facts = seen.hardware.engine
    if facts is None:
        return unknown(seen.hardware.why("engine"))
    return not_applicable("the engine is the probe, which comes with sparkd") if facts.name == PROBE else facts


def check_profile(seen: Seen) -> Outcome:
    if isinstance(facts := _facts(seen), Outcome):
        return facts
    return judged([profile_bad(seen.node, fault) for fault in facts.faults], f"profile {facts.profile}")


def check_missing(seen: Seen) -> Outcome:
    if isinstance(facts := _facts(seen), Outcome):
        return facts
    if facts.version is None:
        return unknown(facts.why)
    absent = not facts.version or not facts.interpreter
    return judged([engine_missing(seen.node, facts)] if absent else [], f"SGLang {facts.version} for {facts.python}")


def check_version(seen: Seen) -> Outcome:
    if isinstance(facts := _facts(seen), Outcome):
        return facts
    if facts.version is None:
        return unknown(facts.why)
    if not facts.wanted:
        return unknown("the profile cannot be used, so that no version is known to be right")
    if not facts.version:
        return not_applicable("no SGLang is installed")
    fine = f"SGLang {facts.version}" + (f", which {SITE} allows" if facts.version != facts.wanted else "")
    return judged([] if facts.accepted else [engine_version(seen.node, facts)], fine)


def check_options(seen: Seen) -> Outcome:
    """Of a version that is not accepted nobody wants to know which options it lacks as well."""
    if isinstance(facts := _facts(seen), Outcome):
        return facts
    if facts.version == "" or (facts.version and facts.wanted and not facts.accepted):
        return not_applicable(f"the SGLang of the profile {facts.profile} is not installed")
    if facts.strangers is None:
        return unknown(facts.why)
    fine = f"SGLang {facts.version} has every option and variable of the profile {facts.profile}"
    return judged([engine_options(seen.node, fault) for fault in facts.strangers], fine)
