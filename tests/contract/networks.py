"""The network around a host, as test_links needs it: a fake one and one of veth pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tests.contract.namespace import ip
from tests.fakes import FakeLinks

# Two cables: the near ends are this host's, the far ends belong to nobody.
ONE, FAR_ONE, TWO, FAR_TWO = "enp1s0f0np0", "far1", "enP2p1s0f0np0", "far2"


class World(Protocol):
    """What others do to this host's network."""

    def prepare(self) -> None: ...
    def set_far(self, up: bool) -> None: ...
    def add_address(self, address: str) -> None: ...
    def remove_address(self, address: str) -> None: ...
    def add_route(self, destination: str, gateway: str) -> None: ...
    def remove_device(self) -> None: ...
    def set_down(self) -> None: ...
    def flush_link_local(self) -> None: ...
    def switch_ipv6_off(self) -> None: ...


class FakeWorld:
    def __init__(self, links: FakeLinks) -> None:
        self.links = links

    def prepare(self) -> None:
        for near, far in ((ONE, FAR_ONE), (TWO, FAR_TWO)):
            self.links.add_device(near)
            self.links.add_device(far)
            self.links.plug(near, self.links, far)
        self.links.set_up(FAR_ONE, True)

    def set_far(self, up: bool) -> None:
        self.links.set_up(FAR_ONE, up)

    def add_address(self, address: str) -> None:
        self.links.add_foreign_address(ONE, address)

    def remove_address(self, address: str) -> None:
        self.links.remove_any_address(ONE, address)

    def add_route(self, destination: str, gateway: str) -> None:
        self.links.add_foreign_route(destination, gateway, ONE)

    def remove_device(self) -> None:
        self.links.remove_device(ONE)

    def set_down(self) -> None:
        self.links.set_up(ONE, False)

    def flush_link_local(self) -> None:
        self.links.flush_link_local(ONE)

    def switch_ipv6_off(self) -> None:
        self.links.switch_ipv6_off(ONE)


class RealWorld:
    def prepare(self) -> None:
        for near, far in ((ONE, FAR_ONE), (TWO, FAR_TWO)):
            ip(f"link add {near} type veth peer name {far}")
        ip(f"link set {FAR_ONE} up")

    def set_far(self, up: bool) -> None:
        ip(f"link set {FAR_ONE} {'up' if up else 'down'}")

    def add_address(self, address: str) -> None:
        ip(f"address add {address} dev {ONE}")

    def remove_address(self, address: str) -> None:
        ip(f"address del {address} dev {ONE}")

    def add_route(self, destination: str, gateway: str) -> None:
        ip(f"route add {destination} via {gateway} dev {ONE}")

    def remove_device(self) -> None:
        ip(f"link del {ONE}")

    def set_down(self) -> None:
        ip(f"link set {ONE} down")

    def flush_link_local(self) -> None:
        ip(f"address flush dev {ONE} to fe80::/10")

    def switch_ipv6_off(self) -> None:
        Path(f"/proc/sys/net/ipv6/conf/{ONE}/disable_ipv6").write_text("1")
