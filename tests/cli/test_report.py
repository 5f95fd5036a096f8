"""report: a support bundle with all that can be had, with no secret in it, and with no name if that is asked for."""

from __future__ import annotations

import json
import re
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sparkd.cli import report
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.redact import GONE, Redactor
from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing
from tests.cli.test_logs import answer, line, node
from tests.config.etc import Etc

TOKEN = "sparkd_t0kenOfTheLabCluster"
"""As `sparkctl token create` prints it; the machine itself has no more than its hash."""
HUGGING = "hf_AbCdEfGhIjKlMnOpQrStUv"
ENGINE = f"""
[arguments]
model-path = "/models/DeepSeek-V4.1-Flash"
[environment]
HF_TOKEN = "{HUGGING}"
SOME_PASSWORD = "pass-phrase-1"
SGLANG_X = "1"
"""


@pytest.fixture
def root(tmp_path: Path, etc: Etc) -> Path:
    """A machine's file system with a configuration, and with hardware as sysfs has it."""
    made = tmp_path / "root"
    target = made / "etc/sparkd"
    target.parent.mkdir(parents=True)
    etc.write("engine.toml", ENGINE)
    etc.write("sparkd.toml.d/10-a.toml", "[recovery]\nrestarts = 4\n")
    etc.write("tokens.json", '{"hash": "5f4dcc3b5aa765d61d8327deb882cf99aa"}')
    target.symlink_to(etc.folder)
    net = made / "sys/class/net/enp1s0f0np0"
    net.mkdir(parents=True)
    (net / "address").write_text("4c:bb:47:00:11:22\n")
    (net / "mtu").write_text("9000\n")
    rdma = made / "sys/class/infiniband/rocep1s0f0/ports/1"
    rdma.mkdir(parents=True)
    (rdma.parents[1] / "fw_ver").write_text("28.45.4028\n")
    (made / "opt/sparkd/engine/lib/python3.12/site-packages/sglang-0.5.23.dist-info").mkdir(parents=True)
    return made


def secrets(etc: Path) -> list[str]:
    """Every word of every file that holds a secret."""
    files = [etc / "tokens.json", etc / "cluster.key", etc / "tls/node.key"]
    words = [word for file in files for word in file.read_text().split() if len(word) >= 16]
    return [*words, TOKEN, HUGGING, "pass-phrase-1"]


def leaky(ring: FakeRing) -> None:
    """A ring whose logs, incidents and plan have in them what they should not."""
    spill = f"curl -H 'Authorization: Bearer {TOKEN}' http://192.168.77.2:8888 by alice on spark2"
    audit = "POST '/v1/ring/stop' by Bob.Miller (token) at 192.168.77.9: accepted"
    ring.logs = [
        answer(node("spark1", line(0, spill), line(1, f"HF_TOKEN={HUGGING} in /home/alice/x"), line(2, audit)))
    ]
    kept = {"epoch": 6, "at": 1.8e9, "root": "spark2", "sentence": f"token={TOKEN}"}
    ring.incidents = {"nodes": [{"node": "spark1", "incidents": [kept]}]}
    ring.details = {6: {"epoch": 6, "nodes": [{"node": "spark1", "files": {"journal.txt": f"key {'ab' * 32}"}}]}}
    ring.doctor = {"nodes": []}


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        texts = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            texts[member.name.partition("/")[2]] = content.read().decode()
    return texts


def made(root: Path, out: Path, socket: Path, **options: Any) -> dict[str, str]:
    given = {"redact": False, "as_json": True, **options}
    assert report.report(Client(socket, patience=0), out, root=root, **given) is Exit.OK
    return unpacked(out)


def test_all_that_is_known_is_in_it(ring: FakeRing, root: Path, tmp_path: Path) -> None:
    leaky(ring)
    out = tmp_path / "out.tar.gz"
    texts = made(root, out, tmp_path / "api.sock")
    assert json.loads(texts["ring/status.json"])["epoch"] == 7
    for name in ("plan", "doctor", "host", "events", "incidents", "incidents/6"):
        assert json.loads(texts[f"ring/{name}.json"]), name
    assert "0 spark1" in texts["ring/logs.txt"]
    assert "net/enp1s0f0np0/mtu: 9000\n" in texts["host/sysfs.txt"]
    assert "infiniband/rocep1s0f0/fw_ver: 28.45.4028\n" in texts["host/sysfs.txt"]
    assert texts["versions/engine.txt"] == "sglang-0.5.23\n"
    assert "restarts = 4" in texts["etc/sparkd.toml.d/10-a.toml"]
    assert "SGLANG_X" in texts["etc/engine.toml"]
    assert "Linux" in texts["versions/kernel.txt"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("redact", [False, True])
def test_no_secret_is_in_it(redact: bool, ring: FakeRing, root: Path, tmp_path: Path) -> None:
    leaky(ring)
    texts = made(root, tmp_path / "out.tar.gz", tmp_path / "api.sock", redact=redact)
    known = secrets(root / "etc/sparkd")
    assert len(known) >= 6
    for secret in known:
        assert not [name for name, text in texts.items() if secret in text], secret
    assert texts["ring/logs.txt"].count(GONE) == 2
    assert not [name for name in texts if name.startswith("etc/tls") or name in ("etc/tokens.json", "etc/cluster.key")]


def test_names_and_addresses_are_replaced_everywhere_by_the_same(ring: FakeRing, root: Path, tmp_path: Path) -> None:
    leaky(ring)
    texts = made(root, tmp_path / "out.tar.gz", tmp_path / "api.sock", redact=True)
    whole = "\n".join(texts.values())
    for private in ("spark1", "spark2", "192.168.77", "4c:bb:47", "alice", "Miller", "/models/DeepSeek", "10.77."):
        assert private not in whole, [name for name, text in texts.items() if private in text]
    status = json.loads(texts["ring/status.json"])
    assert [rank["node"] for rank in status["ranks"]] == ["node-1", "node-2", "node-3"]
    assert 'name = "node-1"' in texts["etc/sparkd.toml"]
    address = re.search(r'address = "(address-\d+)"', texts["etc/sparkd.toml"].partition('"node-2"')[2])
    assert address is not None
    assert f"http://{address[1]}:8888 by user-" in texts["ring/logs.txt"]
    assert "127.0.0.1" in whole
    assert "net/enp1s0f0np0/address: mac-" in texts["host/sysfs.txt"]
    assert "node-N" in texts["README.txt"]


def test_it_works_while_the_daemon_is_dead(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.tar.gz"
    texts = made(root, out, tmp_path / "nothing.sock", as_json=False)
    assert texts["ring/status.json"].startswith("cannot be had: sparkd is not ")
    assert "restarts = 4" in texts["etc/sparkd.toml.d/10-a.toml"]
    assert not [secret for secret in secrets(root / "etc/sparkd") if secret in "\n".join(texts.values())]
    told = capsys.readouterr()
    assert told.out.startswith(f"{out}: ")
    assert "of the ring nothing is known" in told.err


def test_an_unconfigured_machine(ring: FakeRing, tmp_path: Path) -> None:
    leaky(ring)
    texts = made(tmp_path / "empty", tmp_path / "out.tar.gz", tmp_path / "api.sock")
    assert texts["etc/files.txt"].startswith("cannot be had: there is no ")
    assert texts["host/memory.txt"].startswith("cannot be had")


@pytest.mark.parametrize("name", ["out.zip", "out.tar.zst", "there.tar.gz"])
def test_names_that_it_does_not_take(name: str, ring: FakeRing, ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "there.tar.gz").touch()
    code, _, err = ctl("report", "--out", str(tmp_path / name))
    assert code == 2
    assert name in err
    assert ring.asked == []


def test_what_another_user_has_put_in_the_way_is_not_followed(ring: FakeRing, tmp_path: Path) -> None:
    """Root may well make it in /tmp, by a name that can be guessed."""
    leaky(ring)
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    (tmp_path / ".out.tar.gz.part").symlink_to(victim)
    made(tmp_path / "empty", tmp_path / "out.tar.gz", tmp_path / "api.sock")
    assert victim.read_text() == "as it was"


def test_where_nothing_can_be_written(ring: FakeRing, tmp_path: Path) -> None:
    leaky(ring)
    with pytest.raises(Failure, match="cannot write"):
        made(tmp_path, tmp_path / "no/such/out.tar.gz", tmp_path / "api.sock")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nx", f"{GONE}\nx"),
        ("-----BEGIN EC PRIVATE KEY-----\nabc", GONE),
        ("authorization: bearer abcdefgh1234", f"authorization: bearer {GONE}"),
        ('"api_key": "abcdef123"', f'"api_key": "{GONE}"'),
        ("HF_TOKEN = 'abcdef123'", f"HF_TOKEN = '{GONE}'"),
        ("password=abcdef123 x", f"password={GONE} x"),
        ("max_total_tokens=2048", "max_total_tokens=2048"),
        ("12.5 tokens/s, 1 running", "12.5 tokens/s, 1 running"),
        ("max_total_num_tokens=1234567, x", "max_total_num_tokens=1234567, x"),
        ("--max-total-tokens 65536", "--max-total-tokens 65536"),
        ('A_TOKEN = { value = "hunter2x", why = "w" }', f'A_TOKEN = {{ value = "{GONE}", why = "w" }}'),
        ('A_TOKEN = { why = "a b", value = "hunter2x" }', f'A_TOKEN = {{ why = "a b", value = "{GONE}" }}'),
        (
            '[environment.A_TOKEN]\nwhy = "w"\nvalue = "hunter2x"\n',
            f'[environment.A_TOKEN]\nwhy = "w"\nvalue = "{GONE}"\n',
        ),
        ("--api-key hunter2secret --host x", f"--api-key {GONE} --host x"),
        ('["--api-key", "hunter2secret"]', f'["--api-key", "{GONE}"]'),
        ("--api-key --host", "--api-key --host"),
        # A line of a log within a JSON document, as evidence is.
        (r'{"a": "{\"api_key\": \"hunter2secret\"}"}', f'{{"a": "{{\\"api_key\\": \\"{GONE}\\"}}"}}'),
        ('password = "correct horse battery" # x', f'password = "{GONE}" # x'),
        ("{'passphrase': 'a, b c'}", f"{{'passphrase': '{GONE}'}}"),
        ("AWS_SECRET_ACCESS_KEY=abcdef123", f"AWS_SECRET_ACCESS_KEY={GONE}"),
        ('SECRET_KEY: "abcdef123"', f'SECRET_KEY: "{GONE}"'),
        ("http://alice:hunter2@proxy:3128/", f"http://alice:{GONE}@proxy:3128/"),
        ("http://127.0.0.1:7474/v1/ring", "http://127.0.0.1:7474/v1/ring"),
        ("Authorization: Basic YWxpY2U6eA==", f"Authorization: Basic {GONE}"),
        ("id AKIAIOSFODNN7EXAMPLE x", f"id {GONE} x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def x", f"{GONE} x"),
        ("the secret is out", "the secret is out"),
        ("xx-my-secret-value-xx", f"xx-{GONE}-xx"),
    ],
)
def test_what_looks_like_a_secret_is_one(text: str, left: str) -> None:
    assert Redactor(["my-secret-value"]).text(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("10.0.0.1 and 10.0.0.2, 10.0.0.1", "address-1 and address-2, address-1"),
        ("10.0.0.0/24 via 127.0.0.1", "address-1/24 via 127.0.0.1"),
        ("version 1.2.3.4.5 and 999.1.1.1", "version 1.2.3.4.5 and 999.1.1.1"),
        ("fe80::4ebb:47ff:fe00:1%eth0 ::1 12:34:56", "address6-1%eth0 ::1 12:34:56"),
        ("4C:BB:47:00:11:22 4c:bb:47:00:11:22", "mac-1 mac-1"),
        ("gid 4ebb:47ff:fe00:0001", "gid guid-1"),
        ("Device Serial Number 98-03-9b-ff-ff-aa-bb-cc on 2026-12-01", "Device Serial Number mac-1 on 2026-12-01"),
        (
            "link/infiniband 00:00:10:29:fe:80:00:00:00:00:00:00:98:03:9b:03:00:aa:bb:cc brd",
            "link/infiniband mac-1 brd",
        ),
        ("alpha alpha-2 alphabet", "node-1 node-1-2 alphabet"),
    ],
)
def test_stand_ins(text: str, left: str) -> None:
    assert Redactor([], [("node", "alpha")], private=True).text(text) == left
