"""config show, check, edit, set, unset: the configuration of this node; the daemon need not run."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean, columns, say

if TYPE_CHECKING:
    from sparkd.cli.etc import Etc
    from sparkd.config import Settings
    from sparkd.config.keys import Change

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT = Path("/etc/sparkd/sparkd.toml")
DROP_IN = "50-sparkctl.toml"
# Not in sparkd.toml itself: `cluster install` replaces that, and a value would be gone without a word.
_HEADER = f"# Written by `sparkctl config set`, over sparkd.toml; later names than {DROP_IN} count more than this.\n"
_BY_CLUSTER = "change cluster.toml, make the files anew with `sparkctl cluster create --force`, install them on each"
_NEXT = {
    "reload": "systemctl reload sparkd",
    "sparkd": "systemctl restart sparkd (ranks go on)",
    "ring": "the same on every node, systemctl restart sparkd on each (ranks go on), then: sparkctl restart",
}


def add_commands(commands: Commands) -> None:
    """`config` with its own commands."""
    text = "show and change the configuration of this node"
    parser = commands.add_parser("config", help=text, description=f"{text.capitalize()}.")
    inner = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        command = inner.add_parser(name, help=text, description=f"{text.capitalize()}. {more}".strip())
        command.add_argument("--config", type=Path, default=DEFAULT, metavar="FILE", help=f"default: {DEFAULT}")
        return command

    command = add("show", "show the value of every key", "Secrets are not among them.")
    command.add_argument("--origin", action="store_true", help="with the file and line of each, or default")
    command.set_defaults(run=lambda options: show(options.config, origin=options.origin, as_json=options.json))

    command = add("check", "check the configuration, its drop-ins, certificates and profile")
    command.set_defaults(run=lambda options: check(options.config, as_json=options.json))

    command = add("edit", "edit a copy, which takes the place of the file once it is without fault")
    command.add_argument("file", nargs="?", default="", metavar="DROP-IN", help="in place of sparkd.toml")
    command.set_defaults(run=lambda options: edit(options.config, options.file, as_json=options.json))

    more = f"It is written into the drop-in {DROP_IN}: sparkd.toml is replaced by `cluster install`."
    command = add("set", "set one key of this node", more)
    command.add_argument("key", metavar="KEY", help="as `config show` lists it, such as recovery.restarts")
    command.add_argument("value", metavar="VALUE")
    command.set_defaults(run=lambda options: change(options.config, options.key, options.value, as_json=options.json))

    command = add("unset", "take back what `set` has set")
    command.add_argument("key", metavar="KEY")
    command.set_defaults(run=lambda options: change(options.config, options.key, None, as_json=options.json))


def show(file: Path, *, origin: bool, as_json: bool) -> Exit:
    """Print the effective value of every key."""
    listed = rows(_etc(file).load(secrets=False))
    if as_json:
        say(json.dumps({"keys": listed}, indent=2))
        return Exit.OK
    table = [[row["key"], f"= {row['value']}", f"# {_origin(row)}"] for row in listed]
    if not origin:
        table = [row[:2] for row in table]
    say("\n".join("  ".join(row).rstrip() for row in columns([[clean(cell) for cell in row] for row in table])))
    return Exit.OK


def rows(settings: Settings) -> list[dict[str, Any]]:
    """Each key with its value as TOML has it, and the file and line that it is from; null for a default."""
    from sparkd.config.keys import effective
    from sparkd.config.lines import numbers

    lines: dict[str, dict[str, int]] = {}

    def place(key: str) -> tuple[str, int] | None:
        source = settings.sources.get(key.partition("[")[0], "")
        if source and source not in lines:
            lines[source] = numbers(Path(source).read_text("utf-8", errors="replace"))
        number = lines[source].get(key) if source else None
        return None if number is None else (source, number)

    found = []
    for key, value in effective(settings).items():
        # What the nodes have in common may be said once for all of them.
        common = f"cluster.{key.rpartition('.')[2]}" if key.startswith("cluster.node[") else key
        at = place(key) or place(common)
        source = at[0] if at else settings.sources.get(key)
        found.append({"key": key, "value": value, "file": source, "line": at[1] if at else None})
    return found


def _origin(row: dict[str, Any]) -> str:
    if row["file"] is None:
        return "default"
    return f"{row['file']}:{row['line']}" if row["line"] else str(row["file"])


def check(file: Path, *, as_json: bool) -> Exit:
    """Raises Failure with every problem; the routes of the host are `sparkd --check-config`'s."""
    settings = _etc(file).load()
    problems = list(_profile_faults(settings))
    if problems:
        raise Failure(Exit.CONFIG, "\n".join(problems), "sparkctl profile check")
    node = settings.cluster.node(settings.node)
    if as_json:
        say(json.dumps({"file": str(file), "node": node.name, "rank": node.rank, "good": True}, indent=2))
    else:
        say(f"{file}: good: {node.name} is rank {node.rank} of a ring of {settings.cluster.world_size}")
    return Exit.OK


def _profile_faults(settings: Settings) -> Iterator[str]:
    if settings.engine.name == "probe":
        return
    from sparkd.config import ConfigError, profiles

    etc = settings.paths.config.parent
    try:
        profiles.resolve(settings.engine.profile, profiles.folders(etc), profiles.site_file(etc))
    except ConfigError as error:
        yield from (str(problem) for problem in error.problems)


def change(file: Path, key: str, given: str | None, *, as_json: bool) -> Exit:
    """Set the key to the value, or take that back, in the drop-in; nothing changes if the outcome would be faulty."""
    from sparkd.cli.etc import text_of, write
    from sparkd.config.keys import effective
    from sparkd.config.lines import NotUnderstood, with_value, without

    etc = _etc(file)
    _known(key)
    before = etc.load(secrets=False)
    target = etc.file(DROP_IN)
    text = text_of(target) or _HEADER
    value = "" if given is None else _value(before, key, given)
    try:
        text = without(text, key) if given is None else with_value(text, key, value)
    except (NotUnderstood, tomllib.TOMLDecodeError) as error:
        raise Failure(Exit.CONFIG, f"{target}: {error}", f"sparkctl config edit {DROP_IN}") from error
    after = etc.tried({target: text})
    source = after.sources.get(key, "")
    if given is not None and source != str(target):
        hint = f"change it there: sparkctl config edit {Path(source).name}"
        raise Failure(Exit.CONFIG, f"{source} has {key} as well and counts more than {target}", hint)
    if text != text_of(target) and not (given is None and not target.exists()):
        write(target, text)
    now = effective(after)[key]
    _tell(_changes(before, after), f"{key} = {now} ({source or 'default'})", target, as_json=as_json)
    return Exit.OK


def edit(file: Path, name: str, *, as_json: bool) -> Exit:
    """Have the file edited; raises Failure, and leaves it as it is, while what was written is faulty."""
    from sparkd.cli.etc import REJECTED, text_of, write

    etc = _etc(file)
    target = etc.file(name)
    original = text_of(target)
    written = original
    while True:
        written = _edited(written, target.name)
        if written == original:
            _tell((), f"{target}: nothing has changed", target, as_json=as_json)
            return Exit.OK
        try:
            after = etc.tried({target: written})
        except Failure as failure:
            if _again(failure):
                continue
            rejected = target.with_name(target.name + REJECTED)
            write(rejected, written)
            text = f"{failure.text}\n{target} is as it was; what you wrote is in {rejected}"
            raise Failure(Exit.CONFIG, text, "sparkctl config edit") from failure
        break
    if text_of(target) != original:
        rejected = target.with_name(target.name + REJECTED)
        write(rejected, written)
        raise Failure(Exit.CONFIG, f"{target} was changed by somebody else meanwhile; what you wrote is in {rejected}")
    before = _before(etc)
    write(target, written)
    _tell(_changes(before, after) if before else (), f"{target}: changed", target, as_json=as_json)
    return Exit.OK


def _etc(file: Path) -> Etc:
    # What reads configuration is not there for the commands that need none.
    from sparkd.cli.etc import Etc

    return Etc(file)


def _before(etc: Etc) -> Settings | None:
    try:
        return etc.load(secrets=False)
    except Failure:
        return None


def _changes(before: Settings, after: Settings) -> tuple[Change, ...]:
    from sparkd.config.keys import changes

    # Looked at by somebody else, one of the two has no secrets.
    return tuple(each for each in changes(before, after) if each.key != "cluster.key")


def _known(key: str) -> None:
    from sparkd.config.keys import KEYS

    if key.partition(".")[0] in ("node", "cluster"):
        raise Failure(Exit.USAGE, f"{key} is the same question on every node, not one of this node alone", _BY_CLUSTER)
    if key not in KEYS:
        like = difflib.get_close_matches(key, KEYS, 2, 0.5)
        meant = f"; perhaps {' or '.join(like)}" if like else ""
        raise Failure(Exit.USAGE, f"{clean(key)} is no key of sparkd.toml{meant}", "sparkctl config show lists them")


def _value(settings: Settings, key: str, given: str) -> str:
    """As TOML: text needs no quotes where text belongs."""
    from sparkd.config.keys import KEYS, as_toml

    try:
        value = tomllib.loads(f"it = {given}")["it"]
    except tomllib.TOMLDecodeError:
        value = given
    if isinstance(KEYS[key].value(settings), str) and not isinstance(value, str):
        value = given
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Failure(Exit.USAGE, f"{key}: {clean(given)} is neither a number nor text")
    return as_toml(value)


def _edited(text: str, name: str) -> str:
    """What the editor makes of it. Raises Failure if there is none or it fails."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    command = shlex.split(named) or [next((each for each in ("sensible-editor", "vi") if shutil.which(each)), "vi")]
    with tempfile.TemporaryDirectory(prefix="sparkctl-") as folder:
        copy = Path(folder) / name
        copy.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*command, str(copy)], check=False).returncode
        except OSError as error:
            hint = "set EDITOR to an editor that is installed"
            raise Failure(Exit.ERROR, f"cannot run {command[0]}: {error.strerror}", hint) from error
        if code != 0:
            raise Failure(Exit.ERROR, f"{command[0]} has left with status {code}; nothing has changed")
        return copy.read_text(encoding="utf-8", errors="surrogateescape")


def _again(failure: Failure) -> bool:
    """Whether somebody is there who wants to go on editing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(failure.text, file=sys.stderr)
    try:
        return input("edit again? [Y/n] ").strip().lower() in ("", "y", "yes")
    except EOFError:
        return False


def _tell(changed: Sequence[Change], line: str, target: Path, *, as_json: bool) -> None:
    takes = next((takes for takes in ("ring", "sparkd", "reload") if any(c.takes == takes for c in changed)), "")
    if as_json:
        told = [{"key": c.key, "before": c.before, "after": c.after, "takes": c.takes} for c in changed]
        say(json.dumps({"file": str(target), "changes": told, "takes": takes or None}, indent=2))
        return
    say(line)
    for each in changed:
        say(f"  {each}")
    if takes:
        say(f"next: {_NEXT[takes]}")
