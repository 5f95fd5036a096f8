"""Reading TOML files and merging drop-ins, remembering which file each key came from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkd.config.settings import ConfigError, Problem


@dataclass(frozen=True)
class Document:
    """Merged tables. main: the file to name for what no file has. sources: dotted key -> the file it came from."""

    main: str
    tables: Mapping[str, object]
    sources: Mapping[str, str]

    def source(self, key: str) -> str:
        """The file that the key is in, or else the one where the table around it starts."""
        name = key.partition("[")[0]
        while name and name not in self.sources:
            name = name.rpartition(".")[0]
        return self.sources.get(name, self.main)


def read(main: Path, purpose: str, *, drop_ins: bool) -> Document:
    """The file, and if wanted `MAIN.d/*.toml` merged over it in the order of names. Raises ConfigError.

    Tables merge key by key; anything else replaces what was there. purpose: what the file should be if it is missing.
    """
    problems: list[Problem] = []
    merged: dict[str, object] = {}
    sources: dict[str, str] = {}
    for file in [main, *(_drop_ins(main.with_name(f"{main.name}.d"), problems) if drop_ins else [])]:
        try:
            _overlay(merged, tomllib.loads(file.read_text(encoding="utf-8")), str(file), "", sources)
        except OSError as error:
            expected = purpose if isinstance(error, FileNotFoundError) and file == main else "a readable TOML file"
            problems.append(unreadable(file, error, expected))
        except UnicodeDecodeError as error:
            line = bytes(error.object[: error.start]).count(b"\n") + 1
            problems.append(Problem(str(file), f"line {line}", "bytes that are not UTF-8", "TOML in UTF-8"))
        except (ValueError, RecursionError) as error:
            problems.append(_syntax(file, error))
    if problems:
        raise ConfigError(problems)
    return Document(str(main), merged, sources)


def unreadable(file: Path, error: OSError, expected: str) -> Problem:
    """The problem of a file that cannot be read; `expected` says what it should be."""
    if isinstance(error, FileNotFoundError):
        return Problem(str(file), "file", "nothing", expected)
    if isinstance(error, PermissionError):
        return Problem(str(file), "file", "no permission to read it", expected)
    return Problem(str(file), "file", (error.strerror or str(error)).lower(), expected)


def _drop_ins(folder: Path, problems: list[Problem]) -> list[Path]:
    try:
        # A dot in front is what editors give to their lock and swap files.
        return sorted(file for file in folder.iterdir() if file.suffix == ".toml" and not file.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(unreadable(folder, error, "a directory of drop-ins"))
        return []


def _overlay(
    base: dict[str, object], over: Mapping[str, object], file: str, prefix: str, sources: dict[str, str]
) -> None:
    for key, value in over.items():
        path = f"{prefix}{key}"
        below = base.get(key)
        if not isinstance(value, dict) or not isinstance(below, dict):
            for inner in [name for name in sources if name.startswith(f"{path}.")]:
                del sources[inner]
            sources[path] = file
        if not isinstance(value, dict):
            base[key] = value
            continue
        if not isinstance(below, dict):
            below = base[key] = {}
        _overlay(below, value, file, f"{path}.", sources)


def _syntax(file: Path, error: Exception) -> Problem:
    # tomllib names the place only at the end of its message: "... (at line 3, column 7)" or "(at end of document)".
    text, _, place = str(error).rpartition(" (at ")
    if not text:
        return Problem(str(file), "file", f"a syntax error ({error})", "a TOML document")
    return Problem(str(file), place.rstrip(")"), f"a syntax error ({text})", "a TOML document")
