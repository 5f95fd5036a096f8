"""`sparkd-engine install | list | verify | use | remove | prune`: the engine's Python environment."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

from runtime.durable import alone, gib
from runtime.engine_install import lock as locks
from runtime.engine_install import sources
from runtime.engine_install.build import install
from runtime.engine_install.tree import differences
from runtime.engine_install.versions import OWN, ROOT, in_use, installed, prune, remove, use
from runtime.trouble import Trouble

PYTHON = Path("/usr/bin/python3")
WRONG = 3


def add(commands: Any) -> None:
    """The subcommands that work on installations."""
    making = _command(commands, "install", _install, "download, unpack and verify a version, and use it")
    making.add_argument("--profile", metavar="NAME", help="spark or cpu; by this machine's processor unless given")
    making.add_argument("--lock", type=Path, metavar="FILE", help="another lock than the one that came with sparkd")
    making.add_argument("--wheels", type=Path, metavar="DIR", help="take the files from there, not from an index")
    making.add_argument("--python", type=Path, default=PYTHON, metavar="FILE", help="interpreter (%(default)s)")
    making.add_argument("--again", action="store_true", help="also if it is there, because it is damaged")
    making.add_argument("--no-use", action="store_true", help="install it beside the one in use")
    making.add_argument("--quiet", action="store_true", help="no progress")
    showing = _command(commands, "list", _list, "what is installed, and what is in use")
    showing.add_argument("--json", action="store_true", help="as JSON")
    checking = _command(commands, "verify", _verify, "read every file of a version; name what differs")
    checking.add_argument("version", nargs="?", metavar="VERSION", help="the one in use unless given")
    checking.add_argument("--quiet", action="store_true", help="no progress")
    choosing = _command(commands, "use", _use, "make a version the one that the next start takes")
    choosing.add_argument("version", metavar="VERSION")
    choosing.add_argument("--force", action="store_true", help="also while an engine runs the one in use")
    removing = _command(commands, "remove", _remove, "remove a version that is not in use")
    removing.add_argument("version", metavar="VERSION")
    others = _command(commands, "sources", _sources, "sources of others that are no wheels, to the byte")
    others.add_argument("--fetch", type=Path, metavar="DIR", help="bring them there; otherwise they are listed")
    pruning = _command(commands, "prune", _prune, "remove old versions, downloads, and what was never finished")
    pruning.add_argument(
        "--keep", type=int, default=1, metavar="N", help="versions beside the one in use (%(default)s)"
    )


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    made.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="where versions are (%(default)s)")
    made.set_defaults(run=run)
    return made


def _install(options: argparse.Namespace) -> int:
    root: Path = options.root.absolute()
    name = options.profile or ("spark" if platform.machine() == "aarch64" else "cpu")
    lock = locks.read(options.lock or locks.shipped(name))
    with alone(root / OWN):
        print(f"{lock.version}: {len(lock.wheels)} packages, {gib(lock.size)} to download", file=sys.stderr)
        tree = install(lock, root, options.python, offline=options.wheels, again=options.again, quiet=options.quiet)
        if not options.no_use:
            use(root, lock.version)
    print(f"{tree}: installed and verified{'' if options.no_use else ', in use'}")
    return 0


def _list(options: argparse.Namespace) -> int:
    found = installed(options.root)
    if options.json:
        print(json.dumps([vars(each) for each in found], indent=1))
        return 0
    for each in found:
        running = f", run by {', '.join(each.users[:3])}" if each.users else ""
        mark = "*" if each.in_use else " "
        print(f"{mark} {each.name}  SGLang {each.sglang}, profile {each.profile}, installed {each.installed}{running}")
    if not found:
        print(f"{options.root}: nothing is installed")
    return 0


def _verify(options: argparse.Namespace) -> int:
    name = options.version or in_use(options.root)
    if not name:
        raise Trouble(f"{options.root}: nothing is in use", "`sparkd-engine install`, or name a version")
    wrong = differences(options.root / name, quiet=options.quiet)
    for each in wrong:
        print(f"sparkd-engine: {options.root / name}: {each}", file=sys.stderr)
    if wrong:
        print(f"  {len(wrong)} files differ: `sparkd-engine install --again` makes it anew", file=sys.stderr)
        return WRONG
    print(f"{options.root / name}: every file is as it was installed")
    return 0


def _use(options: argparse.Namespace) -> int:
    with alone(options.root / OWN):
        use(options.root, options.version, force=options.force)
    print(f"{options.root / options.version}: in use from the next start on")
    return 0


def _remove(options: argparse.Namespace) -> int:
    with alone(options.root / OWN):
        remove(options.root, options.version)
    print(f"{options.root / options.version}: removed")
    return 0


def _sources(options: argparse.Namespace) -> int:
    for each in (found := sources.read()):
        where = f"{sources.bring(each, options.fetch)}" if options.fetch else each.origin
        print(f"{each.name} {each.commit[:12]} ({each.licence}): {where}")
    if not found:
        print("there is none")
    return 0


def _prune(options: argparse.Namespace) -> int:
    with alone(options.root / OWN):
        for name in prune(options.root, max(options.keep, 0)):
            print(f"removed {name}")
    return 0
