"""The cables: network namespaces of the hosts, and one for everything between them.

Each host end is a veth whose other side lies in the wires' namespace, where a two-port bridge joins the
two ends of a link. A cable that is pulled, or a peer without power, is a wire side that is down: the host
loses its carrier, and setting its own interface up does not bring it back, as with a real cable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tests.lab import shell
from tests.lab.layout import (
    MANAGEMENT_DEVICE,
    MANAGEMENT_PREFIX,
    NETNS_DIRECTORY,
    NODES,
    OUTSIDE,
    End,
    Link,
    Places,
    address,
    ends_of,
    links,
    management_mac,
    management_wire,
    parse_cables,
)
from tests.lab.shell import locked, run

WIRE_MTU = 9216
"""Bytes. A cable carries what its ends send; it is the receiving end that refuses what is too long."""
SWITCH = "management"
DARK_SECONDS = 1.2
"""How long ends that get another cable stay dark: the kernel tells losses of carrier once a second at most, and
a hand is slower than that."""
# What one wire may hold back, in ms of its rate: a queue as of a switch, and not one that fills a machine's memory.
QUEUE_MS = 20


class Interface(NamedTuple):
    """One between the machines. `master`: the bridge it is in, or empty; `kind` as in `ip -details link`."""

    name: str
    master: str
    kind: str


@dataclass(frozen=True)
class Condition:
    """What a person could see by looking at the machines and cables. Links and rates go by Link.key."""

    nodes: tuple[str, ...] = NODES
    cables: tuple[Link, ...] = field(default_factory=links)
    powered: frozenset[str] = frozenset()
    unplugged: frozenset[str] = frozenset()
    management_cut: frozenset[str] = frozenset()
    firewalled: frozenset[str] = frozenset()
    rates: Mapping[str, int] = field(default_factory=dict)
    """Mbit/s of the links that are slowed down."""

    def carries(self, link: Link) -> bool:
        return link.key not in self.unplugged and all(end.node in (*self.powered, OUTSIDE) for end in link.ends)

    def managed(self, node: str) -> bool:
        return node in self.powered and node not in self.management_cut


def read(places: Places) -> Condition:
    """The condition as last noted; that of a lab of three without power if there is no note."""
    try:
        noted = json.loads(places.wires_state.read_text())
    except FileNotFoundError:
        return Condition()
    sets = ("powered", "unplugged", "management_cut", "firewalled")
    return Condition(
        nodes=tuple(noted["nodes"]),
        cables=parse_cables(noted["cables"]),
        rates=noted["rates"],
        **{name: frozenset(noted[name]) for name in sets},
    )


def _note(places: Places, condition: Condition) -> None:
    known = {key: sorted(value) for key, value in vars(condition).items() if isinstance(value, frozenset)}
    known |= {"nodes": list(condition.nodes), "cables": [str(link) for link in condition.cables]}
    shell.replace(places.wires_state, json.dumps(known | {"rates": dict(condition.rates)}))


def change(
    places: Places,
    *,
    power_on: Iterable[str] = (),
    power_off: Iterable[str] = (),
    plug: Iterable[Link] = (),
    unplug: Iterable[Link] = (),
    restore: Iterable[str] = (),
    cut: Iterable[str] = (),
    rates: Mapping[str, int] | None = None,
    firewalled: Iterable[str] | None = None,
) -> None:
    """Note a change of the condition and make the wires follow it.

    `power_on` and `power_off` are about light on the wires; the hosts' ends are made and taken away by
    `attach` and `detach`. `rates` in Mbit/s are added to those that hold; 0 takes one away. A firewall is only
    noted: it is the host's own, and goes with its power. Raises LabError if a wire cannot be set.
    """
    off = set(power_off)
    with locked(places.directory / "wires.lock", wait=True):
        old = read(places)
        kept = {key: rate for key, rate in {**old.rates, **(rates or {})}.items() if rate}
        new = replace(
            old,
            powered=(old.powered | set(power_on)) - off,
            unplugged=(old.unplugged - {link.key for link in plug}) | {link.key for link in unplug},
            management_cut=(old.management_cut - set(restore)) | set(cut),
            firewalled=(old.firewalled if firewalled is None else frozenset(firewalled)) - off,
            rates=kept,
        )
        _note(places, new)
        _follow(places, new, slowed=old.rates.keys() | kept.keys())


def recable(places: Places, cables: tuple[Link, ...]) -> None:
    """Replace all cables. Ends whose cable changes are dark for DARK_SECONDS; the others notice nothing."""
    with locked(places.directory / "wires.lock", wait=True):
        old = read(places)
        keys = {link.key for link in cables}
        rates = {key: rate for key, rate in old.rates.items() if key in keys}
        new = replace(old, cables=cables, unplugged=frozenset(), rates=rates)
        moved = {end.wire for link in set(old.cables) ^ set(cables) for end in link.ends}
        lit = {found.name for found in _present(places)} & moved
        batch(places.wires_netns, [f"link set {name} down" for name in sorted(lit)], step="pull cables")
        _note(places, new)
        time.sleep(DARK_SECONDS if lit else 0)
        _follow(places, new, slowed=old.rates.keys())


def flap(places: Places, cables: Iterable[Link], seconds: float) -> None:
    """Take the light from links for `seconds`."""
    wires = [end.wire for link in cables for end in link.ends]
    with locked(places.directory / "wires.lock", wait=True):
        batch(places.wires_netns, [f"link set {name} down" for name in wires], step="darken the cable")
        time.sleep(seconds)
        _follow(places, read(places), slowed=())


def _follow(places: Places, condition: Condition, *, slowed: Iterable[str]) -> None:
    bridges = {end.wire: link.key for link in condition.cables for end in link.ends}
    bridges |= {management_wire(node): SWITCH for node in (*condition.nodes, OUTSIDE)}
    up = {end.wire for link in condition.cables if condition.carries(link) for end in link.ends}
    up |= {management_wire(node) for node in condition.nodes if condition.managed(node)} | {management_wire(OUTSIDE)}
    wires = {name for node in (*condition.nodes, OUTSIDE) for name in names(node)}
    present = _present(places)
    known = {found.name for found in present if found.kind == "bridge"} - {SWITCH}
    wanted = {link.key for link in condition.cables}
    # With an ageing time of zero a bridge learns nothing and hands every frame to the other end, as a cable does.
    lines = [f"link add {key} mtu {WIRE_MTU} type bridge ageing_time 0 mcast_snooping 0" for key in wanted - known]
    lines += [f"link set {key} up" for key in wanted - known]
    for name, master, _ in present:
        if name in wires and bridges.get(name, "") != master:
            lines.append(f"link set {name} " + (f"master {bridges[name]}" if name in bridges else "nomaster"))
    lines += [f"link delete {name}" for name in sorted(known - wanted)]
    at_hand = sorted(wires & {found.name for found in present})
    lines += [f"link set {name} {'up' if name in up else 'down'}" for name in at_hand]
    batch(places.wires_netns, lines, step="set wires")
    _slow(places, condition, {*slowed, *condition.rates}, at_hand)


def _slow(places: Places, condition: Condition, keys: Iterable[str], at_hand: Sequence[str]) -> None:
    """Limit what leaves the wires towards both ends of a link; the two directions do not share the rate."""
    lines = []
    for link in condition.cables:
        rate = condition.rates.get(link.key, 0)
        for wire in (end.wire for end in link.ends if link.key in keys and end.wire in at_hand):
            # A bucket must hold what the rate brings between two ticks of the kernel's clock, at least a large packet.
            burst = max(70_000, rate * 1_000_000 // 8 // 250)
            how = f"tbf rate {rate}mbit burst {burst} latency {QUEUE_MS}ms" if rate else "noqueue"
            lines.append(f"qdisc replace dev {wire} root {how}")
    if lines:
        command = ["tc", "-n", places.wires_netns, "-batch", "-"]
        run(command, step="limit the rate", stdin="\n".join(lines) + "\n")


def names(node: str) -> list[str]:
    """The wire sides of all interfaces of a machine."""
    return [end.wire for end in ends_of(node)] + [management_wire(node)]


def create(places: Places, nodes: tuple[str, ...]) -> None:
    """The namespace of the wires with the management switch and the cables, and the machine outside."""
    space = places.wires_netns
    run(["ip", "netns", "add", space], step="make the wires' namespace")
    # The wires must not speak: without this every bridge and port would send router solicitations.
    quiet = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
    run(["ip", "netns", "exec", space, "sh", "-c", quiet], step="silence the wires", check=False)
    lines = ["link set lo up", f"link add {SWITCH} type bridge mcast_snooping 0", f"link set {SWITCH} up"]
    batch(space, lines, step="make the management switch")
    _note(places, Condition(nodes, links(nodes)))
    attach(places, OUTSIDE)
    ports = [f"link set {end.device} up mtu 9000" for end in ends_of(OUTSIDE)]
    batch(places.netns(OUTSIDE), ports, step="bring its ports up", node=OUTSIDE)
    change(places)


def attach(places: Places, node: str) -> None:
    """Give a machine its namespace and network interfaces: fabric ends down with MTU 1500, management configured."""
    space, wires = places.netns(node), places.wires_netns
    detach(places, node)
    run(["ip", "netns", "add", space], step="make the network namespace", node=node)
    lines = [_pair(end, space) for end in ends_of(node)]
    management = management_wire(node)
    mac = management_mac(node)
    lines.append(f"link add {management} type veth peer name {MANAGEMENT_DEVICE} address {mac} netns {space}")
    batch(wires, lines, step="make network interfaces", node=node)
    inside = [
        "link set lo up",
        f"address add {address(node)}/{MANAGEMENT_PREFIX} brd + dev {MANAGEMENT_DEVICE}",
        f"link set {MANAGEMENT_DEVICE} up",
    ]
    batch(space, inside, step="configure the management interface", node=node)


def _pair(end: End, space: str) -> str:
    inner = f"peer name {end.device} mtu 1500 address {end.mac} netns {space}"
    return f"link add {end.wire} mtu {WIRE_MTU} type veth {inner}"


def detach(places: Places, node: str) -> None:
    """Take a host's interfaces and namespace away; nothing happens to what is not there."""
    space = places.netns(node)
    present = {found.name for found in _present(places)} if exists(places.wires_netns) else set()
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


def _present(places: Places) -> list[Interface]:
    space = places.wires_netns
    listing = run(["ip", "-n", space, "-d", "-j", "link", "show"], step=f"list interfaces of {space}").stdout
    return [
        Interface(entry["ifname"], entry.get("master", ""), entry.get("linkinfo", {}).get("info_kind", ""))
        for entry in json.loads(listing or "[]")
    ]


def batch(space: str, lines: list[str], *, step: str, node: str = "lab") -> None:
    """Run `ip` commands in a namespace, all in one process."""
    if lines:
        run(["ip", "-n", space, "-batch", "-"], step=step, node=node, stdin="\n".join(lines) + "\n")
