"""Who asks: the process at the other end of a Unix socket, or the bearer of a token."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["none", "read", "operate"]
WHO = "sparkd.who"
"""Key of an ASGI scope: the Caller."""
NAMES = "sparkd.names"
"""Key of an ASGI scope: the names in the caller's certificate, whose signature has been checked."""
PROCESS = "sparkd.process"
"""Key of an ASGI scope: the Process at the other end of a Unix socket."""
_SO_PEERGROUPS = 59  # the same on x86 and Arm; Python has no name for it
_GROUPS_MAX = 256  # what getsockopt of Python, 1024 bytes at most, has room for


@dataclass(frozen=True)
class Process:
    """By whose right the other end of a Unix socket was connected. `groups`: all of them, with the primary one."""

    uid: int
    groups: frozenset[int]


@dataclass(frozen=True)
class Caller:
    """`name`: for the journal and others; `where`: from where it asks; `key`: whose share of the limits it uses."""

    name: str
    where: str
    role: Role
    key: str


def process_at(sock: socket.socket) -> Process:
    """The other end of a Unix socket, as it was when it connected. Raises OSError.

    The groups are those of the process and not of the group database: it is what the kernel goes by for the mode of a
    socket, `newgrp` and `setpriv` work as anywhere else, and no directory service has to be waited for. So somebody who
    is added to a group has to log in again.
    """
    _, uid, gid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        more = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_MAX * 4)
    except OSError as error:
        if error.errno not in (errno.ERANGE, errno.ENOPROTOOPT):
            raise
        more = b""  # a member of more groups than that has to have the right by its primary one
    return Process(uid, frozenset({gid, *(number for (number,) in struct.iter_unpack("I", more))}))


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The DNS names of a certificate as ssl tells it. Its common name is no longer looked at by anybody."""
    return frozenset(str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")


def name_of(uid: int) -> str:
    """As the journal has it: with the name, as far as the user database of this host has one."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (KeyError, OSError):
        return f"uid {uid}"


def local(process: Process, group: int, *, named: bool) -> Caller:
    """Root, the members of the group, and the daemon's own user operate; everybody else reads. `named`: look it up."""
    may = process.uid in (0, os.geteuid()) or group in process.groups
    key = f"uid {process.uid}"
    return Caller(name_of(process.uid) if named else key, "the Unix socket", "operate" if may else "read", key)


def operates(scope: Mapping[str, Any]) -> bool:
    """Whether who asks may change the ring; nobody of whom it is not known."""
    caller = scope.get(WHO)
    return isinstance(caller, Caller) and caller.role == "operate"
