"""What rtnetlink's messages say of links, addresses and routes, as facts of the core.

A message is decoded already (pyroute2's `get_attr` and items). A device is named by its index there.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

from ring_mesh import FABRIC_DEVICES
from sparkd.core.facts import AddressFact, LinkFact, RouteFact
from sparkd.host import sysctl

_IFF_UP = 0x1
_UNICAST = 1  # rtm_type


def link(message: Any) -> tuple[int, LinkFact]:
    return message["index"], LinkFact(
        device=str(message.get_attr("IFLA_IFNAME")),
        up=bool(message["flags"] & _IFF_UP),
        carrier=bool(message.get_attr("IFLA_CARRIER")),
        mtu=message.get_attr("IFLA_MTU") or 0,
        mac=message.get_attr("IFLA_ADDRESS") or "",
        carrier_changes=message.get_attr("IFLA_CARRIER_CHANGES") or 0,
        # To be looked up by with_settings, of a port on which it is to be expected.
        link_local=message.get_attr("IFLA_OPERSTATE") != "UP",
    )


def with_settings(link: LinkFact, addressed: frozenset[str]) -> LinkFact:
    """With what is no message's. `addressed`: the devices that have an fe80:: address."""
    if link.device not in FABRIC_DEVICES:
        return replace(link, link_local=True)
    there = link.link_local or link.device in addressed or not sysctl.speaks_ipv6(link.device)
    return replace(link, settings=sysctl.read(link.device), link_local=there)


def address(message: Any) -> tuple[int, AddressFact]:
    # IFA_LOCAL is ours; on a point-to-point link IFA_ADDRESS is the far end's.
    local = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    text = f"{local}/{message['prefixlen']}" if local else ""
    return message["index"], AddressFact("", text, message.get_attr("IFA_LABEL") or "")


def routes(message: Any) -> tuple[tuple[int, RouteFact], ...]:
    """One for each hop."""
    if message["type"] != _UNICAST:
        return ()
    to, source = destination(message), message.get_attr("RTA_PREFSRC") or ""
    return tuple((index, RouteFact(to, "", gateway, source, message["proto"])) for gateway, index in hops(message))


def destination(message: Any) -> str:
    return f"{message.get_attr('RTA_DST') or '0.0.0.0'}/{message['dst_len']}"


def hops(message: Any) -> list[tuple[str, int]]:
    several = message.get_attr("RTA_MULTIPATH")
    if several:
        return [(hop.get_attr("RTA_GATEWAY") or "", hop["oif"]) for hop in several]
    return [(message.get_attr("RTA_GATEWAY") or "", message.get_attr("RTA_OIF") or 0)]


def is_rival(message: Any, network: str) -> bool:
    same = destination(message) == str(ipaddress.IPv4Network(network))
    return same and not message.get_attr("RTA_PRIORITY")


def way(message: Any) -> tuple[str, int, str]:
    ((gateway, index), *_) = hops(message)
    return gateway, index, message.get_attr("RTA_PREFSRC") or ""
