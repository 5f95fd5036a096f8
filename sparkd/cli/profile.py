"""profile list, show, check: the engine's profiles on this node, as files; the daemon need not run."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import Style, clean, say, style_of

if TYPE_CHECKING:
    from sparkd.config import Engine, Problem
    from sparkd.config.resolved import Resolved, Setting

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


@dataclass(frozen=True)
class Place:
    """Where things are below `root`, and what this node's sparkd.toml says of the engine."""

    root: Path
    folders: tuple[Path, ...]
    site: Path
    engine: Engine

    @classmethod
    def below(cls, root: Path) -> Place:
        from sparkd.config import profiles

        etc = root / profiles.ETC.relative_to("/")
        share = root / profiles.SHARE.relative_to("/")
        return cls(root, profiles.folders(etc, share), profiles.site_file(etc), _engine(etc / "sparkd.toml"))

    def resolve(self, name: str) -> Resolved:
        from sparkd.config import profiles

        return profiles.resolve(name, self.folders, self.site)


@dataclass(frozen=True)
class Verdict:
    """Of one profile. `why`: what it could not be compared with SGLang for, "" if it was."""

    name: str
    problems: tuple[Problem, ...]
    told: str = ""
    why: str = ""


def add_commands(commands: Commands) -> None:
    """`profile` with its own commands."""
    text = "show and check the engine's profiles on this node"
    parser = commands.add_parser("profile", help=text, description=f"{text.capitalize()}.")
    inner = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        command = inner.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip())
        command.add_argument("--json", action="store_true", help="print one JSON object")
        root = "look into the file system of another machine, mounted at ROOT"
        command.add_argument("--root", type=Path, default=Path("/"), help=root)
        return command

    command = add("list", "list the profiles and their files")
    command.set_defaults(run=lambda options: show_all(Place.below(options.root), as_json=options.json))

    command = add("show", "show what a profile and this site's engine.toml make of each setting, and why")
    command.add_argument("name", metavar="NAME")
    command.set_defaults(run=lambda options: show(Place.below(options.root), options.name, as_json=options.json))

    more = "Without NAME: the one that sparkd.toml names, or all. Nothing of SGLang is imported or run."
    command = add("check", "check a profile, and compare it with the SGLang that is installed", more)
    command.add_argument("name", nargs="?", metavar="NAME")
    python = "the interpreter of SGLang's environment (default: as in sparkd.toml)"
    command.add_argument("--python", type=Path, metavar="PATH", help=python)
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> Exit:
    return check(Place.below(options.root), options.name, options.python, as_json=options.json)


def show_all(place: Place, *, as_json: bool) -> Exit:
    """Print each profile; one that cannot be used says so."""
    rows = []
    for name, file in _listed(place).items():
        found, problems = _resolved(place, name)
        rows.append(
            {
                "profile": name,
                "file": str(file),
                "configured": place.engine.name == "sglang" and place.engine.profile == name,
                "sglang": found.sglang if found else None,
                "description": found.description if found else None,
                "problems": [asdict(problem) for problem in problems],
            }
        )
    if as_json:
        say(json.dumps({"profiles": rows}, indent=2))
        return Exit.OK
    style = style_of(sys.stdout)
    for row in rows:
        mark = " (this node's)" if row["configured"] else ""
        say(f"{style.paint(clean(row['profile']), 'bold')}{mark}  {row['file']}")
        told = f"SGLang {row['sglang']}: {row['description']}"
        faulty = f"cannot be used: sparkctl profile check {row['profile']}"
        say("\n".join(style.wrap(clean(told if row["sglang"] else faulty), "  ", "  ")))
    if not rows:
        say(f"no profile in {' or '.join(map(str, place.folders))}")
    return Exit.OK


def show(place: Place, name: str, *, as_json: bool) -> Exit:
    """Print every setting with its value, where it is from, why, and on whose word. Raises Failure."""
    found, problems = _resolved(place, name)
    if found is None:
        known = ", ".join(_listed(place)) or "none"
        raise Failure(Exit.CONFIG, "\n".join(map(str, problems)), f"profiles on this node: {known}")
    if as_json:
        settings = [asdict(setting) for setting in found.settings]
        told = {"profile": found.name, "file": found.file, "description": found.description, "sglang": found.sglang}
        more = {"allow_sglang": found.allowed, "settings": settings, "arguments": found.arguments}
        say(json.dumps(told | more, indent=2))
        return Exit.OK
    say("\n".join(_lines(found, style_of(sys.stdout))))
    return Exit.OK


def _lines(found: Resolved, style: Style) -> list[str]:
    from sparkd.config.resolved import DEFAULT, TABLES

    allowed = f", here also {', '.join(found.allowed)}" if found.allowed else ""
    lines = [f"{style.paint(found.name, 'bold')}  {found.file}, for SGLang {found.sglang}{allowed}"]
    lines += style.wrap(clean(found.description), "", "") if found.description else []
    for table in TABLES:
        settings = [setting for setting in found.settings if setting.table == table]
        lines += ["", style.paint(f"[{table}]", "bold")] if settings else []
        for setting in settings:
            origin = "" if setting.origin == found.file else f"  ({setting.origin}{_replaced(setting)})"
            value = _toml(setting.value)
            dim = "dim" if setting.origin == DEFAULT else None
            lines.append(style.paint(f"  {setting.name} = {value}", dim) + style.paint(origin, "dim"))
            told = f"{setting.why}{f' [{setting.source}]' if setting.source else ''}"
            lines += style.wrap(clean(told), "      ", "      ") if told else []
    return lines


def _replaced(setting: Setting) -> str:
    return f"; the profile has {_toml(setting.replaced.value)}" if setting.replaced is not None else ""


def _toml(value: Any) -> str:
    """JSON's forms of numbers, texts, truths and arrays are TOML's too."""
    return clean(json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False))


def check(place: Place, name: str | None, python: Path | None, *, as_json: bool) -> Exit:
    """Print what is wrong with the profiles, each with file, key, what was found and what is expected.

    CONFIG if anything is, DOUBT if one could not be compared with SGLang. Raises Failure if there is none.
    """
    configured = [place.engine.profile] if place.engine.name == "sglang" and place.engine.profile else []
    names = [name] if name is not None else configured or list(_listed(place))
    if not names:
        raise Failure(Exit.CONFIG, f"no profile in {' or '.join(map(str, place.folders))}")
    verdicts = [_judge(place, each, python or Path(place.engine.python)) for each in names]
    if as_json:
        rows = [{**asdict(verdict), "profile": verdict.name} for verdict in verdicts]
        say(json.dumps({"profiles": [{k: v for k, v in row.items() if k != "name"} for row in rows]}, indent=2))
    else:
        for verdict in verdicts:
            _tell(verdict)
    if any(verdict.problems for verdict in verdicts):
        return Exit.CONFIG
    return Exit.DOUBT if any(verdict.why for verdict in verdicts) else Exit.OK


def _tell(verdict: Verdict) -> None:
    for problem in verdict.problems:
        say(clean(problem))
    count = len(verdict.problems)
    said = f"{count} problem{'s' if count > 1 else ''}" if count else "good"
    say(clean(f"{verdict.name}: {said}; {verdict.why or verdict.told}"))


def _judge(place: Place, name: str, python: Path) -> Verdict:
    from sparkd.config import Problem
    from sparkd.config.listing import asked, strangers
    from sparkd.host.engine import EngineFiles
    from sparkd.ports import DoorError

    found, problems = _resolved(place, name)
    if found is None:
        return Verdict(name, tuple(problems), why="not compared with SGLang")
    if not python.is_absolute():
        raise Failure(Exit.USAGE, f"--python {python}: expected an absolute path")
    files = EngineFiles(place.root)
    try:
        there = files.installed(python)
        if not there.version:
            return Verdict(name, (), why=f"not compared: there is no SGLang in the environment of {python}")
        if not found.accepts(there.version):
            expected = f"{found.sglang}, which the profile is written for, or allow_sglang in {place.site}"
            fault = Problem(str(python), "sglang", f"version {there.version}", f"version {expected}")
            return Verdict(name, (fault,), why="not compared with another SGLang")
        if there.package is None:
            return Verdict(name, (), why=f"not compared: the source of SGLang is not beside {python}")
        options, variables = asked(found)
        answer = files.options(there.package, options, variables)
    except (DoorError, OSError) as error:
        return Verdict(name, (), why=f"not compared: {error}")
    finally:
        files.close()
    told = f"{len(options)} options and {len(variables)} variables compared with SGLang {there.version}"
    return Verdict(name, tuple(strangers(found, there.version, answer)), told)


def _resolved(place: Place, name: str) -> tuple[Resolved | None, Sequence[Problem]]:
    from sparkd.config import ConfigError

    try:
        return place.resolve(name), ()
    except ConfigError as error:
        return None, error.problems


def _listed(place: Place) -> dict[str, Path]:
    from sparkd.config import profiles

    try:
        return profiles.listed(place.folders)
    except OSError as error:
        raise Failure(Exit.DENIED, f"{error.filename}: {error.strerror}") from None


def _engine(config: Path) -> Engine:
    """`[engine]` of this node; the defaults where there is no configuration, or none that can be read."""
    from sparkd.config import ConfigError, Engine
    from sparkd.config.files import read
    from sparkd.config.tables import Checker

    with contextlib.suppress(ConfigError):
        return Checker(read(config, "the configuration of this node", drop_ins=True)).engine_and_listen()[0]
    return Engine()
