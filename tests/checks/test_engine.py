"""What the checks of the engine say, word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkd.core import checks
from sparkd.core.enginefacts import EngineFacts, Fault
from sparkd.core.hardware import HardwareFacts

PYTHON = "/opt/sparkd/engine/bin/python"
GOOD = EngineFacts("sglang", "tiny", PYTHON, "0.5.23", version="0.5.23", strangers=())
FAULT = Fault("/etc/sparkd/engine.toml", "arguments.x", "3", "an option")


def judged(facts: EngineFacts | None, **unknown: str) -> dict[str, checks.CheckResult]:
    seen = checks.Seen("spark1", HardwareFacts(engine=facts, unknown=unknown))
    return {result.id: result for result in checks.run(seen)}


def test_what_passes_says_what_was_seen() -> None:
    results = judged(GOOD)
    assert {id_: (results[id_].verdict, results[id_].why) for id_ in ("profile-bad", "engine-missing")} == {
        "profile-bad": ("pass", "profile tiny"),
        "engine-missing": ("pass", f"SGLang 0.5.23 for {PYTHON}"),
    }
    assert results["engine-version"].why == "SGLang 0.5.23"
    assert results["engine-options"].why == "SGLang 0.5.23 has every option and variable of the profile tiny"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            replace(GOOD, wanted="", faults=(FAULT,), strangers=None),
            {
                "profile-bad": (
                    "/etc/sparkd/engine.toml: arguments.x",
                    "3",
                    "an option",
                    "correct /etc/sparkd/engine.toml (sparkctl profile check lists all that is wrong); the next start "
                    "takes it as it is then",
                )
            },
        ),
        (
            replace(GOOD, version="", strangers=None),
            {
                "engine-missing": (
                    "SGLang",
                    f"no SGLang in the environment of {PYTHON}",
                    "SGLang 0.5.23",
                    f"{PYTHON} -m pip install sglang==0.5.23, or name another environment as python in [engine] of "
                    "sparkd.toml (not below /home: sparkd does not see it), then systemctl restart sparkd",
                )
            },
        ),
        (
            replace(GOOD, version="0.5.24", allowed=("0.5.25",), strangers=None),
            {
                "engine-version": (
                    "SGLang",
                    f"version 0.5.24 is installed for {PYTHON}",
                    "version 0.5.23, which the profile tiny is written for, or 0.5.25, which /etc/sparkd/engine.toml "
                    "allows",
                    'install sglang==0.5.23 there; to try the other one all the same, allow_sglang = ["0.5.24"] in '
                    "/etc/sparkd/engine.toml on every node",
                )
            },
        ),
        (
            replace(GOOD, strangers=(FAULT,)),
            {
                "engine-options": (
                    "/etc/sparkd/engine.toml: arguments.x",
                    "3",
                    "an option",
                    "correct it there (false leaves an option out); sparkctl profile check lists all",
                )
            },
        ),
    ],
    ids=["profile-bad", "engine-missing", "engine-version", "engine-options"],
)
def test_each_fault_refuses_and_says_how_to_mend_it(
    facts: EngineFacts, told: dict[str, tuple[str, str, str, str]]
) -> None:
    found = [f for r in judged(facts).values() for f in r.findings]
    assert {f.id: (f.subject, f.observed, f.expected, f.fix) for f in found} == told
    assert {(f.severity, f.node) for f in found} == {("refuse", "spark1")}


def test_the_other_version_is_named_as_such_where_it_is_allowed() -> None:
    result = judged(replace(GOOD, version="0.5.24", allowed=("0.5.24",)))["engine-version"]
    assert (result.verdict, result.why) == ("pass", "SGLang 0.5.24, which /etc/sparkd/engine.toml allows")


def test_a_missing_interpreter_is_named() -> None:
    (finding,) = judged(replace(GOOD, interpreter=False))["engine-missing"].findings
    assert finding.observed == f"no {PYTHON}"


def test_what_cannot_be_told_is_unknown_and_says_why() -> None:
    results = judged(replace(GOOD, version=None, strangers=None, why="no permission"))
    told = {id_: (results[id_].verdict, results[id_].why) for id_ in ("engine-missing", "engine-version")}
    assert set(told.values()) == {("unknown", "no permission")}
    assert judged(replace(GOOD, strangers=None, why="late"))["engine-options"].verdict == "unknown"
    assert {judged(None, engine="it hangs")[id_].why for id_ in ("profile-bad", "engine-options")} == {"it hangs"}


def test_the_probe_has_none_of_it() -> None:
    results = judged(EngineFacts("probe"))
    ids = ("profile-bad", "engine-missing", "engine-version", "engine-options")
    assert {results[id_].verdict for id_ in ids} == {"not-applicable"}
