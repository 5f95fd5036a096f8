"""A profile against what the installed SGLang says of its own options and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ring_mesh.cluster import shown
from sparkd.config.owned import TUNING
from sparkd.config.resolved import Resolved, Setting, Word, finite, text
from sparkd.config.settings import Problem

Answer = Mapping[str, Any]
"""As sparkd.host.engineoptions.ask gives it."""

_TRUTHS = ("true", "1", "yes", "y", "false", "0", "no", "n")  # what a variable that is a switch is read from
_KINDS = {"integer": "an integer", "number": "a number", "text": "one word of text"}


def asked(resolved: Resolved) -> tuple[list[str], list[str]]:
    """The options and the variables that SGLang is to be asked about: those of others are none of its business."""
    variables = [name for name in resolved.table("environment") if name.startswith(("SGLANG_", "SGL_"))]
    return list(resolved.table("arguments")), variables


def strangers(resolved: Resolved, version: str, answer: Answer) -> list[Problem]:
    """What of the profile this SGLang does not take."""
    problems: list[Problem] = []
    for setting in resolved.settings:
        if setting.table == "arguments":
            problems += _argument(setting, version, answer)
        elif setting.table == "environment":
            problems += _variable(setting, version, answer)
    return problems


def _argument(setting: Setting, version: str, answer: Answer) -> Iterator[Problem]:
    option = answer["options"].get(setting.name)
    if option is None:
        yield _unknown(setting, f"an option of SGLang {version}", answer)
        return
    value = setting.value
    if value is False:
        return
    if option["kind"] == "flag" or value is True:
        if value is not True:
            yield _problem(setting, shown(value), "true or false: the option takes no value")
        elif option["kind"] != "flag" and not option["alone"]:
            yield _problem(setting, "true", f"{_KINDS[option['kind']]}: the option takes a value")
        return
    words: tuple[Word, ...] = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) and not option["many"]:
        yield _problem(setting, f"a list of {len(value)}", f"{_KINDS[option['kind']]}: the option takes one value")
        return
    choices = option["choices"]
    if choices is not None:
        wrong = next((word for word in words if text(word) not in map(str, choices)), None)
        if wrong is not None:
            yield _problem(setting, shown(wrong), f"one of {', '.join(map(str, choices))} (SGLang {version})")
    elif not all(_fits(option["kind"], word) for word in words):
        wrong = next(word for word in words if not _fits(option["kind"], word))
        yield _problem(setting, shown(wrong), f"{_KINDS[option['kind']]} (SGLang {version})")


def _fits(kind: str, word: Word) -> bool:
    if kind == "text":
        return True
    if isinstance(word, str):
        try:
            word = int(word) if kind == "integer" else float(word)
        except ValueError:
            return False
    return finite(word) and (kind == "number" or isinstance(word, int))


def _variable(setting: Setting, version: str, answer: Answer) -> Iterator[Problem]:
    if setting.name not in answer["variables"]:
        return
    kind = answer["variables"][setting.name]
    value = text(setting.value)
    if kind is None:
        yield _unknown(setting, f"a variable of SGLang {version}", answer)
    elif kind == "deprecated":
        yield _problem(setting, "a variable that SGLang no longer goes by", "the one that its release notes name")
    elif kind == "flag" and value.lower() not in _TRUTHS:
        yield _problem(setting, shown(value), "1 or 0, true or false: it is a switch")
    elif kind in ("integer", "number") and not _fits(kind, value):
        yield _problem(setting, shown(value), f"{_KINDS[kind]}: SGLang would go on with its default")


def _unknown(setting: Setting, what: str, answer: Answer) -> Problem:
    like = answer["like"].get(setting.name, [])
    expected = ", such as ".join([what, " or ".join(like)]) if like else what
    return _problem(setting, f"a name that {what.rpartition(' of ')[2]} does not have", expected)


def _problem(setting: Setting, found: str, expected: str) -> Problem:
    return Problem(setting.origin, setting.key, found, expected)


def tuning(resolved: Resolved) -> dict[str, str]:
    """The variables of NCCL that take the place of planned ones."""
    return {name: value for name, value in resolved.environment.items() if name in TUNING}
