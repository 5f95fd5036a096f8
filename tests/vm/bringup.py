"""The ring of a fleet: brought up, looked at, and left standing for what needs its addresses and nothing else."""

from __future__ import annotations

from typing import Any

from tests.lab.layout import NODES
from tests.lab.ring import RingOn
from tests.vm.control import Fleet

REQUEST_SECONDS = 60
READY_SECONDS = 600
"""From a start to ready on emulated processors; a Spark takes seconds."""
EXAMINED_SECONDS = 300
"""The daemon looks at the host's hardware once a minute."""


def started(ring: RingOn) -> dict[str, Any]:
    """A ready ring, started if need be."""
    for node in NODES:
        ring.until(node, lambda seen: bool(seen["cables"]), READY_SECONDS)
    if ring.get("spark1")["want"] != "up":
        answer = ring.ask("spark1", "POST", "/v1/ring/start")
        assert answer.status == 202, answer
    return ring.phase("ready", seconds=READY_SECONDS)


def stopped(ring: RingOn) -> None:
    assert ring.ask("spark1", "POST", "/v1/ring/stop").status == 202
    ring.phase("down", seconds=READY_SECONDS)


def addresses(ring: RingOn) -> dict[tuple[str, str], str]:
    """The planned address, with its prefix length, by node and device."""
    plan = ring.ask("spark1", "GET", "/v1/plan").body
    return {(end["node"], end["device"]): end["address"] for end in plan["ends"]}


def environment(ring: RingOn, node: str, epoch: int) -> dict[str, str]:
    """What the rank on a node was started with, by its file, after a look whether its process has the same."""
    text = ring.hosts.exec(node, "cat", f"/run/sparkd/rank-{epoch}.env").stdout
    given = dict(line.split("=", 1) for line in text.splitlines())
    pid = ring.show(node, f"sparkd-rank@{epoch}.service", "MainPID")
    has = ring.hosts.exec(node, "cat", f"/proc/{pid}/environ").stdout.split("\0")
    # Of the plain file no value is quoted.
    assert {f"{key}={value}" for key, value in given.items()} <= set(has)
    return given


def _verdict(ring: RingOn, node: str) -> dict[str, Any]:
    """What the doctor says of the GIDs of a node: its check, with the findings of it."""
    nodes = ring.ask("spark1", "GET", "/v1/doctor").body["nodes"]
    told = next(each for each in nodes if each["node"] == node)
    check: dict[str, Any] = next((each for each in told["checks"] or [] if each["id"] == "gid-missing"), {})
    return check | {"findings": [each for each in told["findings"] if each["id"] == "gid-missing"]}


def until_verdict(ring: RingOn, node: str, verdict: str) -> dict[str, Any]:
    """The doctor's word once it is this verdict. Raises AssertionError with the last."""
    said: dict[str, Any] = {}

    def so(_: dict[str, Any]) -> bool:
        said.clear()
        said.update(_verdict(ring, node))
        return said.get("verdict") == verdict

    try:
        ring.until("spark1", so, EXAMINED_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{node}: gid-missing: {said}") from error
    return said


def only_the_fabric(fleet: Fleet) -> None:
    """Stop daemons and ranks, and so all that keeps emulated processors busy: what sparkd has set stays set.

    First the daemons, everywhere: a rank that ended under their eyes would be followed by a new one.
    """
    fleet.each(lambda node: fleet.exec(node, "systemctl", "stop", "sparkd", timeout=READY_SECONDS))
    fleet.each(lambda node: fleet.exec(node, "systemctl", "stop", "sparkd-rank@*", timeout=READY_SECONDS))


def daemons_again(fleet: Fleet) -> None:
    fleet.each(lambda node: fleet.exec(node, "systemctl", "start", "sparkd", timeout=READY_SECONDS))
