"""The fleet as an object: what tests and the command line use."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.layout import DOMAINS, NODES, PORTS, Link, links_at
from tests.lab.shell import LabError, locked, read_process, replace, wait_for
from tests.vm import channel, guest, image, install, qmp
from tests.vm.layout import CABLES, MAX_SOCKET_PATH, Places, places

Say = Callable[[str], None]


class Fleet:
    """Three virtual machines with RoCE, their cables and their management network, kept in one directory."""

    nodes: tuple[str, ...] = NODES

    def __init__(self, directory: Path | None = None) -> None:
        self.places: Places = places(directory)

    # Life of the fleet

    def up(self, deb: Path | None = None, *, bare: bool = False, say: Say | None = None) -> None:
        """Boot the machines and, unless `bare`, install the package `deb`, make them a cluster and start sparkd.

        What an interrupted fleet left in the same directory is removed first; a failed or interrupted `up` removes
        itself. `say` gets a line per step. Raises LabError; in particular if a fleet is up here.
        """
        image.require_tools()
        if self.places.longest_socket > MAX_SOCKET_PATH:
            raise LabError(f"fleet: up: {self.places.directory}: too long a path for sockets; set SPARKD_VM_DIR")
        package = None if bare else install.check(deb)
        with self._exclusive():
            if self.is_up():
                raise LabError(f"fleet: up: a fleet is up in {self.places.directory}; `fleet down` ends it")
            self._clear()
            try:
                self._up(package, say or _silent)
            except BaseException:
                self._clear()
                raise

    def _up(self, package: Path | None, say: Say) -> None:
        self.places.directory.mkdir(mode=0o700, parents=True)
        self._note(phase="starting", unplugged=[])
        say("disk and kernel of the guests")
        made = image.make(self.places.cache)
        say(f"booting {', '.join(self.nodes)}")
        for node in self.nodes:
            guest.prepare(self.places, node, made)
        self._start_hub()
        for node in self.nodes:
            guest.start(self.places, node, made)
        self.each(lambda node: guest.wait_booted(self.places, node))
        if package is not None:
            install.everywhere(self, package, say)
        self._note(phase="up")

    def install(self, deb: Path | None = None, *, say: Say | None = None) -> None:
        """What `up` does on bare machines. Unlike there, a step that fails leaves them as they are, to be looked at."""
        self._require_up()
        install.everywhere(self, install.check(deb), say or _silent)

    def _start_hub(self) -> None:
        script = Path(__file__).with_name("fleet")
        argv = ["/usr/bin/python3", "-B", str(script), "hub", str(self.places.directory), self.places.mark("hub")]
        guest.launch(argv, self.places.directory / "hub", self.places.directory / "hub.log")
        if not wait_for(lambda: all(self.places.hub(node).exists() for node in self.nodes), 10):
            raise LabError(f"fleet: hub: it did not start; see {self.places.directory}/hub.log")

    def down(self) -> None:
        """End the machines and remove everything of the fleet; nothing happens if there is none."""
        with self._exclusive():
            self._clear()
            image.tidy(self.places.cache)

    def is_up(self) -> bool:
        """Whether an `up` was completed here and every machine is running."""
        ours = [read_process(self.places.directory / "hub"), *(guest.running(self.places, n) for n in self.nodes)]
        return self._notes().get("phase") == "up" and all(ours)

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        busy = f"fleet: another fleet command is at work on {self.places.directory}"
        return locked(self.places.lock, wait=False, busy=busy, remove=True)

    def _notes(self) -> dict[str, object]:
        try:
            notes: dict[str, object] = json.loads(self.places.state.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return notes

    def _note(self, **facts: object) -> None:
        replace(self.places.state, json.dumps(self._notes() | facts))

    def _clear(self) -> None:
        # By their mark and not by our notes, which may be lost.
        guest.kill_marked(self.places.mark(""))
        if self.places.directory.exists():
            shutil.rmtree(self.places.directory)

    # The machines

    def exec(
        self, node: str, *argv: str, check: bool = True, timeout: float | None = 120, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node as root. `timeout` is in seconds.

        Raises LabError if the guest does not answer, the command outlives its time, or (with `check`) fails.
        """
        return channel.run(self.places, self._node(node), argv, check=check, timeout=timeout, stdin=input)

    def put(self, node: str, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file on a node."""
        script = f"umask 077; mkdir -p '{Path(path).parent}'; base64 -d >'{path}' && chmod {mode:o} '{path}'"
        channel.run(self.places, self._node(node), ["sh", "-c", script], stdin=_base64(data))

    def reboot(self, node: str) -> None:
        """Reboot a node in order and wait until it is booted again."""
        before = guest.boot_id(self.places, self._node(node))
        # The guest may be gone before it answers.
        with contextlib.suppress(LabError):
            self.exec(node, "systemctl", "reboot", check=False, timeout=30)
        guest.wait_booted(self.places, node, after=before)

    def each(self, do: Callable[[str], object]) -> None:
        """Do something for all nodes at the same time; raises the first error once all have ended."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for future in [pool.submit(do, node) for node in self.nodes]:
                future.result()

    def save(self, name: str) -> None:
        """Keep the state of all machines, memory and disks, under a name, beside what is kept already."""
        self._monitors(f"savevm {name}")

    def load(self, name: str) -> None:
        """Bring all machines back to a state that was kept; takes seconds. Their clocks are set to the time it is."""
        self._monitors(f"loadvm {name}")
        self.each(lambda node: self.exec(node, "date", "--utc", "--set", f"@{time.time():.2f}"))

    def _monitors(self, line: str) -> None:
        self._require_up()
        # All stand still while each is kept, so that no frame is younger at one than at another.
        for order in ("stop", line, "cont"):
            self.each(lambda node, order=order: qmp.monitor(self.places.qmp(node), order))  # type: ignore[misc]

    # The cables

    def unplug(self, node: str, port: int, domain: str | None = None) -> None:
        """Pull the cable in a cage (port 0 or 1): both its ends lose their carrier, in both PCI domains or in one."""
        self._light(self._cable(node, port, domain), on=False)

    def plug(self, node: str, port: int, domain: str | None = None) -> None:
        """Plug the cable of a cage in again."""
        self._light(self._cable(node, port, domain), on=True)

    def mend(self) -> None:
        """Plug every cable in and wait until all machines are booted."""
        self._light(CABLES, on=True)
        self.each(lambda node: guest.wait_booted(self.places, node))

    def _light(self, cables: tuple[Link, ...], on: bool) -> None:
        self._require_up()
        for link in cables:
            for end in link.ends:
                guest.set_link(self.places, end, on)
        dark = self._unplugged() - {str(link) for link in cables}
        self._note(unplugged=sorted(dark if on else dark | {str(link) for link in cables}))

    def _unplugged(self) -> set[str]:
        noted = self._notes().get("unplugged", [])
        return {str(name) for name in noted} if isinstance(noted, list) else set()

    def _cable(self, node: str, port: int, domain: str | None) -> tuple[Link, ...]:
        if port not in PORTS or domain not in (None, *DOMAINS):
            raise LabError(f"{node}: cable: port is 0 or 1 and domain 0000 or 0002, not {port} and {domain}")
        return links_at(self._node(node), port, domain, CABLES)

    def _node(self, name: str) -> str:
        if name not in self.nodes:
            raise LabError(f"fleet: there is no node {name}; nodes are {', '.join(self.nodes)}")
        return name

    def _require_up(self) -> None:
        if not self.places.state.exists():
            raise LabError(f"fleet: no fleet is up in {self.places.directory}; `fleet up` makes one")

    # What there is to see

    def status(self) -> dict[str, object]:
        """Facts for people and scripts: whether the fleet is up, each machine's process, cables that are unplugged."""
        nodes = {node: guest.running(self.places, node) for node in self.nodes}
        return {
            "up": self.is_up(),
            "id": self.places.id,
            "directory": str(self.places.directory),
            "nodes": {node: {"pid": found.pid if found else None} for node, found in nodes.items()},
            "cables": [str(link) for link in CABLES],
            "unplugged": sorted(self._unplugged()),
        }

    def dump_logs(self, target: Path) -> None:
        """Write journal and console of each node into a directory."""
        target.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            with contextlib.suppress(LabError):
                journal = self.exec(node, "journalctl", "-b", "-o", "short-precise", "--no-pager", check=False).stdout
                (target / f"{node}.log").write_text(journal)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self.places.console(node), target / f"{node}.console.log")


def _base64(data: bytes) -> str:
    return base64.encodebytes(data).decode("ascii")


def _silent(_what: str) -> None:
    return None
