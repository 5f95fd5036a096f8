"""token create, list, revoke: who may use the API of this machine over TCP. As root, on the machine itself."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import grp
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean, say
from sparkd.config import DEFAULT_CONFIG
from sparkd.config.tokens import LARGEST, NAME, ROLES, Token, digest, parse, render

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

GROUP = "sparkd"
TOKENS = DEFAULT_CONFIG.with_name("tokens.json")
PREFIX = "sparkd_"
"""What finds a token that has got into a file or a log, for people and for scanners of secrets."""
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST = 500


def add_commands(commands: Commands) -> None:
    """`token` with its own commands."""
    text = "make, list and revoke the tokens for the API over TCP"
    more = "The daemon of this machine goes by them at once. As root."
    parser = commands.add_parser("token", help=text, description=f"{text.capitalize().replace('tcp', 'TCP')}. {more}")
    inner = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    text = "make a token and print it, which is the only time that it is shown"
    command = inner.add_parser("create", help=text, description=f"{text.capitalize()}.")
    command.add_argument("name", metavar="NAME", help="whose it is, or for what: it is in the journal of each change")
    command.add_argument("--role", choices=ROLES, required=True, help="look, or change the ring as well")
    command.add_argument("--expires", type=_duration, metavar="TIME", help="after so long, such as 12h, 90d or 4w")
    command.set_defaults(run=lambda options: create(options.name, options.role, options.expires, as_json=options.json))

    text = "list the tokens of this machine"
    command = inner.add_parser("list", help=text, description=f"{text.capitalize()}.")
    command.add_argument("--json", action="store_true", help="print them as one JSON object")
    command.set_defaults(run=lambda options: show(as_json=options.json))

    text = "make a token count no more, from the next request on"
    command = inner.add_parser("revoke", help=text, description=f"{text.capitalize()}.")
    command.add_argument("name", metavar="NAME", help="as `sparkctl token list` has it")
    command.set_defaults(run=lambda options: revoke(options.name, as_json=options.json))


def create(name: str, role: str, expires: float | None, path: Path = TOKENS, *, as_json: bool = False) -> Exit:
    """The token alone goes to standard output, to be redirected into a file. `expires`: seconds from now."""
    if not NAME.fullmatch(name):
        raise Failure(Exit.USAGE, f"{name!r} is no name: expected letters, digits and ._@-, at most 63")
    secret = PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    end = None if expires is None else now + expires
    made = Token(name, role, digest(secret), now, secret[-4:], end)
    with _changing(path) as tokens:
        if any(token.name == name for token in tokens):
            hint = f"sparkctl token revoke {name}, or take another name"
            raise Failure(Exit.CONFIG, f"there is a token {name} already", hint)
        if len(tokens) >= _MOST:
            raise Failure(Exit.CONFIG, f"there are {len(tokens)} tokens already", "revoke some: sparkctl token list")
        tokens.append(made)
    told = json.dumps({"name": name, "role": role, "expires": end, "token": secret}, indent=2) if as_json else secret
    try:
        say(told)
    except OSError:  # a full disk, or a reader that has left: nobody has it
        with _changing(path) as tokens:
            tokens[:] = [token for token in tokens if token.name != name]
        raise
    if as_json:
        return Exit.OK
    say(f"{path}: the token {name} may {_may(role)}{_until(end)}; it is shown only now", sys.stderr)
    return Exit.OK


def show(path: Path = TOKENS, *, as_json: bool) -> Exit:
    """Without what could be used: names, roles, ages and last characters."""
    tokens = _read(path)
    if as_json:
        print(json.dumps({"tokens": [{k: v for k, v in asdict(token).items() if k != "sha256"} for token in tokens]}))
        return Exit.OK
    if not tokens:
        say("there are no tokens; sparkctl token create makes one")
        return Exit.OK
    now = time.time()
    rows = [("NAME", "ROLE", "CREATED", "EXPIRES", "ENDS WITH")]
    for token in tokens:
        end = "never" if token.expires is None else _day(token.expires)
        expired = token.expires is not None and token.expires <= now
        rows.append((token.name, token.role, _day(token.created), end + (" (expired)" if expired else ""), token.last4))
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    for row in rows:
        print("  ".join(clean(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return Exit.OK


def revoke(name: str, path: Path = TOKENS, *, as_json: bool = False) -> Exit:
    with _changing(path) as tokens:
        left = [token for token in tokens if token.name != name]
        if len(left) == len(tokens):
            raise Failure(Exit.CONFIG, f"there is no token {name!r}", "sparkctl token list")
        tokens[:] = left
    say(json.dumps({"revoked": name}) if as_json else f"{path}: the token {name} is revoked")
    return Exit.OK


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """The tokens, to be changed in place; written when that is done, by one command at a time."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(path.parent, error) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = list(_read(path))
        yield tokens
        _write(path, render(tuple(tokens)))
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        os.close(folder)


def _read(path: Path) -> tuple[Token, ...]:
    try:
        with path.open("rb") as file:
            return parse(file.read(LARGEST))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unusable(path, error) from None
    except ValueError as error:
        hint = f"mend it, or delete it: the tokens in it count no more then ({path})"
        raise Failure(Exit.CONFIG, f"{path}: file: found what cannot be used: {error}", hint) from None


def _write(path: Path, content: bytes) -> None:
    """Replace the file in one step; the daemon, of group sparkd, can read it, and nobody ever sees a part of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if os.geteuid() == 0:
                os.fchown(descriptor, 0, _group())
            os.fchmod(descriptor, 0o640)
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _group() -> int:
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        raise Failure(Exit.ERROR, f"there is no group {GROUP}", "install the package sparkd first") from None


def _unusable(path: Path, error: OSError) -> Failure:
    if isinstance(error, PermissionError):
        return Failure(Exit.DENIED, f"no permission to use {path}", "tokens are made and listed by root: sudo sparkctl")
    hint = "sparkctl cluster install puts the configuration of this machine there"
    return Failure(Exit.CONFIG, f"{path}: {(error.strerror or str(error)).lower()}", hint)


def _duration(text: str) -> float:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: expected a number and m, h, d or w, such as 90d")
    return float(int(match[1]) * _UNITS[match[2]])


def _may(role: str) -> str:
    return "change the ring" if role == "operate" else "look at the ring"


def _until(end: float | None) -> str:
    return "" if end is None else f" until {_day(end)} UTC"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
