"""A profile with the site's overrides, ready for a rank."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Word = str | int | float
Value = str | int | float | bool | tuple[Word, ...]
Table = Literal["arguments", "environment", "adapters", "launch"]
TABLES: tuple[Table, ...] = ("arguments", "environment", "adapters", "launch")
DEFAULT = "default"
# The kernel takes no string of an environment above 128 KiB (MAX_ARG_STRLEN).
LARGEST = 100_000
PLUGIN = "sparkd"
"""The plug-in of SGLang's by which adapters are installed."""
_SECRET = re.compile(
    r"secret|passw(?:or)?d|passphrase|credential|(?:^|[_-])(?:token|(?:api|access|private|auth)[_-]?key(?:[_-]?id)?)$",
    re.IGNORECASE,
)
"""Names such as HF_TOKEN, and not of what counts tokens."""
_LOGIN = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
"""In a URL, as of a proxy."""


@dataclass(frozen=True)
class Setting:
    """One value. origin: the file that it is from, or DEFAULT. replaced: what a file below said, None without one."""

    table: Table
    name: str
    value: Value
    origin: str
    why: str = ""
    source: str = ""
    replaced: Setting | None = None

    @property
    def key(self) -> str:
        return f"{self.table}.{self.name}"


@dataclass(frozen=True)
class Resolved:
    """A profile that can be used. sglang: the version that it is written for; allowed: others that the site allows."""

    name: str
    file: str
    description: str
    sglang: str
    allowed: tuple[str, ...]
    settings: tuple[Setting, ...]

    def table(self, table: Table) -> Mapping[str, Value]:
        return {setting.name: setting.value for setting in self.settings if setting.table == table}

    def accepts(self, version: str) -> bool:
        return version == self.sglang or version in self.allowed

    @property
    def arguments(self) -> tuple[str, ...]:
        """SGLang's command line without what the launcher adds."""
        return tuple(word for name, value in self.table("arguments").items() for word in words(name, value))

    @property
    def environment(self) -> dict[str, str]:
        return {name: text(value) for name, value in self.table("environment").items()}

    @property
    def adapters(self) -> dict[str, dict[str, Value]]:
        """The options of each adapter that is on."""
        table = self.table("adapters")
        found: dict[str, dict[str, Value]] = {name: {} for name, value in table.items() if value is True}
        for key, value in table.items():
            name, dot, option = key.partition(".")
            if dot and name in found:
                found[name][option] = value
        return {name: options for name, options in found.items() if "." not in name}

    def config(self, python: str, version: str) -> str:
        """The value of SPARKD_ENGINE_CONFIG: JSON in printable ASCII without single quotes.

        version: of the installed SGLang, as far as it is one that is accepted, else the profile's.
        """
        launch = {name: list(v) if isinstance(v, tuple) else v for name, v in self.table("launch").items()}
        if self.adapters:
            # SGLang loads it then, and the launcher wants its proof.
            launch["plugins"] = [*(name for name in launch["plugins"] if name != PLUGIN), PLUGIN]  # type: ignore[union-attr]
        value = {
            "profile": self.name,
            "python": python,
            "version": version if self.accepts(version) else self.sglang,
            "arguments": self.arguments,
            "environment": self.environment,
            "launch": launch,
        }
        return json.dumps(value, separators=(",", ":")).replace("'", "\\u0027")

    def digests(self) -> dict[str, str]:
        """Each setting under a key of its own, so that hosts that differ can name it and both values.

        Every user of every host may read them: of what is a secret by its name there is a fingerprint.
        """
        found = {"engine.profile": self.name, "engine.sglang": self.sglang}
        return found | {f"engine.{setting.key}": _told(setting) for setting in self.settings}


def _told(setting: Setting) -> str:
    value = text(setting.value)
    named = _SECRET.search(setting.name) and isinstance(setting.value, str)
    if not named and not _LOGIN.search(value):
        return value
    # Too short to try words against it with any certainty, and long enough to tell two of them apart.
    return f"a secret, {hashlib.sha256(f'fingerprint of {setting.key}: {value}'.encode()).hexdigest()[:8]}"


def words(name: str, value: Value) -> Iterator[str]:
    """How an option becomes words of a command line.

    true is the option alone, false none at all, an array one word for each of its elements.
    """
    if value is False:
        return
    if isinstance(value, str) and value.startswith("-"):
        # argparse takes a word of its own that begins with a dash for the next option.
        yield f"--{name}={value}"
        return
    yield f"--{name}"
    if isinstance(value, tuple):
        yield from (text(word) for word in value)
    elif value is not True:
        yield text(value)


def text(value: Value) -> str:
    """As a command line, a variable or a comparison has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(text(word) for word in value)
    return str(value)


def finite(value: object) -> bool:
    """Whether it is a number; to Python true is one, and TOML has inf and nan."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
