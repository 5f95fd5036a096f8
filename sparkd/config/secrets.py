"""The files beside sparkd.toml: tokens, cluster key, certificates."""

from __future__ import annotations

import re
import ssl
import stat
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

from sparkd.config.files import unreadable
from sparkd.config.settings import Problem
from sparkd.config.tokens import parse

MADE_BY = "made by `sparkctl cluster create` and put here by `sparkctl cluster install`"

# X509_V_FLAG_NO_CHECK_TIME. A machine whose clock has no battery starts in the past, and an expired certificate must
# not keep the daemon from saying so: the time is checked where peers connect.
_ANY_TIME = 0x200000


def check_tokens(path: Path, problems: list[Problem]) -> None:
    """Note what keeps the operators' tokens from being used. There need not be any."""
    try:
        parse(path.read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(unreadable(path, error, "the operators' tokens, readable by group sparkd (root:sparkd, 0640)"))
    except ValueError as error:
        problems.append(Problem(str(path), "file", f"what cannot be used ({error})", "as `sparkctl token` writes it"))


def read_cluster_key(path: Path, problems: list[Problem]) -> bytes:
    """The secret that all nodes share, 32 bytes; empty if it cannot be used."""
    text = _text(path, "the cluster's key", problems)
    if text is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        problems.append(Problem(str(path), "file", _size(text), f"64 hex digits, {MADE_BY}"))
        return b""
    return bytes.fromhex(text or "")


def check_tls(folder: Path, node: str | None, address: IPv4Address | None, problems: list[Problem]) -> None:
    """Note what keeps the certificates from serving the node. Its name and address are compared if both are known."""
    ca, certificate, key = folder / "ca.crt", folder / "node.crt", folder / "node.key"
    before = len(problems)
    _text(ca, "the certificate of the cluster's CA", problems)
    _text(certificate, "this node's certificate", problems)
    _text(key, "the key of node.crt", problems)
    if len(problems) > before:
        return
    file, expected = ca, f"the certificate of the cluster's CA in PEM, {MADE_BY}"
    sides = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for side in sides:
            side.load_verify_locations(ca)
        file, expected = certificate, f"this node's certificate with its key in PEM, {MADE_BY}"
        for side in sides:
            # Without a password from here OpenSSL asks for one on the terminal.
            side.load_cert_chain(certificate, key, password=lambda: "none")
        names = _handshake(*sides)
    except ssl.SSLCertVerificationError as error:
        problems.append(
            Problem(str(file), "file", f"one that ca.crt does not prove ({error.verify_message})", expected)
        )
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        found = "one that is not node.key's" if reason == "KEY_VALUES_MISMATCH" else f"none ({reason or error})"
        problems.append(Problem(str(file), "file", found, expected))
    else:
        if node and address and not {node, str(address)} <= names:
            found = f"one for {', '.join(sorted(names)) or 'nobody'}"
            problems.append(Problem(str(file), "file", found, f"the certificate of {node} at {address}, {MADE_BY}"))


def check_pair(certificate: Path, key: Path, problems: list[Problem]) -> None:
    """Note what keeps these two from serving operators elsewhere."""
    before = len(problems)
    _text(certificate, "a certificate", problems)
    _text(key, f"the key of {certificate.name}", problems)
    if len(problems) > before:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "none")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        problems.append(Problem(str(certificate), "file", f"one that cannot be used ({reason})", f"{key}'s, in PEM"))


def check_modes(paths: Iterable[Path], problems: list[Problem]) -> None:
    """Note the secrets that every user of this machine can use."""
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # told of where it is read
        if stat.S_ISREG(mode) and mode & 0o007:
            found = f"mode {stat.S_IMODE(mode):04o}, open to every user"
            problems.append(Problem(str(path), "file", found, f"mode 0640: chmod 0640 {path}"))


def _text(path: Path, what: str, problems: list[Problem]) -> str | None:
    expected = f"{what}, {MADE_BY}"
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        if isinstance(error, PermissionError):
            expected = f"{what}, readable by group sparkd (root:sparkd, mode 0640)"
        problems.append(unreadable(path, error, expected))
        return None
    except ValueError:
        problems.append(Problem(str(path), "file", "bytes that are not ASCII", expected))
        return None


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> set[str]:
    """Connect the node to itself in memory, each side proving itself as peers do; the names in its certificate.

    Raises ssl.SSLCertVerificationError if the CA did not sign it, or not for both sides of a connection.
    """
    for side in (client, server):
        side.check_hostname = False
        side.verify_mode = ssl.CERT_REQUIRED
        side.verify_flags |= _ANY_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (here, there, here, there):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    names = (here.getpeercert() or {}).get("subjectAltName", ())
    return {str(name[1]) for name in names}


def _size(text: str) -> str:
    return f"{len(text)} characters" if text else "an empty file"
