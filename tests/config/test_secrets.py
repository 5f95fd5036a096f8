"""Cluster key and certificates: what load says of each that cannot be used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparkd.cli.certificates import Pair, issue, make_ca
from sparkd.config import load
from tests.config.etc import Etc

HERE = "made by `sparkctl cluster create` and put here by `sparkctl cluster install`"
NOW = datetime.now(UTC)
OWN = IPv4Address("192.168.77.1")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("cluster.key", "", "an empty file"),
        ("cluster.key", b"\xc3\xa4" * 20, "bytes that are not ASCII"),
        ("cluster.key", "ab" * 31, "62 characters"),
        ("cluster.key", "xy" * 32, "64 characters"),
    ],
)
def test_secrets_of_the_wrong_form(etc: Etc, name: str, text: str | bytes, found: str) -> None:
    path = etc.write(name, text)
    (problem,) = etc.problems()
    assert (problem.file, problem.key, problem.found) == (str(path), "file", found)
    assert HERE in problem.expected


@pytest.mark.parametrize("name", ["cluster.key", "tls/ca.crt", "tls/node.crt", "tls/node.key"])
def test_missing_files(etc: Etc, name: str) -> None:
    (etc.folder / name).unlink()
    (problem,) = etc.problems()
    assert (problem.file, problem.key, problem.found) == (str(etc.folder / name), "file", "nothing")
    assert HERE in problem.expected


@pytest.mark.parametrize("name", ["cluster.key", "tls/node.key"])
def test_secrets_open_to_everyone(etc: Etc, name: str) -> None:
    path = etc.folder / name
    path.chmod(0o644)
    assert [str(problem) for problem in etc.problems()] == [
        f"{path}: file: found mode 0644, open to every user, expected mode 0640: chmod 0640 {path}"
    ]


def test_before_installation_modes_do_not_matter(etc: Etc) -> None:
    (etc.folder / "cluster.key").chmod(0o777)
    assert len(load(etc.main, {}, installed=False).cluster_key) == 32


def test_a_directory_instead_of_a_file(etc: Etc) -> None:
    (etc.folder / "cluster.key").unlink()
    (etc.folder / "cluster.key").mkdir()
    (problem,) = etc.problems()
    assert (problem.found, problem.file) == ("is a directory", str(etc.folder / "cluster.key"))


def test_the_certificate_of_another_node(etc: Etc, ca: Pair) -> None:
    other = issue(ca, "spark2", IPv4Address("192.168.77.2"), NOW)
    etc.write("tls/node.crt", other.certificate)
    etc.write("tls/node.key", other.key)
    assert [str(problem) for problem in etc.problems()] == [
        f"{etc.folder}/tls/node.crt: file: found one for 192.168.77.2, spark2, "
        f"expected the certificate of spark1 at 192.168.77.1, {HERE}"
    ]


def test_the_key_of_another_certificate(etc: Etc, ca: Pair) -> None:
    etc.write("tls/node.key", issue(ca, "spark1", OWN, NOW).key)
    (problem,) = etc.problems()
    assert (problem.file, problem.found) == (str(etc.folder / "tls/node.crt"), "one that is not node.key's")


def test_the_certificate_of_another_cluster(etc: Etc) -> None:
    foreign = issue(make_ca("lab", NOW), "spark1", OWN, NOW)
    etc.write("tls/node.crt", foreign.certificate)
    etc.write("tls/node.key", foreign.key)
    (problem,) = etc.problems()
    assert problem.file == str(etc.folder / "tls/node.crt")
    assert problem.found.startswith("one that ca.crt does not prove (")


@pytest.mark.parametrize("use", [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
def test_a_certificate_for_one_side_of_a_connection_only(etc: Etc, ca: Pair, use: x509.ObjectIdentifier) -> None:
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key, key = load_pem_private_key(ca.key, None), ec.generate_private_key(ec.SECP256R1())
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spark1")])
    builder = x509.CertificateBuilder(issuer.subject, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("spark1"), x509.IPAddress(OWN)]), False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), False)
    etc.write("tls/node.crt", builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM))
    etc.write("tls/node.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (problem,) = etc.problems()
    assert problem.file == str(etc.folder / "tls/node.crt")
    assert "purpose" in problem.found


@pytest.mark.parametrize("name", ["ca.crt", "node.crt", "node.key"])
def test_files_that_are_no_pem(etc: Etc, name: str) -> None:
    etc.write(f"tls/{name}", "nonsense\n")
    (problem,) = etc.problems()
    assert problem.file == str(etc.folder / "tls" / ("ca.crt" if name == "ca.crt" else "node.crt"))
    assert problem.found.startswith("none (")


def test_an_expired_certificate_does_not_keep_the_daemon_from_starting(etc: Etc) -> None:
    past = NOW - timedelta(days=1000)
    ca = make_ca("lab", past)
    expired = issue(ca, "spark1", OWN, past)
    etc.write("tls/ca.crt", ca.certificate)
    etc.write("tls/node.crt", expired.certificate)
    etc.write("tls/node.key", expired.key)
    assert etc.load().node == "spark1"
