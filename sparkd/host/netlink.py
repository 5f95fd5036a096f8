"""Network devices, IPv4 addresses and routes of this host, seen and changed through rtnetlink.

The only place that knows pyroute2, of which it uses the message classes: they are the same from 0.7 to 0.9.
"""

from __future__ import annotations

import errno
import importlib
import importlib.machinery
import ipaddress
import socket
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, assert_never

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
from sparkd.core.model import NetworkFacts, RouteFact
from sparkd.host import netlink_facts as facts
from sparkd.host import sysctl, ways
from sparkd.host.rtnl import Conversation, Monitor, Refused
from sparkd.host.worker import Worker, describe
from sparkd.ports import DoorError, Wake

T = TypeVar("T")
F = TypeVar("F")
_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_RTM_NEWADDR, _RTM_DELADDR, _RTM_GETADDR = 20, 21, 22
_RTM_NEWROUTE, _RTM_DELROUTE, _RTM_GETROUTE = 24, 25, 26
_REPLACE, _EXCLUSIVE, _CREATE = 0x100, 0x200, 0x400  # NLM_F_*
_IFF_UP = 0x1
_SKIP_STATS = 8  # RTEXT_FILTER_SKIP_STATS
_RECENT = 5.0  # seconds for which whoever changed the network is named beside what was found changed
_UNICAST = 1  # rtm_type
_MAIN_TABLE = 254
_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL, errno.ENODEV})


def _messages() -> tuple[Any, Any, Any]:
    """pyroute2's classes for a link, an address and a route.

    Importing the package runs an __init__ that loads every part of it: 380 modules, 26 MB and 140 ms on Debian 12,
    against 5.5 MB and 50 ms for these three, and on this machine host memory is GPU memory. So for as long as the
    import takes, an empty package of the same name stands in for it.
    """
    wanted = ("ifinfmsg", "ifaddrmsg", "rtmsg")
    spec = importlib.machinery.PathFinder.find_spec("pyroute2") if "pyroute2" not in sys.modules else None
    if spec is not None and spec.submodule_search_locations is not None:
        bare = types.ModuleType("pyroute2")
        bare.__path__ = list(spec.submodule_search_locations)
        bare.__spec__ = spec
        sys.modules["pyroute2"] = bare
        try:
            link, address, route = (importlib.import_module(f"pyroute2.netlink.rtnl.{name}") for name in wanted)
        except (ImportError, AttributeError):
            for name in [name for name in sys.modules if name.split(".")[0] == "pyroute2"]:
                del sys.modules[name]
        else:
            del sys.modules["pyroute2"]
            return link.ifinfmsg, address.ifaddrmsg, route.rtmsg
    link, address, route = (importlib.import_module(f"pyroute2.netlink.rtnl.{name}") for name in wanted)
    return link.ifinfmsg, address.ifaddrmsg, route.rtmsg


_LinkMessage, _AddressMessage, _RouteMessage = _messages()


class NetlinkLinks:
    """`deadline` in seconds, for one observation and for one list of changes.

    Changing anything needs CAP_NET_ADMIN. The network namespace is that of the thread that makes the first call.
    """

    def __init__(self, deadline: float = 2.0) -> None:
        self._worker = Worker("netlink", deadline)
        self._conversation: Conversation | None = None
        self._monitor: Monitor | None = None
        self._read: dict[int, dict[bytes, Any]] = {}

    async def observe(self) -> NetworkFacts:
        return await self._worker.call(partial(self._afresh_next_time, self._observe))

    async def apply(self, changes: Sequence[FabricChange]) -> None:
        """Carries out all changes, also those after one that fails, and then raises DoorError for the first failure.

        Only our own are removed: routes with our protocol number, addresses with our label.
        """
        if changes:
            await self._worker.call(partial(self._afresh_next_time, partial(self._apply, tuple(changes))))

    def subscribe(self, wake: Wake) -> None:
        """`wake("network")` after each change of a link, an address or a route. Raises DoorError."""
        try:
            self._monitor = Monitor(partial(wake, "network"))
        except OSError as error:
            raise DoorError(f"netlink: the kernel's news cannot be heard: {describe(error)}") from error

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
        self._worker.close(self._hang_up)

    def _hang_up(self) -> None:
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None

    def _afresh_next_time(self, function: Callable[[], T]) -> T:
        """A socket on which an answer was lost half-way still has the rest of it to come, and a dump it has not
        finished makes the kernel refuse the next one."""
        try:
            return function()
        except Refused:
            raise
        except OSError:
            self._hang_up()
            raise

    def _kernel(self) -> Conversation:
        if self._conversation is None:
            self._conversation = Conversation(self._worker.deadline)
        return self._conversation

    def _observe(self) -> NetworkFacts:
        links = self._seen(_RTM_GETLINK, _link_request(), facts.link)
        names = {index: link.device for index, link in links}
        # After the links: the kernel makes the address in the same step that makes a port operational.
        addressed = sysctl.link_local()
        addresses = tuple(
            replace(address, device=names[index])
            for index, address in self._seen(_RTM_GETADDR, _inet(_AddressMessage()), facts.address)
            if address.address and index in names
        )
        routes = tuple(
            replace(route, device=names.get(index, ""))
            for hops in self._seen(_RTM_GETROUTE, _routes_request(), facts.routes)
            for index, route in hops
        )
        return NetworkFacts(
            links=tuple(facts.with_settings(link, addressed) for _, link in links),
            addresses=addresses,
            routes=routes,
            ways=tuple(self._way(address, names) for address in ways.asked(addresses, routes)),
            writer=self._monitor.writer(_RECENT) if self._monitor is not None else "",
        )

    def _way(self, address: str, names: dict[int, str]) -> RouteFact:
        try:
            index, source = ways.read(self._kernel().get(_RTM_GETROUTE, ways.request(address)))
        except Refused:
            return RouteFact(address, "")  # there is no way
        return RouteFact(address, names.get(index, ""), source=source)

    def _seen(self, kind: int, request: Any, read: Callable[[Any], F]) -> list[F]:
        """What each message says, without its device. Decoding costs far more than asking, and hardly any message
        differs from that of the last time: each is read once for as long as the kernel repeats it."""
        before, now = self._read.get(kind, {}), {}
        found = []
        for data in self._asked(kind, request):
            content = data[16:]  # struct nlmsghdr has the number of the question
            fact = before[content] if content in before else read(_decoded(type(request), data))
            now[content] = fact
            found.append(fact)
        self._read[kind] = now
        return found

    def _asked(self, kind: int, request: Any) -> list[bytes]:
        try:
            return [data for data in self._kernel().dump(kind, _encoded(request)) if data]
        except Refused as error:
            # A table of routes exists from its first route on.
            if kind == _RTM_GETROUTE and error.errno == errno.ENOENT:
                return []
            raise

    def _apply(self, changes: tuple[FabricChange, ...]) -> None:
        failures = []
        for change in changes:
            try:
                self._carry_out(change)
            except DoorError as failure:
                failures.append(str(failure))
            except Refused as error:
                hint = " (this needs CAP_NET_ADMIN)" if error.errno == errno.EPERM else ""
                failures.append(f"{change.device}: cannot {_words(change)}: {error.strerror}{hint}")
        if failures:
            more = f" (and {len(failures) - 1} more changes failed)" if len(failures) > 1 else ""
            raise DoorError(failures[0] + more)

    def _carry_out(self, change: FabricChange) -> None:
        match change:
            case SetUp():
                request = _change_request(change)
                request["flags"] = request["change"] = _IFF_UP
                self._kernel().change(_RTM_NEWLINK, 0, _encoded(request))
            case SetDown():
                request = _change_request(change)
                request["flags"], request["change"] = 0, _IFF_UP
                self._kernel().change(_RTM_NEWLINK, 0, _encoded(request))
            case SetSysctl():
                sysctl.write(change.device, change.name, change.value)
            case SetMtu():
                request = _change_request(change)
                request["attrs"] = [["IFLA_MTU", change.mtu]]
                self._kernel().change(_RTM_NEWLINK, 0, _encoded(request))
            case AddAddress():
                request = _address_request(change.address, _index(change), change.label)
                self._add(_RTM_NEWADDR, request)
            case RemoveAddress():
                if (index := _index_if_any(change.device)) is not None:
                    label = f"{change.device}:{ADDRESS_LABEL}"
                    self._remove(_RTM_DELADDR, _address_request(change.address, index, label))
            case AddRoute():
                self._add_route(change)
            case RemoveRoute():
                if (index := _index_if_any(change.device)) is not None:
                    self._remove(_RTM_DELROUTE, _route_request(change.destination, change.gateway, index))
            case _:
                assert_never(change)

    def _add(self, kind: int, request: Any) -> bool:
        """False if the kernel already has it, or something else in its place."""
        try:
            self._kernel().change(kind, _CREATE | _EXCLUSIVE, _encoded(request))
        except Refused as error:
            if error.errno != errno.EEXIST:
                raise
            return False
        return True

    def _remove(self, kind: int, request: Any) -> None:
        try:
            self._kernel().change(kind, 0, _encoded(request))
        except Refused as error:
            if error.errno not in _GONE:
                raise

    def _add_route(self, change: AddRoute) -> None:
        index = _index(change)
        request = _route_request(change.destination, change.gateway, index)
        request["attrs"].append(["RTA_PREFSRC", change.source])
        if self._add(_RTM_NEWROUTE, request):
            return
        # The kernel tells routes apart by destination and metric, and replaces whatever has both: look whose it is.
        wanted = (change.gateway, index, change.source)
        routes = [_decoded(_RouteMessage, data) for data in self._asked(_RTM_GETROUTE, _routes_request())]
        rivals = [route for route in routes if route["type"] == _UNICAST and facts.is_rival(route, change.destination)]
        for route in rivals:
            if route["proto"] != ROUTE_PROTOCOL:
                raise DoorError(
                    f"{change.device}: cannot {_words(change)}: another program has its own route there, "
                    f"via {route.get_attr('RTA_GATEWAY') or 'no gateway'} with protocol number {route['proto']}"
                )
        if any(facts.way(route) == wanted for route in rivals):
            return
        self._kernel().change(_RTM_NEWROUTE, _CREATE | _REPLACE, _encoded(request))


def _encoded(message: Any) -> bytes:
    message.reset()
    message.encode()
    return bytes(message.data)


def _decoded(kind: type[Any], data: bytes) -> Any:
    message = kind(data)
    message.decode()
    return message


def _link_request() -> Any:
    request = _LinkMessage()
    # Counters of packets would make each message differ from the last, and nobody looks at them.
    request["attrs"] = [["IFLA_EXT_MASK", _SKIP_STATS]]
    return request


def _routes_request() -> Any:
    request = _inet(_RouteMessage())
    request["table"] = _MAIN_TABLE  # the kernel sends no other's
    return request


def _change_request(change: SetUp | SetDown | SetMtu) -> Any:
    request = _LinkMessage()
    request["index"] = _index(change)
    return request


def _inet(message: Any) -> Any:
    message["family"] = socket.AF_INET
    return message


def _address_request(address: str, index: int, label: str) -> Any:
    interface = ipaddress.IPv4Interface(address)
    request = _inet(_AddressMessage())
    request["index"] = index
    request["prefixlen"] = interface.network.prefixlen
    request["attrs"] = [["IFA_LOCAL", str(interface.ip)], ["IFA_ADDRESS", str(interface.ip)], ["IFA_LABEL", label]]
    return request


def _route_request(destination: str, gateway: str, index: int) -> Any:
    network = ipaddress.IPv4Network(destination)
    request = _inet(_RouteMessage())
    request["dst_len"] = network.prefixlen
    request["table"] = _MAIN_TABLE
    request["proto"] = ROUTE_PROTOCOL
    request["type"] = _UNICAST
    request["attrs"] = [["RTA_DST", str(network.network_address)], ["RTA_OIF", index]]
    if gateway:
        request["attrs"].append(["RTA_GATEWAY", gateway])
    return request


def _index_if_any(device: str) -> int | None:
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return None


def _index(change: FabricChange) -> int:
    index = _index_if_any(change.device)
    if index is None:
        raise DoorError(f"{change.device}: cannot {_words(change)}: there is no such network device")
    return index


def _words(change: FabricChange) -> str:
    match change:
        case SetUp():
            return "bring it up"
        case SetDown():
            return "take it down"
        case SetSysctl():
            return f"set {change.name}"
        case SetMtu():
            return f"set MTU {change.mtu}"
        case AddAddress():
            return f"add address {change.address}"
        case RemoveAddress():
            return f"remove address {change.address}"
        case AddRoute():
            return f"add the route to {change.destination} via {change.gateway}"
        case RemoveRoute():
            return f"remove the route to {change.destination}"
        case _:
            assert_never(change)
