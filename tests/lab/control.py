"""The lab as an object: what tests and the command line use."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import base, cgroups, hosts, install, wires
from tests.lab.layout import (
    ALL_NODES,
    DOMAINS,
    MANAGEMENT_DEVICE,
    OUTSIDE,
    PORTS,
    Link,
    Places,
    links,
    links_at,
    parse_cables,
    places,
)
from tests.lab.sglang import root as sglang
from tests.lab.shell import LabError, kill_steps, locked, replace, run

Say = Callable[[str], None]


# What a firewall that knows no peers by address does: the daemons' port and the rendezvous are below 20001.
FIREWALL = """
table inet lab {{
    chain input {{
        type filter hook input priority 0;
        iifname "{device}" tcp dport > 20000 ct state new drop
    }}
}}
"""


class Lab:
    """Two to four hosts, their cables and their management network, kept in one directory of this machine."""

    def __init__(self, directory: Path | None = None, nodes: int | None = None) -> None:
        """`nodes`: how many an `up` makes, three unless a lab is there already."""
        if nodes is not None and not 2 <= nodes <= len(ALL_NODES):
            raise LabError(f"lab: a lab has 2 to {len(ALL_NODES)} nodes, not {nodes}")
        self.places: Places = places(directory)
        self._wanted = nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the hosts that there are, or that an `up` makes."""
        if self.places.wires_state.exists() or self._wanted is None:
            return wires.read(self.places).nodes
        return ALL_NODES[: self._wanted]

    @property
    def cables(self) -> tuple[Link, ...]:
        """The links of all cables that there are now, plugged or not."""
        return wires.read(self.places).cables

    # Life of the lab

    def up(self, deb: Path | None = None, *, bare: bool = False, engine: str = "probe", say: Say | None = None) -> None:
        """Boot the hosts and, unless `bare`, install the package `deb`, make them a cluster and start sparkd.

        What an interrupted lab left in the same directory is removed first; a failed or interrupted `up` removes
        itself. `say` gets a line per step. Raises LabError; in particular if a lab is up here.
        """
        base.require_tools()
        if engine == "sglang" and len(self.nodes) != 3:
            raise LabError("lab: up: SGLang's model is made to be split over three nodes: leave --nodes out")
        package = None if bare else install.check(deb)
        with self._exclusive():
            if self.is_up():
                raise LabError(f"lab: up: a lab is up in {self.places.directory}; `lab down` ends it")
            self._clear()
            try:
                self._up(package, engine, say or _silent)
            except BaseException:
                self._clear()
                raise

    def _up(self, package: Path | None, engine: str, say: Say) -> None:
        self.places.directory.mkdir(mode=0o700, parents=True)
        self._note(phase="starting")
        say("base root file system")
        tree = base.make(self.places.cache)
        if engine == "sglang":
            self.places.engine.write_text(str(sglang.make(self.places.cache, say)))
        say("network")
        nodes = self.nodes
        wires.create(self.places, nodes)
        say(f"booting {', '.join(nodes)}")
        self.each(lambda node: hosts.prepare(self.places, node, tree, nodes))
        self.each(lambda node: hosts.start(self.places, node))
        self.each(lambda node: hosts.wait_booted(self.places, node))
        if package is not None:
            install.everywhere(self, package, engine, say)
        self._note(phase="up")

    def down(self) -> None:
        """End the hosts and remove everything of the lab; nothing happens if there is none."""
        with self._exclusive():
            self._clear()
            base.tidy(self.places.cache)
            sglang.tidy(self.places.cache)

    def is_up(self) -> bool:
        """Whether an `up` was completed here and every host is running or was switched off on purpose."""
        try:
            phase = json.loads(self.places.state.read_text())["phase"]
        except (FileNotFoundError, ValueError):
            return False
        powered = wires.read(self.places).powered
        return phase == "up" and all(hosts.supervisor(self.places, node) for node in powered)

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        busy = f"lab: another lab command is at work on {self.places.directory}"
        return locked(self.places.lock, wait=False, busy=busy, remove=True)

    def _note(self, **facts: str) -> None:
        replace(self.places.state, json.dumps(facts))

    def _clear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.places.state.unlink()
        # Whatever number of nodes it had: its notes may be lost.
        for node in ALL_NODES:
            hosts.stop_supervisor(self.places, node)
        cgroups.kill(self.places.prefix)
        kill_steps(self.places.prefix)
        wires.destroy(self.places)
        cgroups.remove(self.places.prefix)
        for node in ALL_NODES:
            hosts.discard(self.places, node)
        if self.places.directory.exists():
            shutil.rmtree(self.places.directory)

    # The hosts

    def command(self, node: str, *argv: str) -> list[str]:
        """The machine's own command that runs `argv` on a node (or "outside"), as root and with full capabilities.

        Raises LabError if there is no such node or it is not running.
        """
        self._require_wires()
        if node == OUTSIDE:
            return ["ip", "netns", "exec", self.places.netns(OUTSIDE), *argv]
        return hosts.inside(self.places, self._node(node), argv)

    def exec(
        self, node: str, *argv: str, check: bool = True, timeout: float | None = 60, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, or on "outside", a stranger at .254 of the management network.

        The stranger is this machine itself, with its own programs, in a network namespace with ports like a Spark's.

        `timeout` is in seconds. Raises LabError if the node is not running, the command outlives its time, or
        (with `check`) exits other than 0.
        """
        step = " ".join(argv)
        return run(self.command(node, *argv), step=step, node=node, check=check, timeout=timeout, stdin=input)

    def power_cut(self, node: str) -> None:
        """Take the power from a node: nothing on it ends in order, its peers lose their carrier, its disk stays.

        What was written but not yet synced is not lost, unlike on a real machine. A node without power stays so.
        """
        self._require_wires()
        hosts.cut_power(self.places, self._node(node))

    def power_on(self, node: str, *, wait: bool = True) -> None:
        """Give a node power and, with `wait`, wait until it is booted. Raises LabError if it has power."""
        self._require_wires()
        hosts.start(self.places, self._node(node))
        if wait:
            hosts.wait_booted(self.places, node)

    def reboot(self, node: str, *, wait: bool = True) -> None:
        """Reboot a node in order, as `systemctl reboot` typed on it does, and wait until it is booted again."""
        before = hosts.init(self.places, self._node(node))
        self.exec(node, "systemctl", "reboot", check=False)
        if wait:
            hosts.wait_booted(self.places, node, after=before)

    def wait_booted(self, node: str) -> None:
        """Wait until a node that has power is booted. Raises LabError if it does not come up."""
        hosts.wait_booted(self.places, self._node(node))

    def each(self, do: Callable[[str], object]) -> None:
        """Do something for all nodes at the same time; raises the first error once all have ended."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for future in [pool.submit(do, node) for node in self.nodes]:
                future.result()

    # The cables

    def unplug(self, node: str, port: int, domain: str | None = None) -> None:
        """Pull the cable in a cage (port 0 or 1): both its ends lose their carrier, in both PCI domains or in one."""
        self._require_wires()
        wires.change(self.places, unplug=self._cable(node, port, domain))

    def cable(self, node: str, port: int, domain: str | None = None) -> None:
        """Plug the cable of a cage in again."""
        self._require_wires()
        wires.change(self.places, plug=self._cable(node, port, domain))

    def recable(self, cables: Sequence[str] | None = None) -> None:
        """Replace all cables, by those named or the usual ones.

        A cable is "spark1.p0-spark2.p1", and "spark1.p0.0002-spark2.p1.0002" only its link of one PCI domain; "outside"
        is a machine with such ports, too. Ends that keep their cable notice nothing. Raises LabError for what is no
        cable.
        """
        self._require_wires()
        try:
            wanted = links(self.nodes) if cables is None else parse_cables(cables)
        except ValueError as error:
            raise LabError(f"lab: recable: {error}") from None
        for end in (end for link in wanted for end in link.ends if end.node != OUTSIDE):
            self._node(end.node)
        wires.recable(self.places, wanted)

    def flap(self, node: str, port: int, ms: float = 100, domain: str | None = None) -> None:
        """Take the light from the cable in a cage for so many milliseconds."""
        self._require_wires()
        wires.flap(self.places, self._cable(node, port, domain), ms / 1000)

    def rate(self, node: str, port: int, mbit: int, domain: str | None = None) -> None:
        """Let each link of the cable in a cage carry so many Mbit/s in each direction; 0: as many as it can."""
        self._require_wires()
        wires.change(self.places, rates={link.key: mbit for link in self._cable(node, port, domain)})

    def firewall(self, node: str, on: bool) -> None:
        """Let a node drop new TCP connections to its ports above 20000 that come by the management network."""
        self._require_wires()
        firewalled = wires.read(self.places).firewalled
        if on != (self._node(node) in firewalled):
            rules = FIREWALL.format(device=MANAGEMENT_DEVICE) if on else "delete table inet lab"
            self.exec(node, "nft", "-f", "-", input=rules)
            wires.change(self.places, firewalled=firewalled | {node} if on else firewalled - {node})

    def mgmt_cut(self, node: str) -> None:
        """Pull a node's management cable."""
        self._require_wires()
        wires.change(self.places, cut=[self._node(node)])

    def mgmt_restore(self, node: str) -> None:
        self._require_wires()
        wires.change(self.places, restore=[self._node(node)])

    def mend(self) -> None:
        """Plug in every usual cable at its full rate, give every node power, and wait until all are booted."""
        self._require_wires()
        if set(self.cables) != set(links(self.nodes)):
            self.recable()
        for node in wires.read(self.places).firewalled:
            self.firewall(node, on=False)
        usual = dict.fromkeys(wires.read(self.places).rates, 0)
        wires.change(self.places, plug=self.cables, restore=self.nodes, rates=usual)
        for node in self.nodes:
            if not hosts.supervisor(self.places, node):
                hosts.start(self.places, node)
        self.each(self.wait_booted)

    def _node(self, name: str) -> str:
        if name not in self.nodes:
            raise LabError(f"lab: there is no node {name}; nodes are {', '.join(self.nodes)}")
        return name

    def _cable(self, node: str, port: int, domain: str | None) -> tuple[Link, ...]:
        if port not in PORTS or domain not in (None, *DOMAINS):
            raise LabError(f"{node}: cable: port is 0 or 1 and domain 0000 or 0002, not {port} and {domain}")
        return links_at(self._node(node), port, domain, self.cables)

    def _require_wires(self) -> None:
        if not wires.exists(self.places.wires_netns):
            raise LabError(f"lab: no lab is up in {self.places.directory}; `lab up` makes one")

    # What there is to see

    def status(self) -> dict[str, object]:
        """Facts for people and scripts: whether the lab is up, each node's state, each cable that is unplugged."""
        condition = wires.read(self.places)
        return {
            "up": self.is_up(),
            "id": self.places.id,
            "directory": str(self.places.directory),
            "nodes": {node: self._node_status(node) for node in self.nodes},
            "cables": [str(link) for link in condition.cables],
            "unplugged": [str(link) for link in condition.cables if link.key in condition.unplugged],
            "rates": {str(link): condition.rates[link.key] for link in condition.cables if link.key in condition.rates},
            "management_cut": sorted(condition.management_cut),
            "firewalled": sorted(condition.firewalled),
        }

    def _node_status(self, node: str) -> dict[str, str]:
        if not hosts.supervisor(self.places, node):
            return {"power": "off"}
        if not hosts.init(self.places, node):
            return {"power": "on", "system": "booting"}
        system = self.exec(node, "systemctl", "is-system-running", check=False).stdout.strip()
        shown = self.exec(node, "systemctl", "show", "sparkd", "--property=ActiveState,StatusText", check=False).stdout
        daemon = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        said = daemon.get("StatusText", "")
        return {
            "power": "on",
            "system": system,
            "sparkd": daemon.get("ActiveState", "") + (f" ({said})" if said else ""),
        }

    def journal(self, node: str, *patterns: str) -> str:
        """The journal of units (glob patterns; without any, the whole journal), with microseconds."""
        argv = ["journalctl", "--no-pager", "--output=short-precise", *(f"--unit={pattern}" for pattern in patterns)]
        if hosts.init(self.places, self._node(node)):
            return self.exec(node, *argv).stdout
        # A host without power is read as its disk would be in another machine.
        disk = self.places.root(node) / "var/log/journal"
        return run([*argv, f"--directory={disk}"], step="read the journal on its disk", node=node).stdout

    def dump_logs(self, directory: Path) -> None:
        """Write what a failure is understood from: journals of sparkd and the ranks, and each host's console."""
        directory.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            console = self.places.node(node) / "console.log"
            if console.is_file():
                shutil.copyfile(console, directory / f"{node}.console.log")
            with contextlib.suppress(LabError):
                text = self.journal(node, "sparkd.service", "sparkd-rank@*")
                (directory / f"{node}.sparkd.log").write_text(text)
                (directory / f"{node}.journal.log").write_text(self.journal(node))


def _silent(_what: str) -> None:
    """What `up` says goes nowhere."""
