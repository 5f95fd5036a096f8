"""``SPARKD_ENGINE_CONFIG``: what the daemon made of a profile and the site's overrides, as one line of JSON."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from runtime.environment import BadEnvironment

VARIABLE = "SPARKD_ENGINE_CONFIG"
SECONDS_MAX = 604800.0
# These say which rank of which group this is, which the launcher knows and a profile cannot.
RESERVED = (
    "--nnodes",
    "--node-rank",
    "--tp-size",
    "--tensor-parallel-size",
    "--tp",
    "--dist-init-addr",
    "--nccl-init-addr",
    "--host",
    "--port",
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Limits:
    """How a start is judged; times in seconds."""

    transport: str
    init_stuck_seconds: float
    stall_seconds: float
    load_cap_seconds: float
    canary_idle_seconds: float
    canary_timeout_seconds: float
    hung_seconds: float
    smoke: tuple[str, ...]
    smoke_required: bool
    plugins: tuple[str, ...]


@dataclass(frozen=True)
class EngineConfig:
    """``arguments`` are SGLang's but for those in RESERVED; ``environment`` are the profile's own variables."""

    profile: str
    python: str
    version: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    launch: Limits

    def argument(self, *names: str) -> str | None:
        """The value of the last argument of one of these names, given as ``--name value`` or ``--name=value``."""
        value = None
        for index, item in enumerate(self.arguments):
            name, sign, text = item.partition("=")
            if name not in names:
                continue
            if sign:
                value = text
            elif index + 1 < len(self.arguments) and not self.arguments[index + 1].startswith("--"):
                value = self.arguments[index + 1]
            else:
                value = ""
        return value


class _Keys:
    """One JSON object, read key by key; what is wrong is collected with the key's name."""

    def __init__(self, value: object, prefix: str, problems: list[str]) -> None:
        self._values: dict[str, object] = value if isinstance(value, dict) else {}
        self._prefix = prefix
        self._problems = problems
        self._left = set(self._values)
        if not isinstance(value, dict):
            self.bad("", "an object", value)

    def bad(self, key: str, expected: str, found: object) -> None:
        name = f"{self._prefix}{key}".rstrip(".")
        # Values of variables may be secrets, so that only the kind of a wrong one is told.
        seen = type(found).__name__ if isinstance(found, str | dict | list) else json.dumps(found)
        where = f"{VARIABLE}: {name}" if name else VARIABLE
        self._problems.append(f"{where}: expected {expected}, got {seen}")

    def take(self, key: str, expected: str) -> object:
        self._left.discard(key)
        if key in self._values:
            return self._values[key]
        self._problems.append(f"{VARIABLE}: {self._prefix}{key}: expected {expected}, not set")
        return None

    def text(self, key: str, expected: str) -> str:
        value = self.take(key, expected)
        if isinstance(value, str) and value and "\0" not in value:
            return value
        if value is not None:
            self.bad(key, expected, value)
        return ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key, "a list of texts")
        if isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value):
            return tuple(value)
        if value is not None:
            self.bad(key, "a list of texts", value)
        return ()

    def flag(self, key: str) -> bool:
        value = self.take(key, "true or false")
        if value is not None and not isinstance(value, bool):
            self.bad(key, "true or false", value)
        return value is True

    def seconds(self, key: str) -> float:
        expected = f"seconds above 0, {SECONDS_MAX:g} at most"
        value = self.take(key, expected)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= SECONDS_MAX:
            return float(value)
        if value is not None:
            self.bad(key, expected, value)
        return 1.0

    def finish(self) -> None:
        self._problems += [f"{VARIABLE}: {self._prefix}{key}: not a key of it" for key in sorted(self._left)]


def read_engine_config(environ: Mapping[str, str]) -> EngineConfig:
    """Read and check the whole of it.

    :raises BadEnvironment: with every bad, missing or unknown key.
    """
    text = environ.get(VARIABLE)
    if text is None:
        raise BadEnvironment([f"{VARIABLE}: expected the resolved profile as JSON, not set"])
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEnvironment([f"{VARIABLE}: expected JSON, {error}"]) from error
    problems: list[str] = []
    keys = _Keys(value, "", problems)
    profile = keys.text("profile", "the profile's name")
    python = keys.text("python", "the absolute path of the engine's python")
    if python and not python.startswith("/"):
        problems.append(f"{VARIABLE}: python: expected an absolute path, got {python!r}")
    version = keys.text("version", "SGLang's version")
    arguments = keys.texts("arguments")
    names = [argument.partition("=")[0] for argument in arguments]
    taken = [name for name in names if name in RESERVED]
    problems += [f"{VARIABLE}: arguments: {name} is set by the launcher, leave it out" for name in taken]
    environment = _environment(keys.take("environment", "an object of texts"), problems)
    launch = _launch(keys.take("launch", "an object"), problems)
    keys.finish()
    if problems:
        raise BadEnvironment(problems)
    return EngineConfig(profile, python, version, arguments, MappingProxyType(environment), launch)


def _environment(value: object, problems: list[str]) -> dict[str, str]:
    if value is None:
        return {}
    keys = _Keys(value, "environment.", problems)
    if not isinstance(value, dict):
        return {}
    for name, text in value.items():
        if not _NAME.fullmatch(name) or name.startswith("SPARKD_"):
            problems.append(f"{VARIABLE}: environment: {name!r} is not the name of a variable for the engine")
        elif not isinstance(text, str) or "\0" in text:
            keys.bad(name, "a text", text)
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _launch(value: object, problems: list[str]) -> Limits:
    if value is None:
        value = {}
        keys = _Keys(value, "launch.", [])
    else:
        keys = _Keys(value, "launch.", problems)
    transport = keys.text("transport", '"ib" or "any"')
    if transport and transport not in ("ib", "any"):
        problems.append(f'{VARIABLE}: launch.transport: expected "ib" or "any", got {transport!r}')
    limits = Limits(
        transport,
        keys.seconds("init_stuck_seconds"),
        keys.seconds("stall_seconds"),
        keys.seconds("load_cap_seconds"),
        keys.seconds("canary_idle_seconds"),
        keys.seconds("canary_timeout_seconds"),
        keys.seconds("hung_seconds"),
        keys.texts("smoke"),
        keys.flag("smoke_required"),
        keys.texts("plugins"),
    )
    keys.finish()
    return limits
