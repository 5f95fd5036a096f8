"""The TCP sockets of a user, from /proc/net/tcp and tcp6, as lines for people."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from sparkd.host import tree

# include/net/tcp_states.h
_STATES = (
    *("", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSE", "CLOSE-WAIT"),
    *("LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECV"),
)
_MOST = 500


def owned(proc: Path, uids: set[str]) -> Iterator[str]:
    """A line per socket: local end, remote end, state, bytes to be sent and to be read."""
    count = 0
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in (tree.text(proc / "net" / name) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[7] in uids and count < _MOST:
                count += 1
                sent, _, read = fields[4].partition(":")
                state = int(fields[3], 16)
                word = _STATES[state] if state < len(_STATES) else fields[3]
                ends = f"{_end(fields[1], family)} {_end(fields[2], family)}"
                yield f"{ends} {word} to send {int(sent, 16)} to read {int(read, 16)}"


def _end(text: str, family: socket.AddressFamily) -> str:
    """The kernel prints each 32 bits of an address as a number of the machine's own byte order."""
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(address), 8)]
    return f"{socket.inet_ntop(family, b''.join(words))}:{int(port, 16)}"
