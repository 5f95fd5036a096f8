"""The ring of a lab or a fleet from outside: through the APIs of its nodes, systemd and the journals."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.lab.control import Lab
from tests.lab.shell import LabError

SOCKET = "/run/sparkd/api.sock"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


def sentence(finding: dict[str, str]) -> str:
    """As the ring's own sentences have it, with the id in front."""
    return "{id}: {node}: {subject}: {observed}; expected {expected}".format(**finding)


class Hosts(Protocol):
    """What runs commands on the nodes: a lab, or a fleet of virtual machines."""

    @property
    def nodes(self) -> tuple[str, ...]: ...

    def exec(self, node: str, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]: ...


class RingOn:
    """The ring on any such hosts; `patience`: seconds that a request may take, `soon`: those that a phase may."""

    def __init__(self, hosts: Hosts, patience: int = 10, soon: float = 40) -> None:
        self.hosts = hosts
        self.patience = patience
        self.soon = soon

    def ask(self, node: str, method: str, path: str, *options: str, tcp: bool = False) -> Answer:
        """One request from the node itself: over its Unix socket, or over 127.0.0.1 as anybody there may."""
        where = ["http://127.0.0.1:7474"] if tcp else ["--unix-socket", SOCKET, "http://sparkd"]
        command = ["curl", "-sS", "-i", "-m", str(self.patience), "-X", method, *options, *where[:-1], where[-1] + path]
        text = self.hosts.exec(node, *command).stdout
        head, _, body = text.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.split("\n")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        parsed = json.loads(body) if "json" in headers.get("content-type", "") else body
        return Answer(int(first.split()[1]), headers, parsed)

    def get(self, node: str) -> dict[str, Any]:
        answer = self.ask(node, "GET", "/v1/ring")
        assert answer.status == 200, answer
        body: dict[str, Any] = answer.body
        return body

    def until(self, node: str, reached: Callable[[dict[str, Any]], bool], seconds: float = 40) -> dict[str, Any]:
        """The node's ring once it is so. Raises AssertionError with its last sentence."""
        end = time.monotonic() + seconds
        while True:
            try:
                ring = self.get(node)
            except (AssertionError, LabError, ValueError) as error:  # the node may be on its way down or up
                ring = {"summary": str(error), "phase": "", "epoch": 0}
            if ring["phase"] and reached(ring):
                return ring
            assert time.monotonic() < end, f"{node} after {seconds} s: {ring['summary']}"
            time.sleep(0.1)

    def phase(
        self, phase: str, nodes: tuple[str, ...] | None = None, seconds: float | None = None, above: int = -1
    ) -> dict[str, Any]:
        """Waits until all `nodes` say that phase in an epoch above `above`; returns the first's ring."""
        asked, most = nodes or self.hosts.nodes, self.soon if seconds is None else seconds
        rings = [self.until(n, lambda r: r["phase"] == phase and r["epoch"] > above, most) for n in asked]
        return rings[0]

    def settled(self, seconds: float = 30) -> None:
        """Waits until no node has anything against a start, as after a cable has been put back."""

        def so(ring: dict[str, Any]) -> bool:
            against = [f for f in ring["findings"] if f["severity"] == "refuse" and f["id"] != "held"]
            return bool(ring["cables"]) and not against

        for node in self.hosts.nodes:
            self.until(node, so, seconds)

    def start(self, node: str = "spark1") -> dict[str, Any]:
        answer = self.ask(node, "POST", "/v1/ring/start")
        assert answer.status == 202, answer
        return self.phase("ready")

    def stop(self, node: str = "spark1") -> None:
        answer = self.ask(node, "POST", "/v1/ring/stop")
        assert answer.status == 202, answer
        self.phase("down")

    def fresh(self) -> dict[str, Any]:
        """A ready ring without a history of deaths, whatever the test before has left."""
        for node in self.hosts.nodes:
            self.until(node, lambda ring: True, 60)
        self.settled()
        ring = self.get("spark1")
        if ring["phase"] == "held":
            assert self.ask("spark1", "POST", "/v1/ring/clear").status == 202
            self.phase("down")
        if ring["deaths"] or ring["phase"] not in ("ready", "down"):
            self.stop()
        return self.start()

    def rest(self) -> None:
        """A ring that is down, without a start only to stop it; its cables may be whatever the test before has left."""
        for node in self.hosts.nodes:
            self.until(node, lambda ring: True, 60)
        ring = self.get("spark1")
        if ring["phase"] == "held":
            assert self.ask("spark1", "POST", "/v1/ring/clear").status == 202
        self.stop()

    def refusal(self, node: str = "spark1") -> list[dict[str, str]]:
        """The findings with which a start is refused there."""
        answer = self.ask(node, "POST", "/v1/ring/start")
        assert (answer.status, answer.body["code"]) == (409, "start-refused"), answer
        findings: list[dict[str, str]] = answer.body["findings"]
        return findings

    def idle(self) -> None:
        """A ring that is down."""
        self.fresh()
        self.stop()

    def health(self) -> dict[str, Any]:
        """What the probe says of itself: canaries, and each rail with its ends."""
        text = self.hosts.exec("spark1", "curl", "-sS", "-f", "http://127.0.0.1:8888/health").stdout
        body: dict[str, Any] = json.loads(text)
        return body

    def until_health(self, reached: Callable[[dict[str, Any]], bool], seconds: float = 10) -> dict[str, Any]:
        """The probe's words once they are so. Raises AssertionError with the last."""
        end = time.monotonic() + seconds
        while not reached(said := self.health()):
            assert time.monotonic() < end, f"after {seconds} s: {said}"
            time.sleep(0.1)
        return said

    def show(self, node: str, unit: str, prop: str) -> str:
        return self.hosts.exec(node, "systemctl", "show", "--value", "-p", prop, unit).stdout.strip()

    def pids(self, epoch: int) -> dict[str, int]:
        return {node: int(self.show(node, f"sparkd-rank@{epoch}.service", "MainPID")) for node in self.hosts.nodes}

    def units(self, node: str) -> list[str]:
        """Loaded rank units in any state."""
        command = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "sparkd-rank@*"]
        return [line.split()[0] for line in self.hosts.exec(node, *command).stdout.splitlines()]

    def journal(self, node: str, unit: str) -> list[tuple[float, str]]:
        """(Unix seconds, message) of every line about the unit, by it or by systemd. One kernel, one clock."""
        text = self.hosts.exec(node, "journalctl", "-q", "-u", unit, "-o", "json").stdout
        entries = [json.loads(line) for line in text.splitlines()]
        return [(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, str(entry["MESSAGE"])) for entry in entries]

    def said(self, node: str, unit: str, *words: str, after: float = 0.0) -> float:
        """When the journal first had a line with any of these. Raises AssertionError if it has not."""
        lines = self.journal(node, unit)
        found = next((at for at, line in lines if at >= after and any(each in line for each in words)), None)
        assert found is not None, f"{node}: no {words!r} in " + "\n".join(line for _, line in lines[-40:])
        return found


class Ring(RingOn):
    """The ring of a lab, whose cables and power can be taken as well."""

    def __init__(self, lab: Lab, soon: float = 40) -> None:
        super().__init__(lab, soon=soon)
        self.lab = lab
