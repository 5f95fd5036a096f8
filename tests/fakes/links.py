"""The network of a host without a kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import assert_never

from ring_mesh import FABRIC_DEVICES
from sparkd.core.actions import (
    ADDRESS_LABEL,
    ROUTE_PROTOCOL,
    AddAddress,
    AddRoute,
    FabricChange,
    RemoveAddress,
    RemoveRoute,
    SetDown,
    SetMtu,
    SetSysctl,
    SetUp,
)
from sparkd.core.model import AddressFact, LinkFact, NetworkFacts, RouteFact
from sparkd.ports import DoorError, Wake

KERNEL, BOOT, STATIC = 2, 3, 4  # route protocols of others
MTU_MIN, MTU_MAX = 68, 65535
DEFAULT_SETTINGS = {"arp_ignore": "0", "arp_announce": "0", "rp_filter": "0", "addr_gen_mode": "0"}


@dataclass
class _Port:
    """`far` is the port at the other end of the cable, in this FakeLinks or another."""

    owner: FakeLinks
    name: str
    mac: str
    up: bool = False
    mtu: int = 1500
    far: _Port | None = None
    had_carrier: bool = False
    carrier_changes: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    flushed: bool = False
    ipv6: bool = True

    @property
    def carrier(self) -> bool:
        return self.up and self.far is not None and self.far.up

    @property
    def link_local(self) -> bool:
        """It has an fe80:: address, or would have none in any case."""
        return not (self.carrier and self.flushed and self.settings and self.ipv6)


class FakeLinks:
    """Ports start down, without address and without cable. `broken` is the sentence of the DoorError to raise, if any;
    `applied` is every change that was carried out or tried, in order.
    """

    def __init__(self, *devices: str) -> None:
        self._ports: dict[str, _Port] = {}
        self._addresses: list[AddressFact] = []
        self._routes: list[RouteFact] = []
        self._wakes: list[Wake] = []
        self._woken = False
        self.closed = False
        self.broken = ""
        self.applied: list[FabricChange] = []
        for device in devices:
            self.add_device(device)

    async def observe(self) -> NetworkFacts:
        self._answer()
        links = tuple(
            replace(
                LinkFact(port.name, port.up, port.carrier, port.mtu, port.mac, port.carrier_changes),
                settings=dict(port.settings),
                link_local=port.link_local,
            )
            for port in self._ports.values()
        )
        return NetworkFacts(links, tuple(self._addresses), tuple(self._routes))

    async def apply(self, changes: Sequence[FabricChange]) -> None:
        self._answer()
        failures = []
        for change in changes:
            self.applied.append(change)
            try:
                self._carry_out(change)
            except DoorError as failure:
                failures.append(str(failure))
        if failures:
            more = f" (and {len(failures) - 1} more changes failed)" if len(failures) > 1 else ""
            raise DoorError(failures[0] + more)

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)

    def close(self) -> None:
        self.closed = True
        self._wakes.clear()

    # What the world does.

    def add_device(self, device: str) -> None:
        number = len(self._ports) + 1
        settings = dict(DEFAULT_SETTINGS) if device in FABRIC_DEVICES else {}
        self._ports[device] = _Port(self, device, f"02:00:00:00:00:{number:02x}", settings=settings)
        self._news()

    def remove_device(self, device: str) -> None:
        """The kernel forgets the addresses and routes of a device that goes."""
        port = self._ports.pop(device)
        far, port.far, port.up = port.far, None, False
        if far is not None:
            far.far = None
            far.owner.settle()
        self._addresses = [fact for fact in self._addresses if fact.device != device]
        self._routes = [fact for fact in self._routes if fact.device != device]
        self._news()

    def plug(self, device: str, other: FakeLinks, other_device: str) -> None:
        """A cable between two ports, of this host and another or of this host alone."""
        one, two = self._ports[device], other._ports[other_device]
        assert (one.far, two.far) == (None, None), "there is a cable already"
        one.far, two.far = two, one
        self.settle()
        other.settle()

    def unplug(self, device: str) -> None:
        port = self._ports[device]
        assert port.far is not None, "there is no cable"
        far, port.far = port.far, None
        far.far = None
        self.settle()
        far.owner.settle()

    def set_up(self, device: str, up: bool) -> None:
        """Also what SetUp does. A port that goes down loses its routes and keeps its addresses."""
        port = self._ports[device]
        if port.up == up:
            return
        port.up = up
        port.flushed = port.settings.get("addr_gen_mode") == "1"
        if up:
            for fact in self._addresses:
                if fact.device == device:
                    self._connect(fact)
        else:
            self._routes = [fact for fact in self._routes if fact.device != device]
        self.settle()
        if port.far is not None:
            port.far.owner.settle()

    def flush_link_local(self, device: str) -> None:
        """The fe80:: address goes, and the kernel makes no other while the port stays up."""
        self._ports[device].flushed = True
        self._news()

    def switch_ipv6_off(self, device: str) -> None:
        self._ports[device].ipv6 = False
        self._news()

    def set_mtu(self, device: str, mtu: int) -> None:
        self._ports[device].mtu = mtu
        self._news()

    def add_foreign_address(self, device: str, address: str) -> None:
        """Another program adds an address; the kernel labels it with the device's name."""
        self._add_address(AddressFact(device, address, device))

    def remove_any_address(self, device: str, address: str) -> None:
        self._remove_addresses([f for f in self._addresses if (f.device, f.address) == (device, address)])

    def add_foreign_route(self, destination: str, gateway: str, device: str, protocol: int = BOOT) -> None:
        self._routes.append(RouteFact(str(IPv4Network(destination)), device, gateway, "", protocol))
        self._news()

    def flush_routes(self, device: str) -> None:
        """What NetworkManager does when it applies a profile again: all that the kernel did not make itself goes."""
        self._routes = [fact for fact in self._routes if fact.device != device or fact.protocol == KERNEL]
        self._news()

    def power_cut(self) -> None:
        """Nothing of the network's configuration survives; cables do."""
        self._addresses.clear()
        self._routes.clear()
        for port in self._ports.values():
            self.set_up(port.name, False)
            port.mtu, port.carrier_changes, port.had_carrier = 1500, 1, False

    def settle(self) -> None:
        for port in self._ports.values():
            if port.carrier != port.had_carrier:
                port.had_carrier = port.carrier
                port.carrier_changes += 1
        self._news()

    # What the kernel does.

    def _answer(self) -> None:
        if self.closed:
            raise DoorError("netlink is closed")
        if self.broken:
            raise DoorError(self.broken)

    def _carry_out(self, change: FabricChange) -> None:
        if change.device not in self._ports:
            if isinstance(change, (RemoveAddress, RemoveRoute)):
                return
            raise DoorError(f"{change.device}: there is no such network device")
        match change:
            case SetUp():
                self.set_up(change.device, True)
            case SetDown():
                self.set_up(change.device, False)
            case SetSysctl():
                self._set_sysctl(change)
            case SetMtu():
                if not MTU_MIN <= change.mtu <= MTU_MAX:
                    raise DoorError(f"{change.device}: cannot set MTU {change.mtu}: outside the device's limits")
                self.set_mtu(change.device, change.mtu)
            case AddAddress():
                self._add_address(AddressFact(change.device, change.address, change.label))
            case RemoveAddress():
                wanted = AddressFact(change.device, change.address, f"{change.device}:{ADDRESS_LABEL}")
                self._remove_addresses([fact for fact in self._addresses if fact == wanted])
            case AddRoute():
                self._add_route(change)
            case RemoveRoute():
                destination = str(IPv4Network(change.destination))
                gone = RouteFact(destination, change.device, change.gateway, "", ROUTE_PROTOCOL)
                self._routes = [fact for fact in self._routes if replace(fact, source="") != gone]
                self._news()
            case _:
                assert_never(change)

    def _set_sysctl(self, change: SetSysctl) -> None:
        settings = self._ports[change.device].settings
        if change.name not in settings:
            raise DoorError(f"{change.device}: cannot set {change.name}: there is no such sysctl")
        if change.name == "addr_gen_mode" and change.value not in ("1", settings[change.name]):
            self._ports[change.device].flushed = False
            self._news()
        settings[change.name] = change.value

    def _add_address(self, fact: AddressFact) -> None:
        if any((f.device, f.address) == (fact.device, fact.address) for f in self._addresses):
            return
        self._addresses.append(fact)
        if self._ports[fact.device].up:
            self._connect(fact)
        self._news()

    def _connect(self, fact: AddressFact) -> None:
        interface = IPv4Interface(fact.address)
        if interface.network.prefixlen < 32:
            self._routes.append(RouteFact(str(interface.network), fact.device, "", str(interface.ip), KERNEL))

    def _remove_addresses(self, gone: list[AddressFact]) -> None:
        for fact in gone:
            self._addresses.remove(fact)
            source = str(IPv4Interface(fact.address).ip)
            self._routes = [route for route in self._routes if route.source != source]
            if not any(other.device == fact.device for other in self._addresses):
                # Without an address IPv4 is off on the device.
                self._routes = [route for route in self._routes if route.device != fact.device]
        self._news()

    def _add_route(self, change: AddRoute) -> None:
        words = f"{change.device}: cannot add the route to {change.destination} via {change.gateway}"
        on_link = [r for r in self._routes if r.device == change.device and not r.gateway]
        if not any(IPv4Address(change.gateway) in IPv4Network(route.destination) for route in on_link):
            raise DoorError(f"{words}: Nexthop has invalid gateway")
        if all(str(IPv4Interface(fact.address).ip) != change.source for fact in self._addresses):
            raise DoorError(f"{words}: Invalid prefsrc address")
        destination = str(IPv4Network(change.destination))
        rivals = [route for route in self._routes if route.destination == destination]
        for route in rivals:
            if route.protocol != ROUTE_PROTOCOL:
                raise DoorError(f"{words}: another program has its own route there, via {route.gateway}")
            self._routes.remove(route)
        self._routes.append(RouteFact(destination, change.device, change.gateway, change.source, ROUTE_PROTOCOL))
        self._news()

    def _news(self) -> None:
        """One wake for all that happens in a turn of the loop. Outside a loop there is nobody to wake."""
        if self._woken or not self._wakes:
            return
        self._woken = True
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._woken = False
        for wake in self._wakes:
            wake("network")
