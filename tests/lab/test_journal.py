"""What the journal, Prometheus and the page get from installed daemons."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ring_mesh import FABRIC_DEVICES
from sparkd.reconcile.messages import message_id
from tests.lab.layout import NODES
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab


def entries(ring: Ring, node: str, *match: str) -> list[dict[str, Any]]:
    text = ring.lab.exec(node, "journalctl", "-q", "-o", "json", *match).stdout
    return [json.loads(line) for line in text.splitlines()]


def test_an_epoch_is_found_with_its_rank_and_nothing_is_told_while_nothing_changes(ring: Ring) -> None:
    epoch = ring.fresh()["epoch"]
    for rank, node in enumerate(NODES):
        found = entries(ring, node, f"SPARKD_EPOCH={epoch}")
        assert {entry["SYSLOG_IDENTIFIER"] for entry in found} >= {"sparkd", "sparkd-rank"}
        said = [entry for entry in found if entry["SYSLOG_IDENTIFIER"] == "sparkd"]
        assert {entry["_SYSTEMD_UNIT"] for entry in said} == {"sparkd.service"}
        told = [entry for entry in said if entry.get("SPARKD_EVENT") == "summary"]
        assert [entry["MESSAGE"] for entry in told][-1] == f"epoch {epoch} is ready: all 3 ranks serve"
        last = told[-1]
        fields = ("SPARKD_PHASE", "SPARKD_NODE", "SPARKD_RANK", "PRIORITY", "MESSAGE_ID")
        assert [last[name] for name in fields] == ["ready", node, str(rank), "6", message_id("summary-ready")]
    before = [entry["MESSAGE"] for entry in entries(ring, NODES[0], "SYSLOG_IDENTIFIER=sparkd")]
    time.sleep(6)  # more than a tick
    assert [entry["MESSAGE"] for entry in entries(ring, NODES[0], "SYSLOG_IDENTIFIER=sparkd")] == before


def test_a_finding_is_explained_with_its_fix(ring: Ring) -> None:
    ring.idle()
    ring.lab.unplug("spark1", 0)
    try:
        ring.until("spark1", lambda told: any(found["id"] == "cable-missing" for found in told["findings"]))
        command = ["journalctl", "-q", "-x", f"MESSAGE_ID={message_id('finding-cable-missing')}", "SPARKD_NODE=spark1"]
        text = ring.lab.exec("spark1", *command).stdout
    finally:
        ring.lab.cable("spark1", 0)
    assert "Subject: No cable, or nobody at its other end" in text
    assert re.search(r"What to do: seat the cable between spark1 port 0 and spark\d port 1, or switch spark\d on", text)
    assert "@" not in re.sub(r"sparkd-rank@", "", text)


def test_prometheus_reads_every_node(ring: Ring) -> None:
    ring.fresh()

    def moved(node: str) -> dict[tuple[str, str], float]:
        text = ring.lab.exec(node, "curl", "-sS", "-f", "http://127.0.0.1:7474/metrics").stdout
        families = {f.name: f for f in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
        assert families["sparkd_memory_available_bytes"].samples[0].value > 0
        samples = families["sparkd_rail_bytes"].samples
        return {(s.labels["device"], s.labels["direction"]): s.value for s in samples if s.name.endswith("_total")}

    before = {node: moved(node) for node in NODES}
    ways = {(device, way) for device in FABRIC_DEVICES for way in ("sent", "received")}
    assert [set(found) for found in before.values()] == [ways] * len(NODES)
    end = time.monotonic() + 20
    while not all(now > before[node][key] for node in NODES for key, now in moved(node).items()):
        assert time.monotonic() < end, "no bytes have been counted on some rail of a ring that serves"
        time.sleep(1)


def test_the_page_and_its_history_are_served(ring: Ring) -> None:
    ring.fresh()
    answer = ring.lab.exec("spark2", "curl", "-sS", "-f", "-i", "http://127.0.0.1:7474/").stdout
    assert "content-security-policy: default-src 'none'" in answer and "page/main.js" in answer
    ring.lab.exec("spark2", "curl", "-sS", "-f", "-o", "/dev/null", "http://127.0.0.1:7474/page/main.js")
    history = ring.ask("spark2", "GET", "/v1/history", tcp=True).body
    assert history["node"] == "spark2"
    assert history["last"] >= len(history["at"]) >= 1
    assert all(value > 0 for value in history["memory_available"])
