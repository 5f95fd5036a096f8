"""The plan as text, as JSON, and from the command line."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_mesh import (
    Cabling,
    Cluster,
    PlanError,
    adopt,
    by_order,
    parse_cluster,
    plan,
    plan_as_json,
    plan_from_json,
    planned_environment,
    render,
)
from ring_mesh.__main__ import main
from tests.ring_mesh.samples import LAB, addresses, lab, rings, wired


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


def test_the_picture_of_two_nodes_has_the_ports_that_are_cabled_and_no_routes() -> None:
    text = render(plan(parse_cluster(lab(2)), wired("spark1.1-spark2.1 spark1.0-spark2.0")))

    assert (
        "Cables\n"
        "  spark1 [port 0]======== cable 0 ========[port 0] spark2\n"
        "  spark1 [port 1]======== cable 1 ========[port 1] spark2\n\n"
    ) in text
    assert "Routes: none; each node has a cable to every fabric address\n" in text


def test_the_picture_of_many_nodes_follows_the_cables() -> None:
    cluster = parse_cluster(lab(12))
    order = [f"spark{number}" for number in (1, 3, 2, 4, 5, 6, 7, 8, 9, 10, 12, 11)]

    lines = render(plan(cluster, by_order(order))).splitlines()

    assert lines[2:5] + lines[13:15] == [
        "Cables: port 0 of each node to port 1 of the next",
        "   spark1 [port 0]======== cable  0 ========[port 1] spark3",
        "   spark3 [port 0]======== cable  1 ========[port 1] spark2",
        "  spark12 [port 0]======== cable 10 ========[port 1] spark11",
        "  spark11 [port 0]======== cable 11 ========[port 1] spark1",
    ]
    assert "  no path from spark7 to 9 nodes, which it has no cable to" in lines


def test_a_ring_of_four_says_what_it_cannot_reach() -> None:
    planned = plan(parse_cluster(lab(4)), by_order(["spark1", "spark2", "spark4", "spark3"]))

    assert "  no path from spark2 to spark3, which it has no cable to\n" in render(planned)
    data: Any = plan_as_json(planned)
    assert data["order"] == ["spark1", "spark2", "spark4", "spark3"]
    assert data["unreachable"]["spark1"] == ["spark4"]


@given(rings(st.integers(2, 6)))
def test_any_plan_can_be_shown_and_read_back(ring: tuple[Cluster, Cabling]) -> None:
    planned = plan(*ring)

    assert render(planned).endswith("\n")
    data = json.loads(json.dumps(plan_as_json(planned)))
    assert data == plan_as_json(planned)
    assert plan_from_json(data) == planned


def test_an_adopted_plan_is_read_back_with_what_later_versions_add() -> None:
    cluster = parse_cluster(lab())
    found = {key: [IPv4Interface(f"{one.ip + 65536}/29")] for key, (one,) in addresses(plan(cluster)).items()}
    planned = adopt(cluster, None, found)

    data: Any = plan_as_json(planned)
    data["later"] = data["cluster"]["later"] = data["cluster"]["nodes"][0]["later"] = data["cables"][0]["later"] = 1

    assert plan_from_json(data) == planned


def set_rank(data: Any) -> None:
    data["cluster"]["nodes"][0]["rank"] = 7


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda data: data.clear(), "plan: found KeyError: 'cluster', expected the data of a plan"),
        (lambda data: data.update(ends=[]), "spark1 enp1s0f0np0: found no address"),
        (lambda data: data["cables"].pop(), "spark1 port 1: found no cable"),
        (lambda data: data["ends"][0].update(address="10.0.0"), "plan: found AddressValueError"),
        (lambda data: data["ends"].append(None), "plan: found TypeError"),
        (lambda data: data["cables"][0]["to"].update(cage="1"), "plan: found TypeError: cage '1' is not a number"),
        (lambda data: data["cables"][0]["to"].update(cage=2), "spark2 port 2: found a cable to spark1 port 0"),
        (set_rank, "cluster.node[0].rank: found 7"),
    ],
)
def test_what_is_no_plan_is_not_read(spoil: Callable[[Any], object], text: str) -> None:
    data: Any = plan_as_json(plan(parse_cluster(lab())))
    spoil(data)

    with pytest.raises(PlanError, match=re.escape(text)):
        plan_from_json(data)


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


def test_the_command_plans_the_cables_in_the_given_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(LAB)

    assert main(["plan", str(file), "--order", "spark2,spark1,spark3", "--json"]) == 0
    turned = plan(parse_cluster(lab()), by_order(["spark2", "spark1", "spark3"]))
    assert json.loads(capsys.readouterr().out) == plan_as_json(turned)
    assert turned.order == ("spark1", "spark3", "spark2")


@pytest.mark.parametrize("order", ["", "spark1,spark2", "spark1,spark2,spark4", "spark1,spark2,spark3,spark3"])
def test_an_order_that_is_not_of_all_nodes_is_refused(
    order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(LAB)

    assert main(["plan", str(file), "--order", order]) == 2
    assert capsys.readouterr().err == (
        f'{file}: --order: found "{order}", expected each of spark1, spark2, spark3 once, with commas\n'
    )


def test_a_plan_of_64_nodes_takes_less_than_100_ms() -> None:
    result = run("bench")

    measured = re.fullmatch(r"plan 64 nodes: (\d+\.\d) ms\n", result.stdout)
    assert measured is not None, result
    assert 0 < float(measured[1]) < 100


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
