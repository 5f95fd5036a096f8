"""What the completions of bash and zsh ask for while a line is being typed: ranks, epochs, profiles, keys.

From this machine alone and within half a second, or nothing: the shell waits for it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparkd.cli.answer import members, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean, say

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

COMMAND = "_words"
"""Not a command for people: it is in no help and no manual."""
KINDS = ("ranks", "epochs", "profiles", "keys", "dropins")
_PATIENCE = 0.5
_PLAIN = re.compile(r"[\w.@+:\[\]][\w.@+:\[\]-]*")
"""bash takes the words that it is given for ones of the command line, and would carry out what is in `$(...)`."""
_INCIDENTS = Path("/var/lib/sparkd/incidents")
_PROFILES = (Path("/etc/sparkd/profiles"), Path("/usr/share/sparkd/profiles"))
_DROP_INS = Path("/etc/sparkd/sparkd.toml.d")


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(COMMAND)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--socket", type=Path, default=Client.unix)
    parser.set_defaults(run=lambda options: tell(options.kind, Client(options.socket, timeout=_PATIENCE, patience=0)))


def tell(kind: str, client: Client) -> Exit:
    """Print the words, one a line; none if they cannot be known at once."""
    for word in sorted({word for word in _words(kind, client) if _PLAIN.fullmatch(word)}):
        say(word)
    return Exit.OK


def _words(kind: str, client: Client) -> Iterator[str]:
    if kind == "keys":
        from sparkd.config.keys import KEYS

        yield from KEYS
    elif kind == "profiles":
        yield from (path.stem for folder in _PROFILES for path in _files(folder))
    elif kind == "dropins":
        yield from (path.name for path in _files(_DROP_INS))
    else:
        with contextlib.suppress(Failure):
            ring = client.get("/v1/ring")
            if kind == "ranks":
                yield from members(ring)
                yield from (clean(row.get("rank")) for row in rows(ring, "ranks"))
            else:
                yield clean(ring.get("epoch"))
                yield from (clean(death.get("epoch")) for death in rows(ring, "deaths"))
        if kind == "epochs":
            yield from (path.name for path in _inside(_INCIDENTS) if path.name.isdecimal())


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in _inside(folder) if path.suffix == ".toml")


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
