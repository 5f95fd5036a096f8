"""What must hold of a ring, as it is seen from outside: through its three APIs and what systemd writes down."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.lab import hosts
from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.shell import LabError

PATIENCE = 15.0
"""Seconds for which a rank may be alive on a host that says it is wanted down: a stop takes ten at most."""
_PERIOD = 1.0
_UNIT = re.compile(r"sparkd-rank@(\d+)\.service")
_BEGINS = "Starting sparkd-rank@"
_ENDS = ("Deactivated successfully", "Failed with result", "Main process exited")
_LOOK = """
systemctl list-units --plain --no-legend --state=active,activating,deactivating 'sparkd-rank@*' 2>/dev/null
echo; curl -s -m 3 --unix-socket /run/sparkd/api.sock http://sparkd/v1/ring
"""


class Violation(Exception):
    """Something that must hold did not; one sentence."""


@dataclass(frozen=True)
class Life:
    """A rank on a node, from before its process to after; Unix seconds by the one clock of all hosts of a lab."""

    node: str
    epoch: int
    begin: float
    end: float


def overlap(lives: Iterable[Life]) -> tuple[Life, Life] | None:
    """Two ranks of different epochs that were alive at the same time, if there are any."""
    latest: Life | None = None
    for life in sorted(lives, key=lambda life: life.begin):
        if latest is not None and life.epoch != latest.epoch and life.begin < latest.end:
            return latest, life
        if latest is None or life.end > latest.end:
            latest = life
    return None


def lives(node: str, lines: Iterable[tuple[float, str, str]], gone: Iterable[float], now: float) -> list[Life]:
    """From systemd's lines (time, unit, text). `gone`: when all processes of the node had ended at once."""
    found = []
    begun: dict[int, float] = {}
    moments = [(at, "", "") for at in gone]
    for at, unit, text in sorted([*lines, *moments]):
        match = _UNIT.fullmatch(unit)
        if not unit:
            found += [Life(node, epoch, begin, at) for epoch, begin in begun.items()]
            begun.clear()
        elif match and text.startswith(_BEGINS):
            begun[int(match[1])] = at
        elif match and any(word in text for word in _ENDS) and int(match[1]) in begun:
            found.append(Life(node, int(match[1]), begun.pop(int(match[1])), at))
    return [*found, *(Life(node, epoch, begin, now) for epoch, begin in begun.items())]


class Watch:
    """Samples the nodes in the background while it is entered; what it finds is raised where it is asked."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._found: list[str] = []
        self._down_since: dict[str, float] = {}
        self._gone: dict[str, list[float]] = {node: [] for node in NODES}
        self.held: int | None = None
        self._since = time.time()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    # What the one who makes faults tells.

    def gone(self, node: str) -> None:
        """The node has lost its power by now, and with it every process."""
        self._gone[node].append(time.time())

    def cleared(self) -> None:
        """An operator is about to clear the ring."""
        self.held = None

    def lost(self, node: str) -> None:
        """A disk is about to be lost: if it is the conductor's, nobody else may have heard that the ring is held."""
        if node == NODES[0]:
            self.held = None

    # What is looked at.

    def check_samples(self) -> None:
        if self._found:
            raise Violation(self._found[0])

    def check(self) -> None:
        """Also the journals since the beginning. Raises Violation."""
        self.check_samples()
        now = time.time()
        all_lives = [life for node in NODES for life in lives(node, self._journal(node), self._gone[node], now)]
        pair = overlap(all_lives)
        if pair is not None:
            one, other = pair
            both = min(one.end, other.end) - other.begin
            raise Violation(
                f"two epochs ran at once for {both * 1000:.0f} ms: {one.epoch} on {one.node} until {one.end:.3f}, "
                f"{other.epoch} on {other.node} from {other.begin:.3f}"
            )

    def _journal(self, node: str) -> list[tuple[float, str, str]]:
        command = ["journalctl", "-q", "-o", "json", f"--since=@{int(self._since)}", "_PID=1", "-t", "systemd"]
        found = []
        for line in self._lab.exec(node, *command).stdout.splitlines():
            entry = json.loads(line)
            at = int(entry.get("_SOURCE_REALTIME_TIMESTAMP", entry["__REALTIME_TIMESTAMP"])) / 1e6
            found.append((at, str(entry.get("UNIT", "-")), str(entry["MESSAGE"])))
        return found

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            for node in NODES:
                # A host that is being switched off or on can be asked for nothing.
                if hosts.init(self._lab.places, node):
                    self._sample(node)

    def _sample(self, node: str) -> None:
        before = self.held
        try:
            units, _, body = self._lab.exec(node, "sh", "-c", _LOOK, timeout=10).stdout.partition("\n\n")
            ring: dict[str, Any] = json.loads(body)
        except (LabError, ValueError):
            self._down_since.pop(node, None)
            return
        if "want" not in ring:
            return
        self.judge(node, units, ring, before, time.monotonic())

    def judge(self, node: str, units: str, ring: dict[str, Any], held: int | None, now: float) -> None:
        """One look at a node: its loaded units and its API's word, and which held epoch was known before the look."""
        if ring["want"] == "up" or ring["epoch"] == 0:
            self._down_since.pop(node, None)
            # `held` is from before the look: what was cleared meanwhile is no violation.
            if held is not None and held == self.held and ring["epoch"] > held:
                self._found.append(f"{node}: epoch {ring['epoch']} is wanted up, and nobody cleared the held {held}")
            return
        since = self._down_since.setdefault(node, now)
        alive = _UNIT.findall(units)
        if alive and now - since > PATIENCE:
            self._found.append(
                f"{node}: epochs {', '.join(alive)} are alive {now - since:.0f} s after {ring['summary']}"
            )
        if ring["phase"] == "held" and held is None and self.held is None and node == NODES[0]:
            self.held = int(ring["epoch"])
