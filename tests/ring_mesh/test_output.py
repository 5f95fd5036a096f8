"""The plan as text, as JSON, and from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ring_mesh import parse_cluster, plan, plan_as_json, planned_environment, render
from ring_mesh.__main__ import main
from tests.ring_mesh.samples import LAB, lab, tables


def test_the_text_has_every_cable_link_end_route_and_variable() -> None:
    planned = plan(parse_cluster(lab()))

    text = render(planned)

    squeezed = " ".join(text.split())
    for cable in planned.cables:
        assert f"{cable.a} [port 0]======== cable {cable.index} ========[port 1] {cable.b}" in text
    for link in planned.links:
        a, b = link.ends
        row = f"{link.index} {link.index // 2} {a.port.domain} {link.subnet} {a.node} {a.device} {b.node} {b.device}"
        assert row in squeezed
    for end in (end for link in planned.links for end in link.ends):
        row = f"{end.port.cage} {end.device} {end.hca} {end.address} 9000 {planned.far_end(end).node}"
        assert squeezed.count(row) == 1
    for route in planned.routes:
        row = f"{route.destination}/32 via {route.gateway} dev {route.device} src {route.source}"
        assert squeezed.count(row) == 1
    joined = "".join(text.split())
    for node in planned.cluster.nodes:
        for key, value in planned_environment(planned, node.name).items():
            assert f"{key}={value}" in joined


def test_the_text_fits_on_100_columns_with_long_addresses() -> None:
    table = lab() | {"base_range": "192.168.128.0/21", "name": "workshop"}
    for rank, row in enumerate(table["node"]):
        row |= {"name": f"sparkling-{rank}", "address": f"172.116.117.11{rank}"}

    widths = [len(line) for line in render(plan(parse_cluster(table))).splitlines()]

    assert max(widths) <= 100


@given(tables())
def test_any_plan_can_be_shown(table: dict[str, Any]) -> None:
    planned = plan(parse_cluster(table))

    assert render(planned).endswith("\n")
    assert json.loads(json.dumps(plan_as_json(planned))) == plan_as_json(planned)


def test_the_json_has_the_documented_keys_and_the_plan_in_them() -> None:
    data: Any = plan_as_json(plan(parse_cluster(lab())))

    assert list(data) == ["cluster", "order", "cables", "links", "ends", "routes", "unreachable", "environment"]
    assert data["order"] == ["spark1", "spark2", "spark3"]
    assert data["cluster"]["nodes"][2] == {
        "name": "spark3",
        "rank": 2,
        "address": "192.168.77.3",
        "management_interface": "enP7s7",
    }
    assert data["cables"][2] == {
        "index": 2,
        "from": {"node": "spark3", "cage": 0},
        "to": {"node": "spark1", "cage": 1},
        "links": [4, 5],
    }
    assert data["links"][3] == {
        "index": 3,
        "cable": 1,
        "domain": "0002",
        "subnet": "10.77.3.0/24",
        "ends": [{"node": "spark2", "device": "enP2p1s0f0np0"}, {"node": "spark3", "device": "enP2p1s0f1np1"}],
    }
    assert data["ends"][3] == {
        "node": "spark1",
        "rank": 0,
        "cage": 1,
        "domain": "0002",
        "device": "enP2p1s0f1np1",
        "hca": "roceP2p1s0f1",
        "address": "10.77.5.1/24",
        "mtu": 9000,
        "link": 5,
        "peer": {"node": "spark3", "device": "enP2p1s0f0np0"},
    }
    assert data["routes"][0] == {
        "node": "spark1",
        "destination": "10.77.2.2/32",
        "gateway": "10.77.0.2",
        "device": "enp1s0f0np0",
        "source": "10.77.0.1",
    }
    assert [len(data[key]) for key in ("cables", "links", "ends", "routes", "environment")] == [3, 6, 12, 12, 3]
    assert data["environment"]["spark2"]["SPARKD_RANK"] == "1"
    assert data["environment"]["spark2"]["NCCL_NET"] == "IB"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ring_mesh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"COLUMNS": "100"},
    )


def test_the_command_prints_the_plan_of_a_whole_sparkd_toml(tmp_path: Path) -> None:
    file = tmp_path / "sparkd.toml"
    file.write_text(f'[node]\nname = "spark1"\n{LAB}\n[engine]\nname = "probe"\n')

    as_text, as_json = run("plan", str(file)), run("plan", str(file), "--json")

    assert (as_text.returncode, as_json.returncode) == (0, 0)
    assert (as_text.stderr, as_json.stderr) == ("", "")
    assert as_text.stdout.startswith(render(plan(parse_cluster(lab()))))
    assert "--json" in as_text.stdout.splitlines()[-1]
    assert json.loads(as_json.stdout) == plan_as_json(plan(parse_cluster(lab())))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (LAB.replace("rank = 1", "rank = 5"), ["cluster.node[1].rank: found 5, expected an integer from 0 to 2, each"]),
        (
            LAB.replace('"lab"', "1").replace("/21", "/28"),
            ["cluster.name: found 1, expected", 'cluster.base_range: found "10.77.0.0/28", which is too small, expect'],
        ),
        ("", ["cluster: found nothing, expected a [cluster] table"]),
        (
            '[clutser]\nname = "lab"',
            ["cluster: found nothing, expected a [cluster] table", 'clutser: found an unknown key, expected "cluster"'],
        ),
        ("cluster = 1", ["cluster: found 1, expected one [cluster] table"]),
        ("[[cluster]]", ["cluster: found a list of 1, expected one [cluster] table"]),
        ("[cluster", ["toml: found Expected ']' at the end of a table declaration"]),
        ("a = " + "[" * 5000, ["toml: found "]),
        ("a = " + "9" * 5000, ["toml: found "]),
        ("\udcff", ["toml: found 'utf-8' codec can't decode byte 0xff"]),
    ],
)
def test_a_bad_file_is_refused_with_file_and_key(
    content: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(content, encoding="utf-8", errors="surrogateescape")

    status = main(["plan", str(file)])

    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    written = captured.err.splitlines()
    assert len(written) == len(lines)
    for line, beginning in zip(written, lines, strict=True):
        assert line.startswith(f"{file}: {beginning}")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    absent, directory = run("plan", str(tmp_path / "absent.toml")), run("plan", str(tmp_path))

    assert (absent.returncode, directory.returncode) == (2, 2)
    assert absent.stderr == f"{tmp_path}/absent.toml: file: found No such file or directory, expected a readable file\n"
    assert directory.stderr == f"{tmp_path}: file: found Is a directory, expected a readable file\n"


def test_a_wrong_call_is_refused_with_the_usage() -> None:
    for arguments in ((), ("plan",), ("paln", "x")):
        result = run(*arguments)
        assert result.returncode == 2
        assert "usage: python -m ring_mesh" in result.stderr
