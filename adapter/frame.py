"""From the adapters that are wanted to hooks that are seen to be in place."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter import catalogue, source
from adapter.declare import DETOKENIZER, MAIN, SCHEDULER, Adapter, AdapterError, Options, Symbol, Value

_ROLES = {"run_scheduler_process": SCHEDULER, "run_detokenizer_process": DETOKENIZER}


@dataclass(frozen=True)
class Prepared:
    """An adapter that fits the installed SGLang."""

    adapter: Adapter
    options: Mapping[str, Value]
    install: Callable[[Options], None]
    digest: str


def wanted(text: str) -> dict[str, Mapping[str, object]]:
    """The options of each adapter of SPARKD_ADAPTERS, in the order of installation. Raises AdapterError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise AdapterError(f"SPARKD_ADAPTERS: expected JSON, {error}") from error
    if not isinstance(value, dict) or not all(isinstance(options, dict) for options in value.values()):
        raise AdapterError("SPARKD_ADAPTERS: expected an object of options by adapter")
    order = {name: place for place, name in enumerate(catalogue.NAMES)}
    return dict(sorted(value.items(), key=lambda item: order.get(item[0], len(order))))


def prepared(wanted: Mapping[str, Mapping[str, object]], package: Path) -> list[Prepared]:
    """Raises AdapterError for the first that is unknown, has a wrong option, or hooks what has drifted."""
    found = []
    release = source.version(package)
    for name, given in wanted.items():
        adapter, install = catalogue.load(name)
        options = adapter.settled(given)
        for other in adapter.needs:
            if other not in wanted:
                raise AdapterError(f"adapters.{name}: it needs adapters.{other}, which is not on")
        for other in adapter.excludes:
            if other in wanted:
                raise AdapterError(f"adapters.{name}: it cannot be on beside adapters.{other}")
        if drifted := source.drifts(package, adapter.symbols):
            raise AdapterError(f"{name}: {drifted[0].sentence(release)}")
        found.append(Prepared(adapter, options, install, source.digest_of_adapter(adapter, options)))
    return found


def process() -> str:
    """Which of SGLang's processes this is: its name is set later than plug-ins are loaded, its main function is not."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name in _ROLES:
            return _ROLES[frame.f_code.co_name]
        frame = frame.f_back
    return MAIN


def install(each: Prepared) -> None:
    """Raises AdapterError, also for a hook that SGLang did not apply."""
    try:
        each.install(each.options)
    except AdapterError as error:
        raise AdapterError(f"{each.adapter.name}: {error}") from error
    except Exception as error:
        raise AdapterError(f"{each.adapter.name} could not be installed: {type(error).__name__}: {error}") from error
    print(f"adapter {each.adapter.name} is installed, digest {each.digest}", file=sys.stderr, flush=True)


def digest_of(prepared: Sequence[Prepared]) -> str:
    """Of the whole set, the same in every process of every rank."""
    told = "\n".join(f"{each.adapter.name} {each.digest}" for each in prepared)
    return hashlib.sha256(told.encode()).hexdigest()[: source.DIGITS]


def prove(file: str, name: str, digest: str) -> None:
    """Append one line in one write: several processes write to the file at a time. Raises AdapterError."""
    if not file:
        return
    line = f"ADAPTER={name} {digest} {os.getpid()}\n".encode()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AdapterError(f"{name}: its proof cannot be written: {error}") from error
    if written != len(line):
        raise AdapterError(f"{name}: its proof cannot be written whole to {file}")


def hook(symbol: Symbol, function: Callable[..., Any], kind: str) -> None:
    """Have SGLang's registry put `function` to what the symbol names, at once; kind: before, after, around or replace.

    Raises AdapterError if it is not in place then: the registry only logs what it could not apply.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    owner_path, _, attribute = symbol.target.rpartition(".")
    owner = pkgutil.resolve_name(owner_path)
    before = inspect.getattr_static(owner, attribute)
    HookRegistry.register(symbol.target, function, HookType(kind))
    HookRegistry.apply_hooks()
    if inspect.getattr_static(owner, attribute) is before:
        raise AdapterError(f"SGLang did not apply the hook at {symbol.name}; its log says why")
