"""logs: what daemons and ranks of all nodes have printed, in the order of time, with the rank in front."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sparkd.cli.answer import Json, members, number, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.moments import EXPECTED, moment
from sparkd.cli.text import Style, clean, say, whole_lines
from sparkd.core.journal import merged

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

POLL = 1.0
LINES, _MOST = 200, 5000
_PATIENCE = 25.0  # seconds; the daemon gives the nodes 8, and others may have asked first
_ERROR, _WARNING = 3, 4  # syslog(3)
_CLOCKS_DIFFER = 0.5  # seconds from which it is worth a word
_COLOURS = ("bold", None, "dim")


@dataclass(frozen=True)
class Asked:
    """What to show. rank: of this rank alone. since: Unix seconds."""

    epoch: int | None = None
    rank: int | None = None
    since: float | None = None
    lines: int = LINES
    grep: str = ""

    def path(self, cursors: dict[str, str]) -> str:
        """Once there are cursors the pattern is ours: the daemons would look through the same lines again and again."""
        given = {"epoch": self.epoch, "rank": self.rank, "since": self.since, "lines": self.lines}
        told = [(name, str(value)) for name, value in given.items() if value is not None]
        if cursors:
            told.append(("after", ",".join(f"{node}={cursor}" for node, cursor in cursors.items())))
        elif self.grep:
            told.append(("grep", self.grep))
        return f"/v1/logs?{urllib.parse.urlencode(told, errors='replace')}"


@dataclass
class Told:
    """What has been shown so far: where each node's journal goes on, and what was said of silent ones."""

    cursors: dict[str, str] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`logs`. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "show what the daemons and ranks of all nodes have printed, in order of time"
    more = "The rank is in front. The daemons fetch it from each other; only those who may operate the ring get it."
    parser = commands.add_parser("logs", help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])
    parser.add_argument("--epoch", type=int, metavar="EPOCH", help="of that epoch alone")
    parser.add_argument("--rank", metavar="RANK", help="of that rank alone, or of that node")
    parser.add_argument("--since", metavar="TIME", help=f"not older than {EXPECTED}")
    parser.add_argument("--lines", type=int, default=LINES, metavar="N", help=f"of each node, the newest ({LINES})")
    parser.add_argument("--grep", default="", metavar="PATTERN", help="lines that match, as with journalctl --grep")
    parser.add_argument("--follow", action="store_true", help="go on with new ones, until interrupted")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=lambda options: _run(client(options), options))


def _run(client: Client, options: argparse.Namespace) -> Exit:
    if not 1 <= options.lines <= _MOST:
        raise Failure(Exit.USAGE, f"--lines {options.lines}: expected a number from 1 to {_MOST}")
    if options.epoch is not None and options.epoch < 0:
        raise Failure(Exit.USAGE, f"--epoch {options.epoch}: expected the number of an epoch")
    since = None
    if options.since is not None:
        try:
            since = moment(options.since, datetime.now().astimezone()).timestamp()
        except (ValueError, OverflowError):
            raise Failure(Exit.USAGE, f"--since {options.since}: expected {EXPECTED}") from None
    rank = _rank(client, options.rank) if options.rank is not None else None
    asked = Asked(options.epoch, rank, since, options.lines, options.grep)
    return logs(replace(client, timeout=_PATIENCE), asked, as_json=options.json, follow=options.follow)


def _rank(client: Client, text: str) -> int:
    """Given by number or by the name of its node."""
    nodes = members(client.get("/v1/ring"))
    if text.isascii() and text.isdecimal() and len(text) < 4 and int(text) < len(nodes):
        return int(text)
    if text in nodes:
        return nodes.index(text)
    expected = f"a rank from 0 to {len(nodes) - 1}, or one of {', '.join(nodes)}"
    raise Failure(Exit.USAGE, f"--rank {clean(text)}: expected {expected}")


def logs(client: Client, asked: Asked, *, as_json: bool, follow: bool) -> Exit:
    """Print the lines; with `follow`, new ones until interrupted, also over a restart of sparkd.

    ERROR if no node could be asked for its lines.
    """
    told = Told()
    style = whole_lines(sys.stdout)
    known = _tell(client, asked, told, style, as_json=as_json)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(client, asked, told, style, as_json=as_json)
        return Exit.OK
    return Exit.OK if known else Exit.ERROR


def _follow(client: Client, asked: Asked, told: Told, style: Style, *, as_json: bool) -> None:
    asked = replace(asked, lines=max(asked.lines, 1000))
    while True:
        time.sleep(POLL)
        try:
            _tell(client, asked, told, style, as_json=as_json)
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE:
                raise
            _note(told, f"{failure} (trying again)")


def _tell(client: Client, asked: Asked, told: Told, style: Style, *, as_json: bool) -> bool:
    """Print what a look finds, and who is silent; whether anybody was not."""
    answer = client.get(asked.path(told.cursors))
    pattern = _pattern(asked.grep) if told.cursors and asked.grep else None
    for node, line in in_order(answer):
        text = str(line.get("text") or "")
        if pattern is None or pattern.search(text):
            say(json.dumps({"node": node, **line}) if as_json else "\n".join(as_lines(node, line, style)))
    for note in notes(answer, following=bool(told.cursors)):
        _note(told, note)
    nodes = rows(answer, "nodes")
    silent = [clean(node.get("node")) for node in nodes if node.get("error")]
    # Told once, until it has answered again.
    answered = [clean(node.get("node")) for node in nodes if not node.get("error")]
    told.said = {said for said in told.said if not said.startswith(tuple(f"{name}: " for name in answered))}
    told.cursors |= {clean(node.get("node")): clean(node.get("cursor")) for node in nodes if node.get("cursor")}
    return len(silent) < len(nodes)


def in_order(answer: Json) -> Iterator[tuple[str, Json]]:
    """The lines of all nodes with the node of each, by the clock of the node that was asked: it knows how far the
    others' are ahead of its own. The lines of one node stay as they are in its journal. Pure."""
    journals = []
    for node in rows(answer, "nodes"):
        name, rank = clean(node.get("node")), node.get("rank")
        lines = [(number(line.get("at")) or 0.0, (name, {"rank": rank, **line})) for line in rows(node, "lines")]
        journals.append((number(node.get("offset")) or 0.0, lines))
    for at, (name, line) in merged(journals):
        yield name, {**line, "at": round(at, 6)}


def notes(answer: Json, *, following: bool) -> Iterator[str]:
    """What the lines do not tell: who is silent, whose clock is off, where lines are left out. Pure."""
    for node in rows(answer, "nodes"):
        name, offset = clean(node.get("node")), number(node.get("offset")) or 0.0
        if node.get("error"):
            yield f"{name}: its lines are not known: {clean(node.get('error'))}"
        elif abs(offset) >= _CLOCKS_DIFFER:
            where = "ahead" if offset > 0 else "behind"
            yield f"{name}: its clock is {abs(offset):.1f} s {where}; its lines are where they belong by the clock here"
        if node.get("cut") and following:
            yield f"{name}: it prints more than can be shown; lines are left out"


def _note(told: Told, note: str) -> None:
    if note not in told.said:
        told.said.add(note)
        say(f"sparkctl: {clean(note)}", sys.stderr)


def as_lines(node: str, line: Json, style: Style) -> Iterator[str]:
    """Each on as many lines as it had, which begin alike."""
    rank, at = line.get("rank"), number(line.get("at")) or 0.0
    when = f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
    unit = clean(line.get("unit")).removeprefix("sparkd-") or "?"
    start = f"{clean(rank)} {node}  {when}  {unit:<8}"
    level = number(line.get("priority"))
    colour = None if level is None or level > _WARNING else "red" if level <= _ERROR else "yellow"
    painted = style.paint(start, _COLOURS[rank % len(_COLOURS)] if isinstance(rank, int) else None)
    for text in str(line.get("text") or "").splitlines() or [""]:
        yield f"{painted}  {style.paint(clean_line(text), colour)}".rstrip()


def clean_line(text: str) -> str:
    """As it is, but for what a terminal would take for a command."""
    return "".join(char if char.isprintable() else " " for char in text)


def _pattern(text: str) -> re.Pattern[str]:
    """As journalctl reads it: without an upper-case letter, the case makes no difference."""
    try:
        return re.compile(text, 0 if any(char.isupper() for char in text) else re.IGNORECASE)
    except re.error as error:
        raise Failure(Exit.USAGE, f"--grep {clean(text)}: {error}") from None
