"""Command line of the lab."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tests.lab import hosts, page
from tests.lab.control import Lab
from tests.lab.layout import ALL_NODES, DOMAINS, MANAGEMENT_DEVICE, NODES, OUTSIDE
from tests.lab.shell import LabError, environment

EPILOG = f"""Nodes are {", ".join(NODES)} (with --nodes 4 also {ALL_NODES[-1]}); exec also knows "{OUTSIDE}", a
stranger on the management network with fabric ports of its own.
A node that reboots (`lab exec spark2 -- systemctl reboot`) comes back by itself; one that powers off stays off.
SPARKD_LAB_DIR is where a lab lives (a second directory is a second lab), SPARKD_LAB_CACHE where the base image and
SGLang are kept, SPARKD_LAB_INSTALL=1 lets `up` install what the machine lacks."""

RECABLE = """A cable is spark1.p0-spark2.p1, or, of one PCI domain alone, spark1.p0.0002-spark2.p1.0002. An end may
be of "outside", a machine that is no member. "usual" is a ring from each port 0 to the next node's port 1."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="lab", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="boot the nodes, install the package, start sparkd")
    up.add_argument(
        "--nodes", type=int, choices=[2, 3, 4], help="how many (default: 3); two share one cable of ports 0"
    )
    up.add_argument(
        "--engine", choices=["probe", "sglang"], default="probe", help="what the ring runs (default: probe)"
    )
    up.add_argument("--deb", type=Path, help="the package (default: the newest build/deb/sparkd_*.deb)")
    up.add_argument("--bare", action="store_true", help="stop after the boot, with nothing installed")
    commands.add_parser("down", help="remove the lab, also what is left of one that was killed")
    status = commands.add_parser("status", help="say what is up; fails with 1 if it is not")
    status.add_argument("--json", action="store_true")
    execute = commands.add_parser("exec", help="run a command on a node: exec NODE -- COMMAND...")
    execute.add_argument("node", choices=[*ALL_NODES, OUTSIDE])
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    for name, what in (("cable", "plug the cable of a cage in again"), ("unplug", "pull the cable of a cage")):
        command = commands.add_parser(name, help=what)
        command.add_argument("node", choices=ALL_NODES)
        command.add_argument("port", type=int, choices=[0, 1])
        command.add_argument("--domain", choices=DOMAINS, help="only this PCI domain's link (default: both)")
    recable = commands.add_parser("recable", help="replace all cables", description=RECABLE)
    recable.add_argument("cables", help="CABLE,CABLE... or usual")
    flap = commands.add_parser("flap", help="take the light from the cable of a cage for a moment")
    rate = commands.add_parser("rate", help="limit each link of the cable of a cage, in both directions")
    for command in (flap, rate):
        command.add_argument("node", choices=ALL_NODES)
        command.add_argument("port", type=int, choices=[0, 1])
        command.add_argument("--domain", choices=DOMAINS, help="only this PCI domain's link (default: both)")
    flap.add_argument("--ms", type=int, default=100, help="how long (default: 100)")
    rate.add_argument("mbit", type=int, help="Mbit/s; 0: no limit")
    firewall = commands.add_parser(
        "firewall", help="let a node drop new TCP to ports above 20000 on the management network"
    )
    firewall.add_argument("node", choices=ALL_NODES)
    firewall.add_argument("state", choices=["on", "off"])
    for name, what in (
        ("power-cut", "take a node's power"),
        ("power-on", "give a node power and wait for its boot"),
        ("reboot", "reboot a node and wait for it"),
        ("mgmt-cut", f"pull a node's management cable ({MANAGEMENT_DEVICE})"),
        ("mgmt-restore", "plug it in again"),
    ):
        commands.add_parser(name, help=what).add_argument("node", choices=ALL_NODES)
    shown = commands.add_parser("page", help="a node's page, for a browser of this machine, until interrupted")
    shown.add_argument("node", choices=ALL_NODES)
    shown.add_argument("--port", type=int, default=page.PORT, help="on 127.0.0.1 (default: %(default)s)")
    logs = commands.add_parser("logs", help="journal of sparkd on a node; further words go to journalctl")
    logs.add_argument("node", choices=ALL_NODES)
    logs.add_argument("argv", nargs=argparse.REMAINDER, metavar="[-- OPTIONS...]")
    supervise = commands.add_parser("supervise")
    supervise.add_argument("node", choices=ALL_NODES)
    return top


def main(argv: list[str]) -> int:
    """Run one command. Returns its exit status: 1 for an error of the lab, 130 if interrupted."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _dispatch(Lab(nodes=getattr(options, "nodes", None)), options)
    except LabError as error:
        print(f"lab: {error}".replace("lab: lab:", "lab:"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends `up` as Ctrl-C does: what it has begun is removed."""
    raise KeyboardInterrupt


def _dispatch(lab: Lab, options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            _up(lab, options)
        case "down":
            lab.down()
        case "status":
            return 0 if _status(lab, as_json=options.json) else 1
        case "exec":
            _become(lab, options.node, _words(options.argv))
        case "logs":
            _become(lab, options.node, ["journalctl", "--no-pager", "-u", "sparkd", *_words(options.argv)])
        case "supervise":
            return hosts.supervise(lab.places, options.node)
        case "cable" | "unplug":
            act = lab.cable if options.command == "cable" else lab.unplug
            act(options.node, options.port, options.domain)
        case "recable":
            lab.recable(None if options.cables == "usual" else options.cables.split(","))
        case "flap":
            lab.flap(options.node, options.port, options.ms, options.domain)
        case "rate":
            lab.rate(options.node, options.port, options.mbit, options.domain)
        case "firewall":
            lab.firewall(options.node, options.state == "on")
        case _:
            of_a_node: dict[str, Callable[[str], None]] = {
                "power-cut": lab.power_cut,
                "power-on": lab.power_on,
                "reboot": lab.reboot,
                "mgmt-cut": lab.mgmt_cut,
                "mgmt-restore": lab.mgmt_restore,
                "page": lambda node: _page(lab, node, options.port),
            }
            of_a_node[options.command](options.node)
    return 0


def _page(lab: Lab, node: str, port: int) -> None:
    lab.command(node, "true")  # that it has power, which its namespace does not need
    page.show(lab.places.netns_path(node), port, lambda what: print(what, flush=True))


def _words(given: list[str]) -> list[str]:
    """The words after the `--` that may stand in front of them."""
    return given[1:] if given[:1] == ["--"] else given


def _up(lab: Lab, options: argparse.Namespace) -> None:
    begin = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - begin:5.1f} s] {what}", flush=True)

    lab.up(deb=options.deb, bare=options.bare, engine=options.engine, say=say)
    say(f"up; try: {sys.argv[0]} exec {lab.nodes[0]} -- {'ip -br address' if options.bare else 'sparkctl status'}")


def _become(lab: Lab, node: str, argv: list[str]) -> None:
    """Become the command, so that its terminal, signals and exit status are the caller's own."""
    if not argv:
        raise LabError(f"{node}: exec: no command given")
    command = lab.command(node, *argv)
    os.execvpe(command[0], command, environment())


def _status(lab: Lab, *, as_json: bool) -> bool:
    """Whether it is up."""
    facts = lab.status()
    if as_json:
        print(json.dumps(facts, indent=2))
        return bool(facts["up"])
    print(f"lab {facts['id']} in {facts['directory']}: {'up' if facts['up'] else 'not up'}")
    nodes = facts["nodes"]
    assert isinstance(nodes, dict)
    for node, state in nodes.items():
        print(f"  {node}: " + ", ".join(f"{key} {value}" for key, value in state.items() if value))
    cables, unplugged, rates = facts["cables"], facts["unplugged"], facts["rates"]
    assert isinstance(cables, list)
    assert isinstance(unplugged, list)
    assert isinstance(rates, dict)
    for cable in cables:
        print(
            f"  {cable}{' unplugged' if cable in unplugged else ''}"
            + (f" {rates[cable]} Mbit/s" if cable in rates else "")
        )
    for what, key in (("management cable pulled", "management_cut"), ("firewall", "firewalled")):
        named = facts[key]
        assert isinstance(named, list)
        for node in named:
            print(f"  {what}: {node}")
    return bool(facts["up"])
