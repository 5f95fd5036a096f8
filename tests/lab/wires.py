"""The cables: network namespaces of the hosts, and one for everything between them.

Each host end is a veth whose other side lies in the wires' namespace, where a two-port bridge joins the
two ends of a link. A cable that is pulled, or a peer without power, is a wire side that is down: the host
loses its carrier, and setting its own interface up does not bring it back, as with a real cable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab.layout import (
    MANAGEMENT_DEVICE,
    MANAGEMENT_PREFIX,
    NETNS_DIRECTORY,
    NODES,
    OUTSIDE,
    OUTSIDE_ADDRESS,
    End,
    Link,
    Places,
    address,
    ends_of,
    links,
    management_mac,
    management_wire,
)
from tests.lab.shell import locked, replace, run

WIRE_MTU = 9216
"""Bytes. A cable carries what its ends send; it is the receiving end that refuses what is too long."""


@dataclass(frozen=True)
class Condition:
    """What a person could see by looking at the machines and cables."""

    powered: frozenset[str] = frozenset()
    unplugged: frozenset[str] = frozenset()
    """Keys of links."""
    management_cut: frozenset[str] = frozenset()

    def carries(self, link: Link) -> bool:
        return link.key not in self.unplugged and all(end.node in self.powered for end in link.ends)

    def managed(self, node: str) -> bool:
        return node in self.powered and node not in self.management_cut


def read(places: Places) -> Condition:
    """The condition as last noted; that of a lab without power if there is no note."""
    try:
        noted = json.loads(places.wires_state.read_text())
    except FileNotFoundError:
        return Condition()
    return Condition(**{key: frozenset(values) for key, values in noted.items()})


def change(
    places: Places,
    *,
    power_on: Iterable[str] = (),
    power_off: Iterable[str] = (),
    plug: Iterable[Link] = (),
    unplug: Iterable[Link] = (),
    restore: Iterable[str] = (),
    cut: Iterable[str] = (),
) -> None:
    """Note a change of the condition and make the wires follow it.

    `power_on` and `power_off` are about light on the wires; the hosts' ends are made and taken away by
    `attach` and `detach`. Raises LabError if a wire cannot be set.
    """
    with locked(places.directory / "wires.lock", wait=True):
        old = read(places)
        new = Condition(
            powered=(old.powered | set(power_on)) - set(power_off),
            unplugged=(old.unplugged - {link.key for link in plug}) | {link.key for link in unplug},
            management_cut=(old.management_cut - set(restore)) | set(cut),
        )
        replace(places.wires_state, json.dumps({key: sorted(value) for key, value in asdict(new).items()}))
        _follow(places, new)


def _follow(places: Places, condition: Condition) -> None:
    up = {end.wire for link in links() if condition.carries(link) for end in link.ends}
    up |= {management_wire(node) for node in NODES if condition.managed(node)}
    present = set(devices(places.wires_netns))
    wires = sorted(present & {name for node in NODES for name in names(node)})
    batch(places.wires_netns, [f"link set {name} {'up' if name in up else 'down'}" for name in wires], step="set wires")


def names(node: str) -> list[str]:
    """The wire sides of all interfaces of a node."""
    return [end.wire for end in ends_of(node)] + [management_wire(node)]


def create(places: Places) -> None:
    """The namespace of the wires with a bridge per link and one for management."""
    space = places.wires_netns
    run(["ip", "netns", "add", space], step="make the wires' namespace")
    # The wires must not speak: without this every bridge and port would send router solicitations.
    quiet = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
    run(["ip", "netns", "exec", space, "sh", "-c", quiet], step="silence the wires", check=False)
    lines = ["link set lo up", f"link add {OUTSIDE} type bridge mcast_snooping 0"]
    # With an ageing time of zero the bridge learns nothing and hands every frame to the other end, as a cable does.
    lines += [f"link add {link.key} mtu {WIRE_MTU} type bridge ageing_time 0 mcast_snooping 0" for link in links()]
    lines += [f"link set {link.key} up" for link in links()]
    lines += [f"link set {OUTSIDE} up", f"address add {OUTSIDE_ADDRESS}/{MANAGEMENT_PREFIX} dev {OUTSIDE}"]
    batch(space, lines, step="make bridges")


def attach(places: Places, node: str) -> None:
    """Give a host its namespace and network interfaces: fabric ends down with MTU 1500, management configured."""
    space, wires = places.netns(node), places.wires_netns
    detach(places, node)
    run(["ip", "netns", "add", space], step="make the network namespace", node=node)
    lines = []
    bridges = {end: link.key for link in links() for end in link.ends}
    for end in ends_of(node):
        lines += _pair(end, space, bridges[end])
    management = management_wire(node)
    lines.append(
        f"link add {management} type veth peer name {MANAGEMENT_DEVICE} address {management_mac(node)} netns {space}"
    )
    lines.append(f"link set {management} master {OUTSIDE}")
    batch(wires, lines, step="make network interfaces", node=node)
    inside = [
        "link set lo up",
        f"address add {address(node)}/{MANAGEMENT_PREFIX} brd + dev {MANAGEMENT_DEVICE}",
        f"link set {MANAGEMENT_DEVICE} up",
    ]
    batch(space, inside, step="configure the management interface", node=node)


def _pair(end: End, space: str, bridge: str) -> list[str]:
    return [
        f"link add {end.wire} mtu {WIRE_MTU} type veth peer name {end.device} mtu 1500 address {end.mac} netns {space}",
        f"link set {end.wire} master {bridge}",
    ]


def detach(places: Places, node: str) -> None:
    """Take a host's interfaces and namespace away; nothing happens to what is not there."""
    space = places.netns(node)
    present = set(devices(places.wires_netns)) if exists(places.wires_netns) else set()
    gone = [f"link delete {name}" for name in names(node) if name in present]
    batch(places.wires_netns, gone, step="remove wires", node=node)
    if exists(space):
        run(["ip", "netns", "delete", space], step="remove the network namespace", node=node)


def destroy(places: Places) -> None:
    """Remove every namespace of this lab, and the directory of namespaces once nobody has one."""
    for path in spaces(places):
        run(["ip", "netns", "delete", path.name], step=f"remove the namespace {path.name}", check=False)
        # A name whose mount is already gone, as after a crash of the machine.
        path.unlink(missing_ok=True)
    if NETNS_DIRECTORY.is_mount() and not any(NETNS_DIRECTORY.iterdir()):
        # `ip netns` mounted it for the first namespace and would do so again.
        run(["umount", str(NETNS_DIRECTORY)], step="unmount the namespaces' directory", check=False)


def spaces(places: Places) -> list[Path]:
    """The names of this lab's namespaces that there are."""
    return sorted(NETNS_DIRECTORY.glob(f"{places.prefix}-*"))


def exists(space: str) -> bool:
    return (NETNS_DIRECTORY / space).exists()


def devices(space: str) -> list[str]:
    """Names of the interfaces in a namespace."""
    listing = run(["ip", "-n", space, "-j", "link", "show"], step=f"list interfaces of {space}").stdout
    return [str(entry["ifname"]) for entry in json.loads(listing or "[]")]


def batch(space: str, lines: list[str], *, step: str, node: str = "lab") -> None:
    """Run `ip` commands in a namespace, all in one process."""
    if lines:
        run(["ip", "-n", space, "-batch", "-"], step=step, node=node, stdin="\n".join(lines) + "\n")
