"""A peer's copy as the source: with the cluster's certificates, verified files only, read-only."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint.fetch import fetch
from runtime.checkpoint.remote import Refused, Remote, peer_context
from runtime.checkpoint.serve import Server
from runtime.checkpoint.sources import Peer
from runtime.checkpoint.stream import Patience
from runtime.checkpoint.verify import record
from runtime.trouble import Trouble
from sparkd.cli.certificates import Pair, issue, make_ca
from tests.runtime.checkpoint import made
from tests.runtime.checkpoint.made import digests

SHARD = "model-00002-of-00003.safetensors"
SEGMENT = 65536


def certificates(directory: Path, name: str, authority: Pair) -> Path:
    """What a node has in /etc/sparkd/tls."""
    directory.mkdir()
    pair = issue(authority, name, IPv4Address("192.0.2.1"), datetime.now(UTC))
    for file, data in (("ca.crt", authority.certificate), ("node.crt", pair.certificate), ("node.key", pair.key)):
        (directory / file).write_bytes(data)
    return directory


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = made.checkpoint(tmp_path_factory.mktemp("peer") / "model", filler=200_000)
    manifests.save(directory, record(directory, "maker/model", "r1"))
    return directory


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Certificates of two nodes of one cluster, and of a stranger."""
    place = tmp_path_factory.mktemp("tls")
    ours, other = (make_ca(name, datetime.now(UTC)) for name in ("ring", "other"))
    return {
        "spark1": certificates(place / "spark1", "spark1", ours),
        "spark2": certificates(place / "spark2", "spark2", ours),
        "stranger": certificates(place / "stranger", "spark2", other),
    }


@pytest.fixture
def server(copy: Path, nodes: dict[str, Path]) -> Iterator[Server]:
    with Server(copy, "127.0.0.1", 0, peer_context(nodes["spark1"], server=True)) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def peer(server: Server, tls: Path) -> Peer:
    url = f"https://127.0.0.1:{server.server_address[1]}"
    return Peer(Remote(url, context=peer_context(tls, server=False), timeout=5))


def test_a_copy_is_fetched_from_a_peer(server: Server, nodes: dict[str, Path], copy: Path, tmp_path: Path) -> None:
    source = peer(server, nodes["spark2"])
    manifest = source.manifest()
    got = fetch(tmp_path / "copy", manifest, source.remote, source.path_of, segment=SEGMENT)

    assert got.received == manifest.size
    assert digests(tmp_path / "copy", manifest.files) == digests(copy, manifest.files)
    assert manifests.load(tmp_path / "copy").digest == manifests.load(copy).digest


@pytest.mark.parametrize("name", ["stranger", ""])
def test_who_is_not_of_the_cluster_gets_nothing(name: str, server: Server, nodes: dict[str, Path]) -> None:
    context = peer_context(nodes[name], server=False) if name else ssl._create_unverified_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", server.server_address[1], context=context, timeout=5)

    def ask() -> None:
        connection.request("GET", "/manifest")
        connection.getresponse()

    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        ask()
    connection.close()


def test_a_server_that_is_not_of_the_cluster_is_not_asked(server: Server, nodes: dict[str, Path]) -> None:
    with pytest.raises(Trouble, match=r"certificate verify failed"):
        peer(server, nodes["stranger"]).manifest()


def test_what_is_not_verified_is_not_served(server: Server, nodes: dict[str, Path], copy: Path, tmp_path: Path) -> None:
    source = peer(server, nodes["spark2"])
    before = (copy / "config.json").read_bytes()
    (copy / "config.json").write_bytes(before + b" ")
    try:
        patience = Patience(attempts=2, first_pause=0.001)
        with pytest.raises(Trouble, match=r"config\.json: HTTP 409"):
            fetch(tmp_path / "copy", source.manifest(), source.remote, source.path_of, patience=patience)
    finally:
        (copy / "config.json").write_bytes(before)
        record(copy, "maker/model", "r1")


@pytest.mark.parametrize(
    "path", ["/files/../../etc/passwd", "/files/%2e%2e/x", "/files/.sparkd/manifest.json", "/files//etc/passwd", "/x"]
)
def test_only_files_of_the_manifest_are_there(path: str, server: Server, nodes: dict[str, Path]) -> None:
    with pytest.raises(Refused, match="HTTP 404"):
        peer(server, nodes["spark2"]).remote.open(path)


def test_ranges_are_answered_as_asked(server: Server, nodes: dict[str, Path], copy: Path) -> None:
    remote = peer(server, nodes["spark2"]).remote
    data = (copy / SHARD).read_bytes()
    answer = remote.open(f"/files/{SHARD}", {"Range": "bytes=10-19"})
    assert (answer.status, answer.read()) == (206, data[10:20])
    etag = answer.headers["ETag"]
    answer.close()
    whole = remote.open(f"/files/{SHARD}", {"Range": "bytes=10-19", "If-Range": '"other"'})
    assert (whole.status, whole.read() == data) == (200, True)
    whole.close()
    rest = remote.open(f"/files/{SHARD}", {"Range": f"bytes={len(data) - 5}-", "If-Range": etag})
    assert rest.read() == data[-5:]
    rest.close()
    with pytest.raises(Refused, match="HTTP 416"):
        remote.open(f"/files/{SHARD}", {"Range": f"bytes={len(data)}-"})


def test_a_caller_that_never_says_anything_holds_up_nobody(server: Server, nodes: dict[str, Path]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_address[1])):
        assert peer(server, nodes["spark2"]).manifest().files


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "8.8.8.8", "224.0.0.1"])
def test_only_an_address_between_the_nodes_is_listened_on(address: str, copy: Path, nodes: dict[str, Path]) -> None:
    with pytest.raises(Trouble, match="expected an address of the fabric"):
        Server(copy, address, 0, peer_context(nodes["spark1"], server=True))


def test_missing_certificates_say_where_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"ca\.crt, node\.crt and node\.key cannot be used"):
        peer_context(tmp_path, server=False)
