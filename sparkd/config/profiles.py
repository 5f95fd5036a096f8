"""Profiles of the engine as files: NAME.toml in /etc/sparkd/profiles or /usr/share/sparkd/profiles, the first wins.

A profile has `sglang`, the version that it is written for, `description`, and four tables: `[arguments]`, SGLang's
options by their names without dashes; `[environment]`; `[adapters]`, see sparkd.config.adapters; and `[launch]`, for
sparkd's launcher. A value is plain, or a table `{value = ..., why = "...", source = "..."}`. /etc/sparkd/engine.toml
overrides single values on this site, and may allow other versions with `allow_sglang`. What the names mean to SGLang is
checked in sparkd.config.listing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ring_mesh.cluster import shown, unknown_keys
from sparkd.config import adapters
from sparkd.config.files import Document, read
from sparkd.config.launch import LAUNCH, fault
from sparkd.config.owned import whose_argument, whose_variable
from sparkd.config.resolved import DEFAULT, LARGEST, TABLES, Resolved, Setting, Table, Value, finite
from sparkd.config.settings import ConfigError, Problem

ETC = Path("/etc/sparkd")
SHARE = Path("/usr/share/sparkd/profiles")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([._+-]?[A-Za-z0-9]+)*")
_OPTION = re.compile(r"[a-z0-9][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_LINE = "text of one line"


def folders(etc: Path = ETC, share: Path = SHARE) -> tuple[Path, ...]:
    """Where profiles are looked for, the first before the second."""
    return (etc / "profiles", share)


def site_file(etc: Path = ETC) -> Path:
    return etc / "engine.toml"


def listed(where: Sequence[Path]) -> dict[str, Path]:
    """The file of each profile by name. A directory that is not there has none; raises OSError for any other."""
    found: dict[str, Path] = {}
    for folder in where:
        try:
            files = sorted(folder.glob("*.toml"))
        except FileNotFoundError:
            continue
        for file in files:
            if NAME.fullmatch(file.stem):
                found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def candidates(name: str, where: Sequence[Path], site: Path) -> list[Path]:
    """The files that make a difference to the profile, whether they exist or not."""
    return [*(folder / f"{name}.toml" for folder in where), site]


def resolve(name: str, where: Sequence[Path], site: Path) -> Resolved:
    """The profile of that name with the overrides in `site`. Raises ConfigError with every problem of both files."""
    if not NAME.fullmatch(name):
        raise ConfigError([Problem(str(where[0]), "profile", shown(name), "a name of letters, digits, _ . and -")])
    file = next((path for path in candidates(name, where, site)[:-1] if _there(path)), where[0] / f"{name}.toml")
    problems: list[Problem] = []
    purpose = f"a profile, here or in {' or '.join(str(folder) for folder in where[1:])}" if where[1:] else "a profile"
    profile = _File(file, purpose, problems)
    override = _File(site, "the site's overrides", problems) if _there(site) else None
    if problems:
        raise ConfigError(problems)
    profile.known(("description", "sglang", *TABLES))
    description = profile.text("description", _ONE_LINE, needed=False)
    sglang = profile.text("sglang", 'the version of SGLang that this is written for, such as "0.5.23"', _VERSION)
    settings = profile.settings()
    allowed: tuple[str, ...] = ()
    if override is not None:
        override.known(("allow_sglang", *TABLES))
        allowed = override.versions()
        settings = _merged(settings, override.settings())
    resolved = Resolved(name, str(file), description, sglang, allowed, (*_defaults(settings), *settings.values()))
    if not problems:
        problems += _together(resolved)
    if problems:
        raise ConfigError(problems)
    return resolved


def _there(path: Path) -> bool:
    """Also for a file that may not be read, so that this is said and nothing else taken in its place."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


Settings = dict[tuple[str, str], Setting]


def _merged(below: Settings, above: Settings) -> Settings:
    merged = dict(below)
    for key, setting in above.items():
        was = below.get(key)
        merged[key] = Setting(
            setting.table, setting.name, setting.value, setting.origin, setting.why, setting.source, was
        )
    return merged


def _defaults(settings: Settings) -> list[Setting]:
    return [
        Setting("launch", name, rule.default, DEFAULT, rule.why)
        for name, rule in LAUNCH.items()
        if ("launch", name) not in settings
    ]


def _together(resolved: Resolved) -> Iterator[Problem]:
    """What values say only side by side."""
    by_key = {setting.key: setting for setting in resolved.settings}
    if not any(by_key.get(f"arguments.{name}") for name in ("model-path", "model")):
        yield Problem(resolved.file, "arguments.model-path", "nothing", "the path or the name of the checkpoint")
    hung, canary = by_key["launch.hung_seconds"], by_key["launch.canary_timeout_seconds"]
    if float(hung.value) <= float(canary.value):  # type: ignore[arg-type]
        blamed = hung if hung.origin != DEFAULT else canary
        expected = f"hung_seconds above canary_timeout_seconds, which is {canary.value}"
        yield Problem(blamed.origin, "launch.hung_seconds", f"{hung.value}", expected)
    size = len(resolved.config("", resolved.sglang))
    if size > LARGEST:
        yield Problem(resolved.file, "file", f"{size} bytes of settings", f"at most {LARGEST}")


class _File:
    """One TOML file whose problems are collected; what cannot be used is left out."""

    def __init__(self, file: Path, purpose: str, problems: list[Problem]) -> None:
        self._file = str(file)
        self._problems = problems
        try:
            self._tables = read(file, purpose, drop_ins=False).tables
        except ConfigError as error:
            problems += error.problems
            self._tables = Document(str(file), {}, {}).tables

    def add(self, key: str, found: str, expected: str) -> None:
        self._problems.append(Problem(self._file, key, found, expected))

    def known(self, keys: tuple[str, ...]) -> None:
        for problem in unknown_keys("", self._tables, keys):
            self.add(problem.key, problem.found, problem.expected)

    def text(self, key: str, expected: str, pattern: re.Pattern[str] | None = None, *, needed: bool = True) -> str:
        value = self._tables.get(key)
        if value is None and not needed:
            return ""
        if isinstance(value, str) and _one_line(value) and (pattern is None or pattern.fullmatch(value)):
            return value
        self.add(key, "nothing" if value is None else shown(value), expected)
        return ""

    def versions(self) -> tuple[str, ...]:
        value = self._tables.get("allow_sglang", [])
        if isinstance(value, list) and all(isinstance(v, str) and _VERSION.fullmatch(v) for v in value):
            return tuple(value)
        self.add("allow_sglang", shown(value), 'a list of versions of SGLang, such as ["0.5.24"]')
        return ()

    def settings(self) -> Settings:
        found: Settings = {}
        for table in TABLES:
            entries = self._tables.get(table, {})
            if not isinstance(entries, dict):
                self.add(table, shown(entries), f"one [{table}] table")
                continue
            for key, whole in entries.items():
                for name, entry in adapters.unfolded(key, whole) if table == "adapters" else ((key, whole),):
                    setting = self._setting(table, name, entry)
                    if setting is not None:
                        found[table, name] = setting
        return found

    def _setting(self, table: Table, name: str, entry: object) -> Setting | None:
        plain = name.replace("-", "_").replace(".", "_", int(table == "adapters"))
        key = f"{table}.{name if _VARIABLE.fullmatch(plain) else shown(name)}"
        complaint = _NAMES[table](name)
        if complaint:
            self.add(key, "a key that cannot be set", complaint)
            return None
        why = source = ""
        if isinstance(entry, dict):
            before = len(self._problems)
            for problem in unknown_keys(key, entry, ("value", "why", "source")):
                self.add(problem.key, problem.found, problem.expected)
            if "value" not in entry:
                self.add(f"{key}.value", "nothing", 'a table {value = ..., why = "...", source = "..."}, or the value')
            why, source = (self._reason(key, part, entry) for part in ("why", "source"))
            if len(self._problems) > before:
                return None
            entry = entry["value"]
        if table == "launch":
            bad = fault(name, entry)
        elif table == "adapters":
            bad = adapters.fault(name, entry)
        else:
            bad = _argument_fault(entry) if table == "arguments" else _variable_fault(entry)
        if bad is not None:
            self.add(key, *bad)
            return None
        return Setting(table, name, _frozen(entry), self._file, why, source)

    def _reason(self, key: str, part: str, entry: Mapping[str, object]) -> str:
        value = entry.get(part, "")
        if isinstance(value, str):
            return " ".join(value.split())
        self.add(f"{key}.{part}", shown(value), "text")
        return ""


def _argument_name(name: str) -> str:
    if not _OPTION.fullmatch(name):
        bare = name.lstrip("-").replace("_", "-").lower()
        meant = f'"{bare}"? ' if _OPTION.fullmatch(bare) else ""
        return f"{meant}an option of SGLang without its dashes in front, such as context-length"
    return whose_argument(name)


def _variable_name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        return "the name of an environment variable: letters, digits and _"
    return whose_variable(name)


def _launch_name(name: str) -> str:
    return next((problem.expected for problem in unknown_keys("", {name: 0}, tuple(LAUNCH))), "")


_NAMES: Mapping[Table, Callable[[str], str]] = {
    "arguments": _argument_name,
    "environment": _variable_name,
    "adapters": adapters.unknown_setting,
    "launch": _launch_name,
}


def _argument_fault(value: object) -> tuple[str, str] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, list):
        if value and all(finite(word) or (_plain(word) and not str(word).startswith("-")) for word in value):
            return None
        return shown(value), "at least one element, each a number or text that does not begin with a dash"
    if finite(value) or _plain(value):
        return None
    return _found(value), f"a number, {_ONE_LINE}, an array of these, true for the option alone, or false for none"


def _variable_fault(value: object) -> tuple[str, str] | None:
    if finite(value) or _plain(value):
        return None
    # Some read "1", others "true", and an empty one is taken for set.
    return _found(value), f'a number or {_ONE_LINE}, as the variable is read: "1" or "true", "0" or "false"'


def _plain(value: object) -> bool:
    return isinstance(value, str) and value != "" and _one_line(value)


def _one_line(value: str) -> bool:
    return all(character.isprintable() for character in value)


def _found(value: object) -> str:
    return "an empty text" if value == "" else shown(value)


def _frozen(value: object) -> Value:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
