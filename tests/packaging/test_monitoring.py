"""The Grafana dashboard and the alert rules: every series they name is one that a ring has, and promtool takes them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkd.reconcile.engineseries import SERIES
from sparkd.reconcile.metrics import Metrics
from tests.packaging.built import ROOT, run
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

DASHBOARD = ROOT / "packaging/grafana/sparkd.json"
RULES = ROOT / "packaging/prometheus/sparkd.rules.yml"
SCRAPE = ROOT / "packaging/prometheus/scrape.yml"
_SERIES = re.compile(r"\b(?:sparkd_|sglang:)\w+")
_MISSING = "promtool is missing: apt-get install -y --no-install-recommends prometheus"
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason=_MISSING)


def expressions() -> dict[str, list[str]]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [entry["query"]["query"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"]
    return {
        "dashboard": panels + variables,
        "rules": re.findall(r"^ *expr: (?:>-\n)?((?:.|\n)+?)(?=^ *(?:for|labels):)", RULES.read_text(), re.MULTILINE),
    }


def engine() -> str:
    """An engine that tells of all that is passed through."""
    lines = []
    for name, (kind, _) in SERIES.items():
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        lines += [f'{name}{part}{{{"mode" if part == "" else "le"}="1"}} 1' for part in parts]
    return "\n".join(lines)


@in_loop
async def test_every_series_that_they_name_is_told_by_a_ring(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        machine = ring.conductor

        async def scrape() -> str:
            return engine()

        machine.loop.scrape = scrape
        text = (await Metrics(machine.loop).text()).decode()
        await ring.quiet()
    there = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    # A family is there before it has a sample.
    there |= {f"{name}_total" for name in re.findall(r"^# TYPE (\w+?)(?:_total)? counter$", text, re.MULTILINE)}
    there |= set(re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE))
    for where, found in expressions().items():
        named = {name for expression in found for name in _SERIES.findall(expression)}
        assert len(found) >= 13 and len(named) > 8, where
        assert named - there == set(), where


def test_every_series_but_details_is_on_the_dashboard() -> None:
    named = {name for expression in expressions()["dashboard"] for name in _SERIES.findall(expression)}
    assert {"sparkd_ring_phase", "sparkd_rail_bytes_total", "sparkd_memory_available_bytes"} <= named
    assert {"sglang:realtime_tokens_total", "sglang:num_queue_reqs"} <= named


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not squares & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= squares


def test_every_alert_says_what_is_wrong() -> None:
    text = RULES.read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    assert len(alerts) == len(set(alerts)) == text.count("summary:")
    assert len(alerts) == len(re.findall(r"severity: (?:warning|critical)$", text, re.MULTILINE))


CASES = """\
rule_files: [sparkd.rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'sparkd_ring_phase{job="sparkd",instance="a",phase="held"}', values: '0x5 1x60'}
      - {series: 'sparkd_ring_phase{job="sparkd",instance="b",phase="held"}', values: '0x5 1x60'}
      - {series: 'sparkd_ring_phase{job="sparkd",instance="a",phase="ready"}', values: '0x65'}
      - {series: 'sparkd_ring_wanted{job="sparkd",instance="a"}', values: '1x65'}
      - {series: 'sparkd_memory_available_bytes{node="a"}', values: '9x5 5x60'}
      - {series: 'sparkd_memory_floor_bytes{node="a"}', values: '4x65'}
      - {series: 'sparkd_memory_available_bytes{node="b"}', values: '0x65'}
      - {series: 'sparkd_memory_floor_bytes{node="b"}', values: '0x65'}
      - {series: 'sparkd_incidents_total{cause="oom-kill"}', values: '0x5 1x60'}
      - {series: 'sparkd_link_end_carrier{instance="a",node="a",device="x"}', values: '0x65'}
      - {series: 'sparkd_link_end_carrier{instance="b",node="a",device="x"}', values: '1x65'}
    promql_expr_test: []
    alert_rule_test:
      - {eval_time: 4m, alertname: SparkdRingHeld, exp_alerts: []}
      - eval_time: 10m
        alertname: SparkdRingHeld
        exp_alerts:
          - exp_labels: {phase: held, severity: critical}
            exp_annotations:
              summary: 'The ring is held: sparkd has given up'
              description: >-
                sparkctl incidents shows the first error. Mend it, then sparkctl clear and sparkctl up --wait.
      - {eval_time: 40m, alertname: SparkdRingNotServing, exp_alerts: []}
      - eval_time: 50m
        alertname: SparkdRingNotServing
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations:
              summary: The ring is wanted up and has not served for 45 minutes
              description: sparkctl status says what it waits for. A first load may take half an hour.
      - eval_time: 10m
        alertname: SparkdMemoryNearFloor
        exp_alerts:
          - exp_labels: {node: a, severity: critical}
            exp_annotations:
              summary: a has 5B of memory left
              description: Below the floor sparkd kills its rank, before the machine stops answering.
      - eval_time: 10m
        alertname: SparkdRestarting
        exp_alerts:
          - exp_labels: {cause: oom-kill, severity: warning}
            exp_annotations:
              summary: A rank has died within the last hour (oom-kill)
              description: sparkctl incidents has the evidence, with the first error.
      - eval_time: 10m
        alertname: SparkdCableFault
        exp_alerts:
          - exp_labels: {device: x, node: a, severity: critical}
            exp_annotations:
              summary: No carrier at x of a
              description: sparkctl status says where the cable should lead.
"""


@promtool
def test_prometheus_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    (tmp_path / "cases.yml").write_text(CASES)
    assert "SUCCESS: 13 rules found" in run(["promtool", "check", "rules", str(RULES)]).stdout
    run(["promtool", "check", "config", "--syntax-only", str(SCRAPE)])
    done = run(["promtool", "test", "rules", str(tmp_path / "cases.yml")], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
@in_loop
async def test_prometheus_takes_what_a_ring_tells() -> None:
    """promtool also complains of names and units that are not as usual."""
    async with cluster() as ring:
        await ring.up()
        text = (await Metrics(ring.conductor.loop).text()).decode()
    done = run(["sh", "-c", f"promtool check metrics <<'EOF'\n{text}\nEOF"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
