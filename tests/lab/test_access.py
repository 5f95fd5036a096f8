"""Who may change a ring, tried from where each caller would be."""

from __future__ import annotations

import pytest

from tests.lab.layout import NODES, OUTSIDE
from tests.lab.ring import Ring

pytestmark = pytest.mark.lab


def _bearer(token: str) -> tuple[str, str]:
    return "-H", f"Authorization: Bearer {token}"


@pytest.mark.parametrize(
    ("options", "code"), [((), "token-missing"), (_bearer("guess"), "token-wrong"), (_bearer(""), "token-missing")]
)
@pytest.mark.parametrize("path", ["/v1/ring/start", "/v1/ring/stop", "/v1/ring/clear"])
def test_a_change_over_tcp_without_the_token_is_refused(
    ring: Ring, path: str, options: tuple[str, ...], code: str
) -> None:
    before = ring.fresh()
    answer = ring.ask("spark2", "POST", path, *options, tcp=True)
    assert (answer.status, answer.body["code"]) == (401, code)
    assert "sparkctl token create" in answer.body["hint"]
    assert ring.get("spark1")["epoch"] == before["epoch"]


def test_a_token_counts_from_its_creation_to_its_revocation(ring: Ring) -> None:
    ring.idle()
    token = ring.lab.exec("spark2", "sparkctl", "token", "create", "laptop", "--role", "operate").stdout.strip()
    try:
        shown = ring.lab.exec("spark2", "stat", "-c", "%a %U %G", "/etc/sparkd/tokens.json").stdout.strip()
        assert shown == "640 root sparkd"
        answer = ring.ask("spark2", "POST", "/v1/ring/start", *_bearer(token), tcp=True)
        assert answer.status == 202
        assert ring.phase("ready")["by"] == "laptop (token) at 127.0.0.1 on spark2"
        other = ring.ask("spark3", "POST", "/v1/ring/stop", *_bearer(token), tcp=True)
        assert other.body["code"] == "token-wrong", "each node has tokens of its own"
    finally:
        ring.lab.exec("spark2", "sparkctl", "token", "revoke", "laptop")
    assert ring.ask("spark2", "POST", "/v1/ring/stop", *_bearer(token), tcp=True).body["code"] == "token-wrong"
    ring.said("spark2", "sparkd", "POST '/v1/ring/start' by laptop (token) at 127.0.0.1: accepted, /v1/operations/")
    assert token not in ring.lab.exec("spark2", "journalctl", "-q", "-u", "sparkd").stdout


def test_a_page_of_another_site_gets_nothing(ring: Ring) -> None:
    for header, code in (
        ("Host: evil.example", "host-not-allowed"),
        ("Origin: http://evil.example", "origin-not-allowed"),
    ):
        answer = ring.ask("spark1", "GET", "/v1/ring", "-H", header, tcp=True)
        assert (answer.status, answer.body["code"]) == (403, code)


def test_reading_over_tcp_needs_nothing(ring: Ring) -> None:
    for path in ("/v1/ring", "/v1/host", "/v1/plan", "/v1/events", "/livez", "/metrics", "/openapi.json"):
        assert ring.ask("spark3", "GET", path, tcp=True).status == 200


def test_on_the_unix_socket_everybody_looks_and_root_and_the_group_operate(ring: Ring) -> None:
    ring.fresh()
    ring.lab.exec("spark1", "sh", "-c", "id stranger >/dev/null 2>&1 || useradd stranger")

    def as_stranger(groups: str, *command: str) -> str:
        user = ("setpriv", "--reuid=stranger", "--regid=stranger", groups)
        return ring.lab.exec("spark1", *user, *command, check=False).stdout

    ask = ["curl", "-sS", "-m", "5", "--unix-socket", "/run/sparkd/api.sock"]
    start = [*ask, "-X", "POST", "http://sparkd/v1/ring/start"]
    assert '"phase":"ready"' in as_stranger("--clear-groups", *ask, "http://sparkd/v1/ring")
    assert '"read-only"' in as_stranger("--clear-groups", *start)
    assert '"/v1/operations/' in as_stranger("--groups=sparkd", *start)
    assert as_stranger("--clear-groups", "ls", "/run/sparkd") == "", "what else is there is nobody's business"
    assert as_stranger("--clear-groups", "sh", "-c", "cat /run/sparkd/rank-*.env") == ""


def test_secrets_are_not_for_everyone(ring: Ring) -> None:
    for path in ("cluster.key", "tls/node.key"):
        shown = ring.lab.exec("spark1", "stat", "-c", "%a %U %G", f"/etc/sparkd/{path}").stdout.strip()
        assert shown == "640 root sparkd", path


@pytest.mark.parametrize("node", NODES)
def test_a_stranger_on_the_management_network_gets_nothing(ring: Ring, node: str) -> None:
    address = f"192.168.77.{NODES.index(node) + 1}"
    for url in (f"http://{address}:7475/peer/v1/report", f"http://{address}:7474/v1/ring"):
        assert ring.lab.exec(OUTSIDE, "curl", "-sS", "-m", "5", url, check=False).returncode != 0
    bare = ring.lab.exec(OUTSIDE, "curl", "-sS", "-k", "-m", "5", f"https://{address}:7475/peer/v1/report", check=False)
    assert bare.returncode != 0
    assert bare.stdout == ""


def test_a_certificate_of_another_ca_is_refused(ring: Ring) -> None:
    script = """
    set -e
    rm -rf /tmp/foreign && sparkctl cluster create /root/cluster.toml --out /tmp/foreign >/dev/null
    cd /tmp/foreign/spark2/tls
    curl -sS -k -m 5 --cert node.crt --key node.key https://192.168.77.3:7475/peer/v1/report
    """
    foreign = ring.lab.exec("spark1", "sh", "-c", script, check=False)
    assert foreign.returncode != 0
    assert foreign.stdout == ""
    own = [
        "--cert",
        "/etc/sparkd/tls/node.crt",
        "--key",
        "/etc/sparkd/tls/node.key",
        "--cacert",
        "/etc/sparkd/tls/ca.crt",
    ]
    member = ring.lab.exec("spark1", "curl", "-sS", "-m", "5", *own, "https://192.168.77.3:7475/peer/v1/report")
    assert '"node":"spark3"' in member.stdout


def test_a_node_with_a_foreign_certificate_is_named_and_nothing_starts(ring: Ring) -> None:
    ring.idle()
    swap = """
    rm -rf /tmp/foreign && sparkctl cluster create /root/cluster.toml --out /tmp/foreign >/dev/null
    tar -C /tmp/foreign/spark2/tls -cf - .
    """
    ring.lab.exec("spark1", "sh", "-c", swap)
    foreign = {
        name: ring.lab.exec("spark1", "cat", f"/tmp/foreign/spark2/tls/{name}").stdout
        for name in ("ca.crt", "node.crt", "node.key")
    }
    own = {name: ring.lab.exec("spark2", "cat", f"/etc/sparkd/tls/{name}").stdout for name in foreign}

    def install(files: dict[str, str]) -> None:
        for name, text in files.items():
            ring.lab.exec("spark2", "sh", "-c", f"cat > /etc/sparkd/tls/{name}", input=text)
        ring.lab.exec("spark2", "systemctl", "restart", "sparkd")

    install(foreign)
    try:
        ring.until("spark1", lambda r: any("its certificate is refused" in p["error"] for p in r["peers"]), 20)
        ring.until("spark3", lambda r: any("its certificate is refused" in p["error"] for p in r["peers"]), 20)
        ring.until("spark1", lambda r: any(p["node"] == "spark2" and (p["age"] or 99) > 15 for p in r["peers"]), 30)
        answer = ring.ask("spark1", "POST", "/v1/ring/start")
        assert answer.status == 409
        assert any(f["id"] == "unknown-is-a-state" and "spark2" in f["subject"] for f in answer.body["findings"])
    finally:
        install(own)
    ring.until("spark1", lambda r: all(p["error"] == "" and p["age"] is not None for p in r["peers"]), 20)
    ring.start()


@pytest.mark.parametrize(
    ("unit", "verb"),
    [
        ("sparkd-rank@x.service", "start"),
        ("dbus.service", "stop"),
        ("sparkd.service", "stop"),
        ("reboot.target", "start"),
    ],
)
def test_the_daemons_user_may_manage_no_unit_but_ranks(ring: Ring, unit: str, verb: str) -> None:
    command = [
        "setpriv",
        "--reuid=sparkd",
        "--regid=sparkd",
        "--clear-groups",
        "systemctl",
        "--no-ask-password",
        verb,
        unit,
    ]
    tried = ring.lab.exec("spark1", *command, check=False)
    assert tried.returncode != 0
    assert "authentication required" in tried.stderr.lower()
