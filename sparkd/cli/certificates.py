"""The certificates of a cluster: one CA and one certificate per node, for mutual TLS between the daemons.

Keeps to the calls that `cryptography` has had unchanged from 38 (Debian 12) on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3653)
NODE_LIFE = timedelta(days=731)
# Clocks of the nodes differ, and one that has not yet heard of NTP must not find its peers' certificates in the future.
BACKDATED = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM; the key is PKCS #8 without encryption."""

    certificate: bytes
    key: bytes = field(repr=False)


def make_ca(cluster: str, now: datetime) -> Pair:
    """A new CA for the cluster, which signs nodes only and no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, "sparkd CA"),
        ]
    )
    builder = _builder(name, name, key.public_key(), now, now + CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(ca: Pair, node: str, address: IPv4Address, now: datetime) -> Pair:
    """A certificate with a new key for a node, good for both sides of a connection at its management address.

    Raises ValueError if `ca` is no such pair.
    """
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = load_pem_private_key(ca.key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or not _same_key(ca_key, ca_certificate):
        raise ValueError("the key does not belong to the certificate")
    if not now < _not_after(ca_certificate):
        raise ValueError(f"the CA expired on {_not_after(ca_certificate):%Y-%m-%d}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    end = min(now + NODE_LIFE, _not_after(ca_certificate))
    builder = _builder(name, ca_certificate.subject, key.public_key(), now, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(node), x509.IPAddress(address)]), critical=False
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
    )
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def expiry(certificate: bytes) -> datetime:
    """When a PEM certificate ends, with a time zone. Raises ValueError if it is none."""
    return _not_after(x509.load_pem_x509_certificate(certificate))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _same_key(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    public = certificate.public_key()
    return (
        isinstance(public, ec.EllipticCurvePublicKey) and public.public_numbers() == key.public_key().public_numbers()
    )


def _not_after(certificate: x509.Certificate) -> datetime:
    # From 42 on, reading the attribute without a time zone warns; before, there is no other.
    if hasattr(certificate, "not_valid_after_utc"):
        end: datetime = certificate.not_valid_after_utc
        return end
    return certificate.not_valid_after.replace(tzinfo=UTC)
