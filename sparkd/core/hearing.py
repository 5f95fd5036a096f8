"""Ports that are up and on, and still cannot say hello: without an fe80:: address nothing leaves by IPv6.

`ip addr flush` takes the address away, and nothing brings it back while the port stays up; with addr_gen_mode=1, which
NetworkManager sets on ports that it manages, the kernel never makes one (ip-sysctl.rst). A change of addr_gen_mode to
a mode that makes addresses has the kernel make it at once, and touches no other address.
"""

from __future__ import annotations

from sparkd.core.actions import SetSysctl
from sparkd.core.facts import LinkFact, Neighbour
from sparkd.core.model import Finding

ADDR_GEN_MODE = "addr_gen_mode"
"""net.ipv6.conf.DEVICE.addr_gen_mode; all other sysctls that sparkd sets are IPv4's."""
_EUI64, _NONE = "0", "1"


def mend(link: LinkFact) -> tuple[SetSysctl, ...]:
    """The steps by which the kernel gives a port its fe80:: address back; () for one that has it or needs none."""
    mode = link.settings.get(ADDR_GEN_MODE)
    if link.link_local or mode is None:
        return ()
    if mode == _NONE:
        return (SetSysctl(link.device, ADDR_GEN_MODE, _EUI64),)
    return (SetSysctl(link.device, ADDR_GEN_MODE, _NONE), SetSysctl(link.device, ADDR_GEN_MODE, mode))


def port_deaf(node: str, device: str) -> Finding:
    return Finding(
        "ipv6-off",
        node,
        "refuse",
        device,
        "IPv6 is off (or the MTU is below 1280), so the port cannot tell what it is cabled to",
        "the kernel's fe80:: address on each fabric port",
        f"sysctl -w net.ipv6.conf.{device}.disable_ipv6=0, and take the setting out of /etc/sysctl.d; where it has to "
        "stay off: /usr/share/doc/sparkd/examples/raw-hello.conf, at both ends of the cable",
    )


def link_local_missing(node: str, device: str) -> Finding:
    return Finding(
        "link-local-missing",
        node,
        "repair",
        device,
        "IPv6 is on, but the port has no fe80:: address, so the other end cannot tell what it is cabled to",
        "the kernel's fe80:: address on each fabric port",
        "none needed while no rank runs, sparkd has the kernel make it; if it stays so: "
        f"sysctl -w net.ipv6.conf.{device}.addr_gen_mode=0, ip link set {device} down, ip link set {device} up",
    )


def node_id_twice(node: str, subject: str, one: Neighbour, other: Neighbour | None) -> Finding:
    """`other` is the second machine of that id; None for the host itself."""
    second = f"{other.node} ({other.mac or '?'}) at {other.device}" if other is not None else f"{node} itself"
    return Finding(
        "node-id-twice",
        node,
        "refuse",
        subject,
        f"{one.node} ({one.mac or '?'}) has the same id as {second}, {one.node_id[:8]}...: one's disk is a copy of the "
        "other's",
        "an id of its own for each machine",
        "on the copy: systemctl stop sparkd; rm /var/lib/sparkd/node-id; sparkctl cluster install its own directory "
        "of sparkctl cluster create; systemctl start sparkd",
    )
