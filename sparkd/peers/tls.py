"""Mutual TLS between the daemons of one cluster: each side shows a certificate of the cluster's own CA."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Credentials:
    """PEM files of one node."""

    authority: Path
    certificate: Path
    key: Path

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
