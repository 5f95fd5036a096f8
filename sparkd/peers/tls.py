"""Mutual TLS between the daemons of one cluster: each side shows a certificate of the cluster's own CA."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path

_ANY_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_PARTIAL_CHAIN = 0x80000  # X509_V_FLAG_PARTIAL_CHAIN


@dataclass(frozen=True)
class Credentials:
    """PEM files of one node."""

    authority: Path
    certificate: Path
    key: Path

    def showing(self, certificate: str, key: str) -> Credentials:
        """Another certificate, beside the same authority."""
        return Credentials(self.authority, Path(certificate), Path(key))

    @classmethod
    def below(cls, directory: Path) -> Credentials:
        return cls(directory / "ca.crt", directory / "node.crt", directory / "node.key")


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """For asking a peer: only this cluster's CA is trusted, and the peer's certificate must name its address.

    Raises OSError or ssl.SSLError for an unreadable or unusable file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(credentials.authority)
    context.load_cert_chain(credentials.certificate, credentials.key)
    return context


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """For answering peers: a caller without a certificate of this cluster's CA does not get past the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(credentials.authority)
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def operator_context(credentials: Credentials) -> ssl.SSLContext:
    """For operators elsewhere, who show a token and no certificate. Raises OSError or ssl.SSLError like the others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # browsers and curl of the machine on somebody's desk
    context.load_cert_chain(credentials.certificate, credentials.key)
    return context


def certificate_names(credentials: Credentials) -> frozenset[str]:
    """Host names and addresses of the certificate, in lower case. Raises OSError or ssl.SSLError like the others.

    Python tells the names of no certificate but one that has been proved in a handshake: it has one with itself, in
    memory, in which the certificate is trusted for its own sake and at any time.
    """
    server = operator_context(credentials)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= _ANY_TIME | _PARTIAL_CHAIN
    client.load_verify_locations(credentials.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (here, there, here, there):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    names = (here.getpeercert() or {}).get("subjectAltName", ())
    return frozenset(str(name[1]).lower() for name in names if name[0] in ("DNS", "IP Address"))
