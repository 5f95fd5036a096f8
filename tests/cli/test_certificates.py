"""The certificates that create makes, in real handshakes with the daemon's own contexts."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509

from sparkd.cli.bundle import create
from sparkd.cli.certificates import Pair, expiry, issue, make_ca
from sparkd.peers.tls import Credentials, client_context, server_context
from tests.cli.fakes import NODES
from tests.config.etc import CLUSTER

NOW = datetime.now(UTC)
ADDRESS = IPv4Address("192.168.77.1")
ADDRESSES = {name: f"192.168.77.{index + 1}" for index, name in enumerate(NODES)}


def made(folder: Path, name: str, text: str = CLUSTER) -> Path:
    description = folder / f"{name}.toml"
    description.write_text(text)
    create(description, folder / name, force=False, now=NOW)
    return folder / name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("certificates"), "cluster")


def connect(client: Path, server: Path, address: str, flags: int = 0) -> tuple[str, str]:
    """One connection over loopback, as if `server` were at the address: what each side thinks of it, empty for well."""
    errors = {}

    def serve() -> None:
        try:
            plain, _ = listener.accept()
            with plain, server_context(Credentials.below(server / "tls")).wrap_socket(plain, server_side=True) as tls:
                tls.sendall(tls.recv(5))
        except OSError as error:
            errors["server"] = getattr(error, "reason", None) or str(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        context = client_context(Credentials.below(client / "tls"))
        context.verify_flags |= flags
        try:
            with (
                socket.create_connection(listener.getsockname(), 5) as plain,
                context.wrap_socket(plain, server_hostname=address) as tls,
            ):
                tls.sendall(b"hello")
                assert tls.recv(5) == b"hello"
        except OSError as error:
            errors["client"] = getattr(error, "verify_message", None) or str(error)
        thread.join(5)
    return errors.get("client", ""), errors.get("server", "")


@pytest.mark.parametrize(("client", "server"), [("spark1", "spark2"), ("spark2", "spark1"), ("spark3", "spark1")])
def test_nodes_of_one_cluster_trust_each_other(cluster: Path, client: str, server: str) -> None:
    assert connect(cluster / client, cluster / server, ADDRESSES[server]) == ("", "")
    assert connect(cluster / client, cluster / server, server) == ("", "")


def test_a_certificate_is_good_for_its_own_address_only(cluster: Path) -> None:
    client, server = connect(cluster / "spark1", cluster / "spark3", ADDRESSES["spark2"])
    assert "IP address mismatch" in client
    assert server


def test_another_cluster_of_the_same_name_is_foreign(cluster: Path, tmp_path: Path) -> None:
    foreign = made(tmp_path, "other")
    client, _ = connect(cluster / "spark1", foreign / "spark2", ADDRESSES["spark2"])
    assert client == "self-signed certificate in certificate chain"
    # With the cluster's own CA the intruder trusts the node; the node does not trust the intruder.
    (foreign / "spark2/tls/ca.crt").write_bytes((cluster / "ca/ca.crt").read_bytes())
    _, server = connect(foreign / "spark2", cluster / "spark1", ADDRESSES["spark1"])
    assert server == "CERTIFICATE_VERIFY_FAILED"


def test_a_node_cannot_sign_another(cluster: Path, tmp_path: Path) -> None:
    intruder = tmp_path / "intruder/tls"
    shutil.copytree(cluster / "spark2/tls", intruder)
    node = Pair((intruder / "node.crt").read_bytes(), (intruder / "node.key").read_bytes())
    forged = issue(node, "spark1", ADDRESS, NOW)
    (intruder / "node.crt").write_bytes(forged.certificate + node.certificate)
    (intruder / "node.key").write_bytes(forged.key)
    client, _ = connect(cluster / "spark3", intruder.parent, ADDRESSES["spark1"])
    assert client == "invalid CA certificate"
    _, server = connect(intruder.parent, cluster / "spark3", ADDRESSES["spark3"])
    assert server == "CERTIFICATE_VERIFY_FAILED"


def test_only_the_ca_is_one_and_none_below_it_can_be(cluster: Path) -> None:
    found = []
    for name in ("ca/ca.crt", "spark1/tls/node.crt"):
        certificate = x509.load_pem_x509_certificate((cluster / name).read_bytes())
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        found.append((constraints.critical, constraints.value.ca, constraints.value.path_length))
    assert found == [(True, True, 0), (True, False, None)]


def test_strict_verification_finds_nothing_to_object(cluster: Path) -> None:
    """As Python 3.13 does by default."""
    assert connect(cluster / "spark1", cluster / "spark2", ADDRESSES["spark2"], ssl.VERIFY_X509_STRICT) == ("", "")


def test_lifetimes(cluster: Path) -> None:
    ca, node = (cluster / "ca/ca.crt").read_bytes(), (cluster / "spark1/tls/node.crt").read_bytes()
    assert abs(expiry(ca) - NOW - timedelta(days=3653)) < timedelta(seconds=2)
    assert abs(expiry(node) - NOW - timedelta(days=731)) < timedelta(seconds=2)
    # A node never outlives its CA, which could not be verified any more.
    late = NOW + timedelta(days=3600)
    pair = make_ca("lab", NOW)
    assert expiry(issue(pair, "spark1", ADDRESS, late).certificate) == expiry(pair.certificate)
    with pytest.raises(ValueError, match="expired"):
        issue(pair, "spark1", ADDRESS, NOW + timedelta(days=4000))
