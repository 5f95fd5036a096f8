"""What an adapter says of itself, and how it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

RELEASE = "0.5.23"
"""The release of SGLang that the digests are of."""
NOT_AS_ASKED = 75
"""Exit status of a process that is not what was asked for; runtime.exits has the same, and a test compares them."""
MAIN, SCHEDULER, DETOKENIZER = "main", "scheduler", "detokenizer"
"""SGLang's processes that load plug-ins: the one with the HTTP server, the one with the model, and the third."""

Value = str | int | float | bool | list[str | int | float]
Options = Mapping[str, Value]


class AdapterError(Exception):
    """An adapter cannot do what was asked of it. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Symbol:
    """Something of SGLang that is hooked or gone by. name: "package.module:Class.method".

    digest: of its source text in RELEASE, as adapter.source.digest_of.
    """

    name: str
    digest: str

    @property
    def target(self) -> str:
        """As SGLang's HookRegistry names it."""
        return self.name.replace(":", ".")


@dataclass(frozen=True)
class Option:
    """choices: what a text may be, () for any. low, high: of a number, None without a limit."""

    default: Value
    why: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def problem(self, value: object) -> str:
        """What is expected instead of `value`; "" if it fits."""
        if isinstance(self.default, bool):
            return "" if isinstance(value, bool) else "true or false"
        if isinstance(self.default, int | float):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            whole = isinstance(self.default, float) or isinstance(value, int)
            if number and whole and self._within(float(value)):  # type: ignore[arg-type]
                return ""
            kind = "a number" if isinstance(self.default, float) else "a whole number"
            limits = [f"from {self.low:g}"] if self.low is not None else []
            limits += [f"to {self.high:g}"] if self.high is not None else []
            return " ".join([kind, *limits])
        if isinstance(value, str) and value and (not self.choices or value in self.choices):
            return ""
        return f"one of {', '.join(self.choices)}" if self.choices else "text"

    def _within(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Adapter:
    """One adapter. processes: those of SGLang that it is installed in. excludes: adapters it cannot be beside. shares:
    packages beside it that its digest is of as well."""

    name: str
    purpose: str
    worth: str
    processes: frozenset[str]
    symbols: tuple[Symbol, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()

    def symbol(self, name: str) -> Symbol:
        return next(symbol for symbol in self.symbols if symbol.name == name)

    def settled(self, given: Mapping[str, object]) -> dict[str, Value]:
        """Every option with its value. Raises AdapterError for one that it does not have, or that does not fit."""
        for name, value in given.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise AdapterError(f"adapters.{self.name}.{name}: no such option; it has {known}")
            if expected := self.options[name].problem(value):
                raise AdapterError(f"adapters.{self.name}.{name}: found {value!r}, expected {expected}")
        return {name: given.get(name, option.default) for name, option in self.options.items()}  # type: ignore[misc]


def end_process(name: str, sentence: str) -> NoReturn:
    """End this process with NOT_AS_ASKED and the sentence, from whatever thread.

    SGLang logs what a plug-in raises and goes on without it, and turns what its scheduler raises into another error;
    only a process that is gone stops the rank. The form of the line is argparse's, as which the launcher reads it.
    """
    text = " ".join(sentence.split())
    sys.stdout.flush()
    sys.stderr.write(f"\nadapter {name}: error: {text}\n")
    sys.stderr.flush()
    os._exit(NOT_AS_ASKED)
