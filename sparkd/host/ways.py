"""By which device and from which address the kernel would send to an address: `ip route get`, as bytes.

Asked with each look at a network that sparkd has configured, so without pyroute2's decoding, which costs more than all
of the kernel's answers.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence

from sparkd.core.actions import ADDRESS_LABEL, ROUTE_PROTOCOL
from sparkd.core.facts import AddressFact, RouteFact

_HEADER = struct.Struct("=IHHII")  # nlmsghdr, which the conversation fills in
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg; the second is the length of the destination's prefix
_ATTRIBUTE = struct.Struct("=HH")
_DST, _OIF, _PREFSRC = 1, 4, 7


def asked(addresses: Sequence[AddressFact], routes: Sequence[RouteFact]) -> tuple[str, ...]:
    """The addresses behind our routes, and one neighbour in each subnet of ours: the first that is not the own."""
    found = [route.destination.partition("/")[0] for route in routes if route.protocol == ROUTE_PROTOCOL]
    for fact in addresses:
        if fact.label == f"{fact.device}:{ADDRESS_LABEL}":
            interface = ipaddress.IPv4Interface(fact.address)
            first = interface.network.network_address + 1
            found.append(str(first if first != interface.ip else first + 1))
    return tuple(dict.fromkeys(found))


def request(address: str) -> bytes:
    destination = _ATTRIBUTE.pack(_ATTRIBUTE.size + 4, _DST) + socket.inet_aton(address)
    return bytes(_HEADER.size) + _ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0) + destination


def read(message: bytes) -> tuple[int, str]:
    """Interface index and source address of the answer; 0 and "" where it does not tell."""
    index, source = 0, ""
    offset = _HEADER.size + _ROUTE.size
    while offset + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, offset)
        value = message[offset + _ATTRIBUTE.size : offset + length]
        if kind == _OIF and len(value) == 4:
            (index,) = struct.unpack("=I", value)
        elif kind == _PREFSRC and len(value) == 4:
            source = socket.inet_ntoa(value)
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return index, source
