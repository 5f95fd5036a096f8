"""The command line: what can be asked, and how a command ends."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkd import __version__
from sparkd.cli import (
    bench,
    cluster,
    config,
    discover,
    doctor,
    fabric,
    incidents,
    logs,
    profile,
    report,
    ring,
    show,
    smoke,
    token,
    words,
)
from sparkd.cli.client import SOCKET, Client, parse_url, read_token
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.leaves import leaves
from sparkd.cli.render import findings
from sparkd.cli.text import COLOURS, clean, say, style_of, use_colour

Add = Callable[..., argparse.ArgumentParser]
"""(name, help, more of it): a command of the first level that talks to sparkd."""

_CONDUCTOR = (
    "Rank 0's host, the conductor, carries it out, whichever node is asked. While that host is off, "
    "systemctl stop 'sparkd-rank@*' on a node ends the rank of that node."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code; argparse itself leaves with 2 on wrong usage, 0 after --help."""
    if sys.stdout is None:  # closed, as by >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the command lasts
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and logs have any letter; what a terminal of another locale does not have is written as its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except OSError as error:
        # The reader has left, as `head` does, or the disk is full. Python would complain once more when it flushes at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"sparkctl: {error.filename or 'standard output'}: {error.strerror or error}", file=sys.stderr)
        return Exit.ERROR


def _run(arguments: Sequence[str]) -> int:
    try:
        options = parser().parse_args(arguments)
    except SystemExit as end:
        if end.code == Exit.USAGE and "--json" in arguments:
            hint = "--help; standard error has it in words"
            say(json.dumps(Failure(Exit.USAGE, "wrong usage of the command", hint).document()))
        raise
    use_colour(options.color)
    try:
        return int(options.run(options))
    except (Failure, KeyboardInterrupt) as error:
        failure = error if isinstance(error, Failure) else Failure(Exit.INTERRUPTED, "interrupted")
        if getattr(options, "json", False):
            say(json.dumps(failure.document()))
        _tell(failure)
        return failure.exit_code


def _tell(failure: Failure) -> None:
    style = style_of(sys.stderr)
    lines = [f"sparkctl: {clean(line)}" for line in failure.text.splitlines()]
    lines[0] = style.paint(lines[0], "red")
    lines += findings([finding for finding in failure.findings if isinstance(finding, dict)], style)
    if failure.hint:
        lines.append(f"hint: {clean(failure.hint)}")
    print("\n".join(lines), file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """All commands with all their options: what --help, the completions and the manual page are held to."""
    codes = "\n".join(f"  {code.value:>3}  {code.meaning}" for code in Exit)
    top = argparse.ArgumentParser(
        prog="sparkctl",
        description="Operate a ring of DGX Sparks. Every node answers for the whole ring.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sparkctl {__version__}")
    raw = argparse.RawDescriptionHelpFormatter
    daemon = _daemon_options()
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, help_text: str, more: str = "") -> argparse.ArgumentParser:
        text = f"{help_text[0].upper()}{help_text[1:]}. {more}".strip()
        description = textwrap.fill(text, 78, break_on_hyphens=False)
        return commands.add_parser(name, help=help_text, description=description, parents=[daemon], formatter_class=raw)

    _add_changes(add)
    _add_looks(add)
    incidents.add_commands(commands, daemon, _client)
    smoke.add_commands(commands, daemon, _client)
    logs.add_commands(commands, daemon, _client)
    bench.add_commands(commands, daemon, _client)
    report.add_commands(commands, daemon, _client)
    fabric.add_commands(commands, daemon, _client)
    profile.add_commands(commands)
    config.add_commands(commands)
    cluster.add_commands(commands)
    token.add_commands(commands)
    words.add_command(commands)
    for _, each in leaves(top):
        _with_output_options(each)
    return top


def _add_changes(add: Add) -> None:
    command = add("up", "ask for the ring to run", f"If a check fails, nothing is started. {_CONDUCTOR}")
    _waiting(command, "the ring is ready, has been refused or has failed")
    command.set_defaults(run=lambda options: ring.up(_client(options), _manner(options)))

    always = "This is valid in every state but maintenance, which only --force ends with it."
    command = add("down", "ask for the ring to stop", f"{always} {_CONDUCTOR}")
    _waiting(command, "no rank is left on any node")
    command.add_argument("--force", action="store_true", help="also during maintenance, which ends with it")
    drain = "take no new requests, and stop when none runs any more, or after so many seconds; up takes it back"
    command.add_argument("--drain", type=_seconds, metavar="SECONDS", help=drain)
    command.set_defaults(
        run=lambda options: ring.down(_client(options), _manner(options), force=options.force, drain=options.drain)
    )

    more = "A ring is not stopped if a start would be refused now; one that is down is started."
    command = add("restart", "ask for a stop, and for a start once no rank is left", f"{more} {_CONDUCTOR}")
    _waiting(command, "the ring is ready again, has been refused or has failed")
    command.set_defaults(run=lambda options: ring.restart(_client(options), _manner(options)))

    command = add(
        "clear",
        "let a ring that is held, or a host that is held out, after repeated failures take part again",
        _CONDUCTOR,
    )
    command.set_defaults(run=lambda options: ring.clear(_client(options), _manner(options)))

    order = "leave the ring as it is, for maintenance: start, stop and repair nothing"
    command = add("hold", order, f"What dies is shown, and nothing follows from it until resume. {_CONDUCTOR}")
    command.add_argument("--reason", default="", metavar="TEXT", help="shown to everyone who looks at the ring")
    command.set_defaults(run=lambda options: ring.hold(_client(options), options.reason, _manner(options)))

    command = add("resume", "end the maintenance that hold began", _CONDUCTOR)
    command.set_defaults(run=lambda options: ring.resume(_client(options), _manner(options)))


def _add_looks(add: Add) -> None:
    command = add("status", "show what the ring does and what it waits for")
    command.add_argument("--json", action="store_true", help="print what the API says")
    command.add_argument("--watch", action="store_true", help="again whenever it changes, until interrupted")
    command.add_argument("--full", action="store_true", help="all of it, also where a terminal has too few lines")
    command.set_defaults(
        run=lambda options: show.status(_client(options), as_json=options.json, watch=options.watch, full=options.full)
    )

    command = add("plan", "show what the fabric should be: cables, links, addresses, routes")
    there = "the cables that are there instead, as the ports hear them; fails with 3 unless they are one ring"
    command.add_argument("--discover", action="store_true", help=there)
    command.add_argument("--json", action="store_true", help="print what the API says")
    command.set_defaults(run=_plan)

    command = add("doctor", "show what is wrong on any node, what cannot be told, and how to mend it")
    command.add_argument("--all", action="store_true", help="the checks that pass or do not apply as well")
    command.add_argument("--json", action="store_true", help="print what the API says")
    command.set_defaults(
        run=lambda options: doctor.doctor(_client(options), as_json=options.json, everything=options.all)
    )

    command = add("events", "show what this node has seen and done, oldest first")
    command.add_argument("--follow", action="store_true", help="go on with new ones, until interrupted")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")
    command.set_defaults(run=lambda options: show.events(_client(options), as_json=options.json, follow=options.follow))


def _plan(options: argparse.Namespace) -> Exit:
    look = discover.discover if options.discover else show.plan
    return look(_client(options), as_json=options.json)


def _daemon_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("where sparkd listens")
    group.add_argument("--socket", type=Path, default=SOCKET, metavar="PATH", help=f"Unix socket (default {SOCKET})")
    group.add_argument("--url", metavar="URL", help="http://127.0.0.1:PORT in place of the Unix socket")
    text = "with --url: holds a token that allows changes (sparkctl token create)"
    group.add_argument("--token-file", type=Path, metavar="FILE", help=text)
    return parser


def _with_output_options(command: argparse.ArgumentParser) -> None:
    """What every command has."""
    known = {option for action in command._actions for option in action.option_strings}
    if "--json" not in known:
        command.add_argument("--json", action="store_true", help="print one JSON document, for programs")
    when = "colour on a terminal (auto, the default), always or never"
    command.add_argument("--color", choices=COLOURS, default="auto", help=when)


def _manner(options: argparse.Namespace) -> ring.Manner:
    return ring.Manner(getattr(options, "wait", False), getattr(options, "timeout", None), options.json)


def _waiting(parser: argparse.ArgumentParser, end: str) -> None:
    parser.add_argument("--wait", action="store_true", help=f"end when {end}; tell meanwhile what it waits for")
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="with --wait: give up waiting after S seconds")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds above 0")
    return value


def _client(options: argparse.Namespace) -> Client:
    if options.url is None:
        return Client(options.socket)
    return Client(tcp=parse_url(options.url), token=read_token(options.token_file))
