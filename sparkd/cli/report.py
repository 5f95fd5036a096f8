"""report: a support bundle of the ring and of this host. It works without the daemon, of which it then says so."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import io
import json
import os
import re
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkd import __version__
from sparkd.cli.answer import Json, members, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import say

if TYPE_CHECKING:
    from sparkd.cli.redact import Redactor

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_LOG_LINES = 5000
_INCIDENTS = 10  # the newest
_PATIENCE = 25.0
ETC = Path("/etc/sparkd")
_SECRET_FILES = ("token", "tokens.json", "cluster.key")
_READ_ME = """\
A support bundle of sparkd {version}, made {when} by `sparkctl report`{redacted}.

ring/       what the daemon answered for all nodes: status, plan, doctor, incidents, events, journals
host/       this host: units, addresses, routes, sysfs, memory
journal/    this host's journal: daemon, ranks, kernel
versions/   packages, kernel, firmware, driver, the engine's Python environment
etc/        the configuration, without secrets

Tokens, keys and what looks like one are replaced by [secret].{more}
"""
_MORE = """
Addresses, MAC addresses, names of hosts and users and paths of models are replaced, each everywhere by the same word:
{legend}."""
_MODEL = re.compile(
    r"""^\s*["']?(?:model[_-]path|model|tokenizer[_-]path|draft[_-]model[_-]path)["']?\s*=\s*["']([^"']+)""", re.M
)
_DESCRIPTION = re.compile(r"""(?:for|by|over) (?:user )?([^\s'"()\\]{3,64})(?= \((?:uid|token)\b)""")
"""Users of a host, and the names of tokens, which are mostly people's as well."""


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`report`. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "write a support bundle: what is known of the ring and of this host, without secrets"
    more = "Best as root, who may read all of it; it works while the daemon is dead, too."
    parser = commands.add_parser("report", help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])
    redact = "replace addresses, MAC addresses, names of hosts and users, paths of models, each by the same word"
    parser.add_argument("--redact", action="store_true", help=redact)
    parser.add_argument("--out", type=Path, metavar="FILE.tar.gz", help="default: sparkd-report-TIME.tar.gz here")
    parser.set_defaults(run=lambda options: report(client(options), options.out, redact=options.redact,
                                                   as_json=options.json))  # fmt: skip


def report(client: Client, out: Path | None, *, redact: bool, as_json: bool, root: Path = Path("/")) -> Exit:
    """Write the bundle. Raises Failure if it cannot be written; what cannot be had is told in it."""
    now = datetime.now().astimezone()
    out = out or Path(f"sparkd-report-{now:%Y%m%d-%H%M%S}.tar.gz")
    if not out.name.endswith((".tar.gz", ".tgz")):
        raise Failure(Exit.USAGE, f"--out {out}: expected a name that ends in .tar.gz")
    if out.exists():
        raise Failure(Exit.USAGE, f"--out {out}: it exists", "choose another name")
    parts = dict(collect(client, root))
    redactor = _redactor(parts, root, private=redact)
    texts = {name: redactor.text(text) for name, text in parts.items()}
    legend = ", ".join(f"{count} of {kind}-N" for kind, count in sorted(redactor.legend.items()))
    more = _MORE.format(legend=legend or "there were none") if redact else ""
    how = " --redact" if redact else ""
    texts["README.txt"] = _READ_ME.format(
        version=__version__, when=f"{now:%Y-%m-%d %H:%M:%S %z}", redacted=how, more=more
    )
    _write(out, texts, now.timestamp())
    missing = [name for name, text in texts.items() if text.startswith("cannot be had")]
    if as_json:
        say(json.dumps({"file": str(out), "parts": sorted(texts), "missing": sorted(missing)}, indent=2))
        return Exit.OK
    say(f"{out}: {len(texts)} parts, {out.stat().st_size / 1024:.0f} KiB; look into it before you give it away")
    if texts["ring/status.json"].startswith("cannot be had"):
        say(f"sparkctl: of the ring nothing is known: {texts['ring/status.json'].strip()}", sys.stderr)
    return Exit.OK


def collect(client: Client, root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each part, as they are."""
    from sparkd.cli import facts

    yield from _ring(client)
    yield from facts.gather(root)
    yield from _configuration(root)


def _ring(client: Client) -> Iterator[tuple[str, str]]:
    # One that has only just started is not waited for, and one that is dead is asked once.
    client = replace(client, patience=2.0)
    status = _asked(client, "/v1/ring")
    yield "ring/status.json", _text(status)
    if isinstance(status, Failure):
        return
    for name in ("plan", "doctor", "host"):
        yield f"ring/{name}.json", _text(_asked(client, f"/v1/{name}"))
    yield "ring/events.json", _text(_asked(client, "/v1/events?after=0&limit=500"))
    slow = replace(client, timeout=_PATIENCE)
    logs = _asked(slow, f"/v1/logs?lines={_LOG_LINES}")
    if isinstance(logs, Failure):
        yield "ring/logs.txt", _text(logs)
    else:
        yield "ring/logs.txt", _journals(logs)
    incidents = _asked(slow, "/v1/incidents")
    yield "ring/incidents.json", _text(incidents)
    if not isinstance(incidents, Failure):
        kept = {row.get("epoch") for node in rows(incidents, "nodes") for row in rows(node, "incidents")}
        for epoch in sorted((epoch for epoch in kept if isinstance(epoch, int)), reverse=True)[:_INCIDENTS]:
            yield f"ring/incidents/{epoch}.json", _text(_asked(slow, f"/v1/incidents/{epoch}"))


def _asked(client: Client, path: str) -> Json | Failure:
    try:
        return client.get(path)
    except Failure as failure:
        return failure


def _text(answer: Any) -> str:
    if isinstance(answer, Failure):
        return f"cannot be had: {answer.text}\n"
    return json.dumps(answer, indent=1, ensure_ascii=False) + "\n"


def _journals(answer: Json) -> str:
    from sparkd.cli import logs
    from sparkd.cli.text import Style

    style = Style(sys.maxsize)
    lines = [text for node, line in logs.in_order(answer) for text in logs.as_lines(node, line, style)]
    return "\n".join([*(f"# {note}" for note in logs.notes(answer, following=False)), *lines, ""])


def _configuration(root: Path) -> Iterator[tuple[str, str]]:
    from sparkd.cli.facts import read

    etc = root / ETC.relative_to("/")
    for pattern in ("*.toml", "sparkd.toml.d/*.toml", "profiles/*.toml"):
        for path in sorted(etc.glob(pattern)):
            yield f"etc/{path.relative_to(etc)}", read(path)
    yield "etc/files.txt", "".join(f"{line}\n" for line in _listing(etc))


def _listing(folder: Path) -> Iterator[str]:
    """Names, modes and sizes: a key with the wrong mode is a fault, its content is nobody's business."""
    if not folder.is_dir():
        yield f"cannot be had: there is no {folder}"
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            yield f"{facts.st_mode:06o} {facts.st_uid}:{facts.st_gid} {facts.st_size:>7} {path.relative_to(folder)}"


def _redactor(parts: dict[str, str], root: Path, *, private: bool) -> Redactor:
    from sparkd.cli.redact import Redactor

    return Redactor(_secrets(root), _names(parts) if private else (), private=private)


def _secrets(root: Path) -> Iterator[str]:
    """Every word of every file that holds one; unreadable ones cannot have come into the texts by us."""
    etc = root / ETC.relative_to("/")
    files = [*(etc / name for name in _SECRET_FILES), *etc.glob("tls/*.key")]
    for file in files:
        with contextlib.suppress(OSError):
            text = file.read_text("utf-8", errors="replace")
            yield text.strip()
            yield from (word for word in text.split() if len(word) >= 16)


def _names(parts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Nodes by rank first: node-1 is rank 0."""
    with contextlib.suppress(ValueError):
        ring = json.loads(parts["ring/status.json"])
        yield from (("node", name) for name in members(ring))
        yield "cluster", str(ring.get("cluster") or "")
    for text in (text for name, text in parts.items() if name.startswith("etc/")):
        yield from (
            ("node", name)
            for name in re.findall(r'^\s*name\s*=\s*"([^"]+)"', text, re.MULTILINE)
            if name not in ("probe", "sglang")
        )
        yield from (("model", path) for path in _MODEL.findall(text))
    yield "host", socket.gethostname()
    yield "host", socket.gethostname().partition(".")[0]
    users = {os.environ.get("SUDO_USER", ""), os.environ.get("USER", "")}
    with contextlib.suppress(OSError, KeyError):
        users.add(getpass.getuser())
    users |= {name for text in parts.values() for name in _DESCRIPTION.findall(text)}
    users |= set(re.findall(r"/home/([A-Za-z0-9._-]+)", "\n".join(parts.values())))
    yield from (("user", name) for name in sorted(users - {"root", "sparkd", "", "nobody"}))


def _write(out: Path, texts: dict[str, str], at: float) -> None:
    folder = out.name.removesuffix(".tgz").removesuffix(".tar.gz")
    try:
        # Nobody but its owner: what is in it is for whoever it is given to. Under a name that nobody can foresee, since
        # it may well be made by root in a directory where others can put links.
        descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        part = Path(name)
        try:
            with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, text in sorted(texts.items()):
                    data = text.encode(errors="replace")
                    info = tarfile.TarInfo(f"{folder}/{name}")
                    info.size, info.mtime, info.mode = len(data), int(at), 0o600
                    archive.addfile(info, io.BytesIO(data))
            os.replace(part, out)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise Failure(
            Exit.ERROR, f"cannot write {out}: {error.strerror}", "--out FILE.tar.gz, where you may"
        ) from error
