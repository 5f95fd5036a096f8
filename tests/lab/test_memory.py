"""Memory before and under a rank. What a node sees of it is a file of the test's, laid over its /proc/meminfo."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab

DROP_IN = "/etc/sparkd/sparkd.toml.d/memory.toml"
SEEN = "/run/meminfo"


class Memory:
    """Of spark2, as its daemon sees it."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def available(self, gib: float) -> None:
        script = f"sed 's/^MemAvailable:.*/MemAvailable: {int(gib * 1024 * 1024)} kB/' {SEEN} > {SEEN}.new"
        # Written anew in place: the file that lies over /proc/meminfo has to stay the same one.
        self.ring.lab.exec("spark2", "sh", "-c", f"{script} && cat {SEEN}.new > {SEEN}")

    def configure(self, recovery: str) -> None:
        self.ring.lab.exec("spark2", "sh", "-c", f"mkdir -p $(dirname {DROP_IN}); printf '{recovery}' > {DROP_IN}")
        self.ring.lab.exec("spark2", "systemctl", "restart", "sparkd")


@pytest.fixture
def memory(lab: Lab) -> Iterator[Memory]:
    memory = Memory(Ring(lab))
    memory.ring.idle()
    lab.exec("spark2", "sh", "-c", f"cat /proc/meminfo > {SEEN}; mount --bind {SEEN} /proc/meminfo")
    memory.available(100)
    try:
        yield memory
    finally:
        lab.exec("spark2", "sh", "-c", f"umount /proc/meminfo; rm -f {SEEN} {SEEN}.new {DROP_IN}")
        lab.exec("spark2", "systemctl", "restart", "sparkd")
        memory.ring.until("spark2", lambda seen: True, 20)


def test_memory_not_back_is_waited_for_and_then_refused(memory: Memory) -> None:
    """Field report memory-not-back."""
    ring = memory.ring
    memory.configure("[recovery]\\nmemory_back_percent = 90\\nmemory_back_seconds = 6\\n")
    epoch = ring.fresh()["epoch"]
    memory.available(31)
    ring.lab.exec("spark2", "systemctl", "kill", "-s", "KILL", f"sparkd-rank@{epoch}.service")
    words = "31.0 GiB available, waiting for 90.0 GiB to be back ("
    for node in NODES:
        ring.until(node, lambda seen: words in " ".join(seen["waits"]) and seen["phase"] == "gated")
    late = ring.until("spark1", lambda seen: "31.0 GiB available, not 90.0 GiB after" in seen["summary"], 20)
    [finding] = [f for f in late["findings"] if f["id"] == "memory-not-back"]
    assert (finding["node"], finding["severity"]) == ("spark2", "refuse")
    assert "reboot the node" in finding["fix"]
    assert all(ring.units(node) == [] for node in NODES)
    memory.available(95)
    assert ring.phase("ready")["epoch"] > epoch


def test_page_cache_counts_a_step_that_fails_does_not_keep_a_rank_from_starting(memory: Memory) -> None:
    """Field report page-cache-counts: nothing here may drop a page cache, as /proc/sys is read-only."""
    ring, unit = memory.ring, "sparkd-drop-caches@.service"
    conditions = (
        "[Unit]\\nConditionArchitecture=\\nConditionPathExists=\\n[Service]\\nEnvironment=SPARKD_PAGE_CACHE_MIB=-1\\n"
    )
    place = f"/run/systemd/system/{unit}.d"
    script = f"mkdir -p {place}; printf '{conditions}' > {place}/all.conf; systemctl daemon-reload"
    ring.lab.exec("spark2", "sh", "-c", script)
    try:
        began = time.time()
        epoch = ring.start()["epoch"]
        instance = unit.replace("@", f"@{epoch}")
        tried = ring.said("spark2", instance, "drop_caches", after=began)
        assert tried < ring.said("spark2", f"sparkd-rank@{epoch}.service", "Starting ", after=began)
    finally:
        ring.lab.exec(
            "spark2", "sh", "-c", f"rm -r {place}; systemctl daemon-reload; systemctl reset-failed '{unit}' || :"
        )


def test_memory_floor_kills_the_rank_at_once_and_the_second_time_holds_the_ring(memory: Memory) -> None:
    """Field report memory-floor."""
    ring = memory.ring
    memory.configure("[recovery]\\nmemory_floor_mib = 4096\\n")
    epoch = ring.fresh()["epoch"]
    memory.available(6)
    time.sleep(2)
    assert ring.get("spark2")["epoch"] == epoch
    struck = time.time()
    memory.available(3)
    again = ring.until("spark1", lambda seen: seen["epoch"] > epoch)
    memory.available(100)
    gone = ring.said("spark2", f"sparkd-rank@{epoch}.service", "status=9/KILL", after=struck)
    # A second between two looks, and the kill.
    assert gone - struck < 2.0, gone - struck
    assert again["deaths"][-1]["node"] == "spark2"
    assert again["deaths"][-1]["sentence"].startswith("memory-floor: 3.0 GiB of memory available, 97.0 GiB less than ")
    epoch = ring.phase("ready", above=epoch)["epoch"]
    memory.available(1)
    held = ring.phase("held")
    assert held["reason"].startswith("out of memory 2 times within 60 min: incident on spark2: memory-floor: 1.0 GiB")
