"""What files of netplan, NetworkManager and systemd-networkd say of a device: tolerant readers of just that much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sparkd.host import tree

_TRUE = frozenset({"true", "yes", "on", "y", "1"})
_DRIVER = "mlx5_core"  # of every fabric port
Devices = Mapping[str, str]
"""MAC address by device name; "" where it is not known."""


@dataclass(frozen=True)
class Claim:
    """A device in a file. `dhcp`: None when the file says nothing of it. `unmanaged`: the device is to be let alone."""

    device: str
    dhcp: bool | None = None
    addresses: tuple[str, ...] = ()
    unmanaged: bool = False


def netplan(text: str, devices: Devices) -> list[Claim]:
    """Claims of one file in /etc/netplan: devices configured themselves, and those put into a bond or a bridge."""
    network = _block(_yaml(text).get("network"))
    matched: dict[str, list[str]] = {}
    claims = []
    for id_, value in _block(network.get("ethernets")).items():
        block = _block(value)
        matched[id_] = [device for device, mac in devices.items() if _netplan_matches(id_, block, device, mac)]
        said = [str(block[key]).lower() in _TRUE for key in ("dhcp4", "dhcp6") if key in block]
        addresses = tuple(_plain(address.rstrip(":")) for address in _items(block.get("addresses")))
        claims += [Claim(device, any(said) if said else None, addresses) for device in matched[id_]]
    for kind in ("bonds", "bridges", "vrfs"):
        for value in _block(network.get(kind)).values():
            members = _items(_block(value).get("interfaces"))
            inside = [device for member in members for device in matched.get(member, [member])]
            claims += [Claim(device) for device in inside if device in devices]
    return list(dict.fromkeys(claims))


def _netplan_matches(id_: str, block: Mapping[str, Any], device: str, mac: str) -> bool:
    match = _block(block.get("match"))
    if block.get("set-name") == device:
        return True
    if not match:
        return id_ == device
    tests = []
    if "name" in match:
        tests.append(any(fnmatchcase(device, name) for name in _items(match["name"])))
    if "macaddress" in match:
        tests.append(bool(mac) and str(match["macaddress"]).lower() == mac.lower())
    return bool(tests) and all(tests)


def keyfile(text: str, devices: Devices) -> list[Claim]:
    """Claims of a NetworkManager profile that names a device. One for just any device takes no unmanaged port."""
    values = {(section, key): value for section, key, value in tree.assignments(text)}
    names = [values.get(("connection", "interface-name"), ""), *_list(values.get(("match", "interface-name"), ""))]
    mac = values.get(("ethernet", "mac-address"), "").lower()
    # A bond's or bridge's port has no addresses of its own; without any word the method is automatic.
    port = any(values.get(("connection", key)) for key in ("master", "controller"))
    dhcp = not port and (
        values.get(("ipv4", "method"), "auto") == "auto" or values.get(("ipv6", "method"), "") == "dhcp"
    )
    addresses = tuple(
        value.partition(",")[0]
        for (section, key), value in values.items()
        if section in {"ipv4", "ipv6"} and key.startswith("address") and key != "address-data"
    )
    return [
        Claim(device, dhcp, addresses)
        for device, own in devices.items()
        if any(fnmatchcase(device, name) for name in names if name) or (mac and mac == own.lower())
    ]


def network_unit(text: str, devices: Devices) -> list[Claim]:
    """Claims of a .network file of systemd-networkd."""
    lines = tree.assignments(text)
    match: dict[str, str] = {}
    for section, key, value in lines:
        if section == "Match":
            # Further lines add to the list, and an empty one begins it anew (systemd.network(5)).
            match[key] = f"{match.get(key, '')} {value}".strip() if value else ""
    dhcp = [value.lower() for section, key, value in lines if (section, key) == ("Network", "DHCP")]
    addresses = tuple(value for section, key, value in lines if section in {"Network", "Address"} and key == "Address")
    unmanaged = any(v.lower() in _TRUE for s, key, v in lines if (s, key) == ("Link", "Unmanaged"))
    return [
        Claim(device, bool(dhcp) and dhcp[-1] in _TRUE | {"ipv4", "ipv6", "both", "v4", "v6"}, addresses, unmanaged)
        for device, mac in devices.items()
        if _unit_matches(match, device, mac)
    ]


def _unit_matches(match: Mapping[str, str], device: str, mac: str) -> bool:
    tests = []
    if "Name" in match:
        patterns = match["Name"].split()
        inverted = bool(patterns) and patterns[0].startswith("!")
        found = any(fnmatchcase(device, pattern.lstrip("!")) for pattern in patterns)
        tests.append(found is not inverted)
    macs = [
        match[key].lower().replace("-", ":").split() for key in ("MACAddress", "PermanentMACAddress") if key in match
    ]
    tests += [bool(mac) and mac.lower() in allowed for allowed in macs]
    if "Type" in match:
        tests.append("ether" in match["Type"].split())
    if "Driver" in match:
        tests.append(any(fnmatchcase(_DRIVER, pattern) for pattern in match["Driver"].split()))
    return bool(tests) and all(tests)


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(";") if item.strip()]


def _yaml(text: str) -> dict[str, Any]:
    """Nested mappings, and lists of plain values, as netplan files have them; what is beyond that is passed over."""
    top: dict[str, Any] = {"": {}}
    # The keys that enclose the current line: how far each is indented, and where its value is.
    stack: list[tuple[int, dict[str, Any], str]] = [(-1, top, "")]
    for indent, line in _lines(text):
        item = line == "-" or line.startswith("- ")
        # A list may be indented no further than its key.
        while stack[-1][0] > indent or (stack[-1][0] == indent and not item):
            stack.pop()
        _, holder, key = stack[-1]
        if item:
            if holder[key] == {}:
                holder[key] = []
            if isinstance(holder[key], list):
                holder[key].append(_plain(line[1:]))
            continue
        name, colon, value = line.partition(":")
        if colon and not (value and value[0] != " ") and isinstance(holder[key], dict):
            holder[key][_plain(name)] = _flow(value.strip())
            if not value.strip():
                stack.append((indent, holder[key], _plain(name)))
    return _block(top[""])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for raw in text.expandtabs().splitlines():
        bare = raw.lstrip()
        if bare and not bare.startswith(("#", "---", "...")):
            yield len(raw) - len(bare), bare.split(" #")[0].rstrip()


def _flow(value: str) -> Any:
    if not value:
        return {}
    if value.startswith("[") and value.endswith("]"):
        return [_plain(item) for item in value[1:-1].split(",") if item.strip()]
    if value.startswith("{") and value.endswith("}"):
        pairs = (item.partition(":") for item in value[1:-1].split(",") if item.strip())
        return {_plain(key): _flow(rest.strip()) for key, _, rest in pairs}
    return _plain(value)


def _plain(value: str) -> str:
    return value.strip().strip("\"'")


def _block(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    return [value] if isinstance(value, str) and value else []


def named(path_name: str, devices: Iterable[str]) -> list[str]:
    """Devices that a file's name speaks of: all there is to go by when the file itself may not be read."""
    return [device for device in devices if device in path_name]
