"""cluster create, cluster install: from a description of the cluster to a configured machine."""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import say
from sparkd.config import ConfigError, load

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """`cluster` with its own commands."""
    text = "make the files of each node, and install them"
    parser = commands.add_parser("cluster", help=text, description=f"{text.capitalize()}.")
    inner = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    text = "write configuration, certificates and keys for each node of a description"
    command = inner.add_parser("create", help=text, description=f"{text.capitalize()}. They are secrets.")
    command.add_argument("file", type=Path, metavar="CLUSTER.toml", help="a [cluster] table; others as in sparkd.toml")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets DIR/ca and DIR/NODE")
    force = "go on in an existing DIR: its CA and cluster key stay, all else is made anew"
    command.add_argument("--force", action="store_true", help=force)
    command.set_defaults(
        run=lambda options: create(options.file, options.out, force=options.force, as_json=options.json)
    )

    text = "put the files of this node under /etc/sparkd, as root"
    command = inner.add_parser("install", help=text, description=f"{text.capitalize()}.")
    command.add_argument("dir", type=Path, metavar="DIR/NODE", help="a directory that create has made")
    root = "install into the file system of another machine, mounted at ROOT"
    command.add_argument("--root", type=Path, default=Path("/"), help=root)
    command.set_defaults(run=lambda options: install(options.dir, options.root, as_json=options.json))


def create(description: Path, out: Path, *, force: bool, as_json: bool = False) -> Exit:
    """Write the files of all nodes and say what to do with them."""
    # cryptography takes longer to import than all other commands to run.
    from sparkd.cli import bundle

    made = bundle.create(description, out, force=force, now=datetime.now(UTC))
    if as_json:
        say(json.dumps({"nodes": {node: str(out / node) for node in made.nodes}, "kept": made.kept}, indent=2))
        return Exit.OK
    if made.kept:
        say(f"{out}: kept the CA and the cluster's key; certificates and sparkd.toml are new")
    for node in made.nodes:
        say(f"{out / node}: copy it to {node}; there, as root: sparkctl cluster install {node}")
    say(f"{out / bundle.CA}: signs further nodes; keep it in a safe place, on none of the nodes")
    return Exit.OK


def install(directory: Path, root: Path, *, as_json: bool = False) -> Exit:
    """Check the files of this node, put them in place and say how to go on."""
    from sparkd.cli import bundle

    if root == Path("/") and os.geteuid() != 0:
        raise Failure(
            Exit.DENIED, "only root can install a configuration", f"sudo sparkctl cluster install {directory}"
        )
    settings = bundle.check_bundle(directory, datetime.now(UTC))
    group = _group(root, bundle.GROUP)
    try:
        kept = bundle.install(directory, root, 0, group)
    except OSError as error:
        raise Failure(Exit.ERROR, f"cannot install: {error}") from error
    target = root / "etc/sparkd/sparkd.toml"
    for backup in () if as_json else kept:
        say(f"{backup}: the configuration that was here")
    try:
        # Drop-ins that were here before now change another file than they were written for.
        load(target, {})
    except ConfigError as error:
        raise Failure(Exit.CONFIG, f"installed, but it cannot be used as it is:\n{error}") from error
    node = settings.cluster.node(settings.node)
    if as_json:
        document = {"node": node.name, "rank": node.rank, "file": str(target), "kept": [str(path) for path in kept]}
        say(json.dumps(document, indent=2))
        return Exit.OK
    say(f"{target}: this machine is {node.name}, rank {node.rank} of {settings.cluster.name}")
    if root == Path("/") and not _own_address(str(node.address)):
        say(f"warning: {node.address} is not an address of this machine now; is this {node.name}?")
    say("next: systemctl restart sparkd")
    return Exit.OK


def _group(root: Path, name: str) -> int:
    """The group's number on the machine whose file system is at root. Raises Failure if there is none."""
    file = root / "etc/group"
    try:
        # Not from the running machine's databases: with --root the files belong to another one.
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise Failure(Exit.ERROR, f"cannot read {file}: {error.strerror}") from error
    for line in lines:
        fields = line.split(":")
        if fields[0] == name and len(fields) > 2 and fields[2].isdecimal():
            return int(fields[2])
    raise Failure(Exit.ERROR, f"there is no group {name} in {file}", "install the package sparkd first")


def _own_address(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
