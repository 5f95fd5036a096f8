"""The ports of a start: free before it, and who has connected during it."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from runtime.environment import Endpoint
from runtime.exits import ExitCode, RankFailure
from runtime.sglang.processes import PROC, title

_ESTABLISHED, _SYN_SENT, _LISTEN = 1, 2, 10


def demand_free(endpoint: Endpoint, variable: str, proc: Path = PROC) -> None:
    """Before the engine starts, which would find out only after it has loaded the weights.

    :raises RankFailure: 64 if the port is taken or the address is not this host's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        # Connections of an earlier start in TIME_WAIT hold nobody up; the engine sets this too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((endpoint.host, endpoint.port))
        except OSError as error:
            who = f"; {holder}" if error.errno == errno.EADDRINUSE and (holder := _holder(endpoint, proc)) else ""
            raise RankFailure(
                ExitCode.BAD_ENVIRONMENT,
                f"{variable}: cannot listen on {endpoint}: {os.strerror(error.errno or 0)}{who}",
            ) from error


def _sockets(proc: Path) -> Iterable[tuple[Endpoint, Endpoint, int, str]]:
    """Local end, far end, state and inode of every TCP socket over IPv4 of this network namespace."""
    for name, length in (("tcp", 8), ("tcp6", 32)):
        try:
            lines = (proc / "self/net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            yield _endpoint(fields[1], length), _endpoint(fields[2], length), int(fields[3], 16), fields[9]


def _endpoint(text: str, length: int) -> Endpoint:
    address, _, port = text.partition(":")
    # The last four bytes of an IPv6 address are those of IPv4 if that is what is mapped, in the order of the machine.
    number = bytes.fromhex(address[length - 8 :])
    return Endpoint(socket.inet_ntoa(number[::-1]), int(port, 16))


def _holder(endpoint: Endpoint, proc: Path) -> str:
    inodes = {
        inode
        for local, _, state, inode in _sockets(proc)
        if local.port == endpoint.port and state == _LISTEN and local.host in (endpoint.host, "0.0.0.0")
    }
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for name in os.listdir(proc):
        if name.isdigit() and wanted & set(_open_files(proc / name / "fd")):
            return f"pid {name} listens there: {title(int(name), proc)}"
    return "who listens there is another user's" if inodes else ""


def _open_files(directory: Path) -> Iterable[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.readlink(directory / name)


def listening(endpoint: Endpoint, proc: Path = PROC) -> bool:
    """True if somebody listens on the endpoint, seen without connecting."""
    return any(
        state == _LISTEN and local.port == endpoint.port and local.host in (endpoint.host, "0.0.0.0")
        for local, _, state, _ in _sockets(proc)
    )


def joined(rendezvous: Endpoint, proc: Path = PROC) -> frozenset[str]:
    """Rank 0's side: the other addresses from which there is a connection to the rendezvous port."""
    return frozenset(
        far.host
        for local, far, state, _ in _sockets(proc)
        if state == _ESTABLISHED and local.port == rendezvous.port and far.host != local.host
    )


def reaching(rendezvous: Endpoint, proc: Path = PROC) -> str:
    """A worker's side: ``connected``, ``unanswered`` if its SYN is, or empty if it does not try just now."""
    states = {
        state for _, far, state, _ in _sockets(proc) if far.host == rendezvous.host and far.port == rendezvous.port
    }
    return "connected" if _ESTABLISHED in states else "unanswered" if _SYN_SENT in states else ""
