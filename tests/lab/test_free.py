"""What a stop leaves behind is named, waited for if it was a rank's, and never ended if it is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab

# Where systemd keeps the processes of the units of ranks here; such a group without a unit is what a process leaves
# that cannot be ended.
GROUP = r"/sys/fs/cgroup/systemd/system.slice/system-sparkd\x2drank.slice/sparkd-rank@{epoch}.service"


@pytest.fixture
def ring(lab: Lab) -> Iterator[Ring]:
    ring = Ring(lab)
    ring.fresh()
    yield ring
    lab.exec("spark2", "sh", "-c", "systemctl stop stranger remains; systemctl restart sparkd")
    ring.until("spark2", lambda seen: True, 20)


def _run(ring: Ring, unit: str, *command: str) -> str:
    ring.lab.exec("spark2", "systemd-run", "-q", f"--unit={unit}", *command)
    return ring.show("spark2", f"{unit}.service", "MainPID")


def test_a_process_that_outlives_its_unit_is_named_and_waited_for(ring: Ring) -> None:
    """Field report stop-in-any-state: the units are gone, and one host is not free."""
    epoch = ring.get("spark1")["epoch"]
    pid = _run(ring, "remains", "--uid=sparkd-rank", "sleep", "300")
    assert ring.ask("spark1", "POST", "/v1/ring/stop").status == 202
    ring.phase("down")
    group = GROUP.format(epoch=epoch)
    ring.lab.exec("spark2", "sh", "-c", f"mkdir -p '{group}' && echo {pid} > '{group}/cgroup.procs'")
    try:
        named = f"pid {pid} (/usr/bin/sleep 300, user sparkd-rank) is left of sparkd-rank@{epoch}.service on spark2"
        for node in ring.lab.nodes:
            ring.until(node, lambda seen: seen["phase"] == "stopping" and seen["waits"] == [named], 15)
        assert ring.ask("spark1", "POST", "/v1/ring/start").status == 202
        ring.until("spark1", lambda seen: named in seen["summary"])
        assert all(ring.units(node) == [] for node in ring.lab.nodes)
        assert ring.show("spark2", "remains.service", "MainPID") == pid, "sparkd ends nothing but units of its own"
    finally:
        ring.lab.exec("spark2", "sh", "-c", f"kill {pid}; sleep 0.2; rmdir '{group}'")
    ring.phase("ready")


def test_a_stop_names_a_stranger_on_a_port_of_the_ring(ring: Ring) -> None:
    """Field report second-supervisor, after a stop."""
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 8888)); time.sleep(300)"
    pid = _run(ring, "stranger", "python3", "-c", listen)
    ring.stop()
    shown = ring.until("spark1", lambda seen: "second-supervisor" in [f["id"] for f in seen["findings"]], 10)
    told = ring.until("spark1", lambda seen: seen["phase"] == "down" and len(seen["waits"]) > 0, 10)
    assert "a process of user root; which one only root may see listens on 127.0.0.1:8888" in told["summary"]
    assert [f["node"] for f in shown["findings"]] == ["spark2"]
    assert ring.show("spark2", "stranger.service", "MainPID") == pid
