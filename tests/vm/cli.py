"""Command line of the fleet."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tests.lab.layout import DOMAINS, NODES
from tests.lab.shell import LabError
from tests.vm import channel, hub
from tests.vm.control import Fleet
from tests.vm.layout import Places

EPILOG = f"""Nodes are {", ".join(NODES)}: virtual machines with Soft-RoCE on their fabric ports, cabled as a triangle.
A node that reboots (`fleet exec spark2 -- systemctl reboot`) comes back by itself. All is emulated, and slow.
SPARKD_VM_DIR is where a fleet lives (a second directory is a second fleet), SPARKD_VM_CACHE where the guests' disk and
kernel are kept; tests/vm/deps installs what the machine lacks. SPARKD_VM_USE=1 lets tests use the fleet that is up."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="fleet", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="boot the machines, install the package, start sparkd")
    up.add_argument("--deb", type=Path, help="the package (default: the newest build/deb/sparkd_*.deb)")
    up.add_argument("--bare", action="store_true", help="stop after the boot, with nothing installed")
    again = commands.add_parser("install", help="install the package on machines that are up --bare")
    again.add_argument("--deb", type=Path, help="the package (default: the newest build/deb/sparkd_*.deb)")
    commands.add_parser("down", help="remove the fleet, also what is left of one that was killed")
    commands.add_parser("status", help="say what is up").add_argument("--json", action="store_true")
    execute = commands.add_parser("exec", help="run a command on a node: exec NODE -- COMMAND...")
    execute.add_argument("node", choices=NODES)
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    for name, what in (("plug", "plug the cable of a cage in again"), ("unplug", "pull the cable of a cage")):
        command = commands.add_parser(name, help=what)
        command.add_argument("node", choices=NODES)
        command.add_argument("port", type=int, choices=[0, 1])
        command.add_argument("--domain", choices=DOMAINS, help="only this PCI domain's link (default: both)")
    commands.add_parser("reboot", help="reboot a node and wait for it").add_argument("node", choices=NODES)
    for name, what in (("save", "keep the state of all machines"), ("load", "go back to a state that was kept")):
        commands.add_parser(name, help=what).add_argument("name", nargs="?", default="kept")
    internal = commands.add_parser("hub")
    internal.add_argument("directory", type=Path)
    internal.add_argument("mark")
    return top


def main(argv: list[str]) -> int:
    """Run one command. Returns its exit status: 1 for an error of the fleet, 130 if interrupted."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _dispatch(options)
    except LabError as error:
        print(error if str(error).startswith("fleet:") else f"fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fleet: interrupted", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends `up` as Ctrl-C does: what it has begun is removed."""
    raise KeyboardInterrupt


def _dispatch(options: argparse.Namespace) -> int:
    if options.command == "hub":
        places = Places(options.directory, options.directory)
        hub.serve({places.hub(node): places.management(node) for node in NODES})
    fleet = Fleet()
    match options.command:
        case "up":
            _up(fleet, options)
        case "install":
            fleet.install(deb=options.deb, say=(say := _clock()))
            say("installed")
        case "down":
            fleet.down()
        case "status":
            _status(fleet, as_json=options.json)
        case "exec":
            return _exec(fleet, options.node, options.argv)
        case "plug" | "unplug":
            act = fleet.plug if options.command == "plug" else fleet.unplug
            act(options.node, options.port, options.domain)
        case "reboot":
            fleet.reboot(options.node)
        case "save":
            fleet.save(options.name)
        case "load":
            fleet.load(options.name)
    return 0


def _up(fleet: Fleet, options: argparse.Namespace) -> None:
    say = _clock()
    fleet.up(deb=options.deb, bare=options.bare, say=say)
    say(f"up; try: {sys.argv[0]} exec {fleet.nodes[0]} -- {'rdma link' if options.bare else 'sparkctl status'}")


def _clock() -> Callable[[str], None]:
    begin = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - begin:5.1f} s] {what}", flush=True)

    return say


def _exec(fleet: Fleet, node: str, given: list[str]) -> int:
    """Run the command with its output as it comes, without a terminal or any input."""
    argv = given[1:] if given[:1] == ["--"] else given
    if not argv:
        raise LabError(f"{node}: exec: no command given")

    def take(stream: str, data: bytes) -> None:
        target = sys.stdout.buffer if stream == "out" else sys.stderr.buffer
        target.write(data)
        target.flush()

    status = channel.stream(fleet.places, node, argv, take)
    return status if status >= 0 else 128 - status


def _status(fleet: Fleet, *, as_json: bool) -> None:
    facts = fleet.status()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"fleet {facts['id']} in {facts['directory']}: {'up' if facts['up'] else 'not up'}")
    nodes, cables, unplugged = facts["nodes"], facts["cables"], facts["unplugged"]
    assert isinstance(nodes, dict)
    assert isinstance(cables, list)
    assert isinstance(unplugged, list)
    for node, state in nodes.items():
        print(f"  {node}: {'off' if state['pid'] is None else 'running, pid ' + str(state['pid'])}")
    for cable in cables:
        print(f"  {cable}{' unplugged' if cable in unplugged else ''}")
