"""What an operator has at hand on real hosts: logs of all nodes, a reload, and a bundle while a daemon is dead."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.control import Lab
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab
DROP_IN = "/etc/sparkd/sparkd.toml.d/50-sparkctl.toml"
BUNDLE = "/tmp/report.tar.gz"
# Each word of each file that holds a secret, in each part of the bundle.
SEARCH = f"""
import pathlib, tarfile
etc = pathlib.Path("/etc/sparkd")
files = [etc / "tokens.json", etc / "cluster.key", etc / "tls/node.key"]
words = [word for file in files if file.exists() for word in file.read_text().split() if len(word) >= 16]
assert len(words) > 3, words
with tarfile.open("{BUNDLE}") as archive:
    parts = {{member.name: archive.extractfile(member).read().decode() for member in archive.getmembers()}}
print([name for name, text in parts.items() if any(word in text for word in words)])
print(sorted(name.partition("/")[2] for name in parts if not parts[name].startswith("cannot be had")))
"""


@pytest.fixture
def silent(down: Ring) -> Iterator[Ring]:
    """A ring whose daemon on spark3 is dead."""
    down.lab.exec("spark3", "systemctl", "stop", "sparkd")
    yield down
    down.lab.exec("spark3", "systemctl", "start", "sparkd")


def test_logs_of_all_nodes_and_who_is_silent(silent: Ring) -> None:
    lab = silent.lab
    done = lab.exec("spark2", "sparkctl", "logs", "--lines", "20", "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["rank"] for line in told} == {0, 1}
    assert [line["at"] for line in told] == sorted(line["at"] for line in told)
    assert done.stderr.startswith("sparkctl: spark3: its lines are not known: spark3 cannot be asked: ")
    # Who may only read gets none of it.
    assert silent.ask("spark2", "GET", "/v1/logs", tcp=True).status == 401
    assert silent.ask("spark2", "GET", "/v1/ring", tcp=True).status == 200


def test_a_bundle_of_a_host_whose_daemon_is_dead(silent: Ring) -> None:
    done = silent.lab.exec("spark3", "sparkctl", "report", "--out", BUNDLE)
    assert "of the ring nothing is known" in done.stderr
    leaks, parts = silent.lab.exec("spark3", "python3", "-c", SEARCH).stdout.splitlines()
    silent.lab.exec("spark3", "rm", BUNDLE)
    assert leaks == "[]"
    for part in ("etc/sparkd.toml", "journal/sparkd.txt", "host/sparkd.txt", "host/sysfs.txt", "versions/packages.txt"):
        assert f"'{part}'" in parts


@pytest.fixture
def as_before(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.exec("spark1", "rm", "-f", DROP_IN)
    lab.exec("spark1", "systemctl", "reload", "sparkd")


def test_a_reload_takes_over_what_it_can_and_says_what_it_cannot(down: Ring, as_before: Lab) -> None:
    def restarts() -> int:
        return int(down.get("spark1")["budget"]["restarts"])

    pid = down.show("spark1", "sparkd", "MainPID")
    before = restarts()
    told = as_before.exec("spark1", "sparkctl", "config", "set", "recovery.restarts", str(before + 4)).stdout
    assert told.endswith("next: systemctl reload sparkd\n")
    as_before.exec("spark1", "systemctl", "reload", "sparkd")
    down.until("spark1", lambda ring: ring["budget"]["restarts"] == before + 4)

    # A key that needs more is named, and nothing of the file is taken.
    as_before.exec("spark1", "sparkctl", "config", "set", "recovery.restarts", "1")
    as_before.exec("spark1", "sparkctl", "config", "set", "listen.peer_port", "7999")
    as_before.exec("spark1", "systemctl", "reload", "sparkd")
    refused = "the configuration was not taken, since listen.peer_port cannot change by a reload"
    down.until("spark1", lambda ring: refused in down.show("spark1", "sparkd", "StatusText"))
    assert restarts() == before + 4

    # A faulty file fails the reload itself.
    as_before.exec("spark1", "tee", "-a", DROP_IN, input="[recovery]\n")
    done = as_before.exec("spark1", "systemctl", "reload", "sparkd", check=False)
    assert done.returncode != 0
    assert restarts() == before + 4
    assert down.show("spark1", "sparkd", "MainPID") == pid
