"""Who else configures the fabric ports, by the files of netplan, NetworkManager and systemd-networkd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ring_mesh import PORTS
from sparkd.core.hardware import Manager, OwnerFacts, Profile
from sparkd.host import profiles, tree
from sparkd.host.worker import Worker

Reader = Callable[[str, profiles.Devices], list[profiles.Claim]]

_DEVICES = tuple(port.device for port in PORTS)
# In each, a file hides those of the same name in the directories after it.
_NETPLAN = ("run/netplan", "etc/netplan", "usr/lib/netplan")
_KEYFILES = (
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
)
_UNITS = ("etc/systemd/network", "run/systemd/network", "usr/lib/systemd/network")


class NetworkOwners:
    """Profiles are often readable by root alone: of those the name is told if it speaks of a device, or the file."""

    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._root = root
        self._worker = Worker("network profiles", deadline)

    async def observe(self) -> OwnerFacts:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> OwnerFacts:
        net = self._root / "sys/class/net"
        devices = {device: tree.attribute(net / device / "address") for device in _DEVICES}
        unreadable: list[str] = []
        by_netplan = list(self._profiles("netplan", _NETPLAN, ".yaml", profiles.netplan, devices, unreadable))
        by_manager = list(
            self._profiles("NetworkManager", _KEYFILES, ".nmconnection", profiles.keyfile, devices, unreadable)
        )
        by_networkd = list(
            self._profiles("systemd-networkd", _UNITS, ".network", profiles.network_unit, devices, unreadable)
        )
        told = _last_word(by_netplan)
        sources = {profile.device for profile in told}
        # netplan writes files for the other two: they are told of only where their source cannot be read.
        made = [p for p, _ in by_manager + _first_match(by_networkd)]
        told += [p for p in made if "netplan-" not in p.path or p.device not in sources]
        return OwnerFacts(tuple(told), tuple(unreadable), tuple(self._managers()))

    def _profiles(
        self,
        owner: str,
        directories: tuple[str, ...],
        suffix: str,
        read: Reader,
        devices: profiles.Devices,
        unreadable: list[str],
    ) -> Iterator[tuple[Profile, profiles.Claim]]:
        try:
            files = tree.layered(self._root, directories, suffix)
        except PermissionError as error:
            unreadable.append(tree.shown(Path(error.filename), self._root))
            return
        for file in files:
            path = tree.shown(file, self._root)
            at = tree.modified(file)
            try:
                text, last = self._with_drop_ins(file, directories)
                path, at = tree.shown(last, self._root), tree.modified(last)
                claims = read(text, devices)
            except OSError:
                claims = [profiles.Claim(device) for device in profiles.named(file.name, devices)]
                if not claims:
                    unreadable.append(path)
                for claim in claims:
                    yield Profile(claim.device, path, owner, None, (), at), claim
                continue
            for claim in claims:
                yield Profile(claim.device, path, owner, claim.dhcp or False, claim.addresses, at), claim

    def _with_drop_ins(self, file: Path, directories: tuple[str, ...]) -> tuple[str, Path]:
        """The file's text, followed by that of its drop-ins, which only systemd-networkd has; and the last of them all
        that sets an address."""
        text, last = tree.text(file) or "", file
        for drop_in in tree.layered(self._root, tuple(f"{place}/{file.name}.d" for place in directories), ".conf"):
            more = tree.text(drop_in) or ""
            text += f"\n{more}"
            if any(key in ("DHCP", "Address") for _, key, _ in tree.assignments(more)):
                last = drop_in
        return text, last

    def _managers(self) -> Iterator[Manager]:
        """Both keep what they think of each device below /run, by interface index, where anyone may read it."""
        index = {d: tree.attribute(self._root / f"sys/class/net/{d}/ifindex") for d in _DEVICES}
        for name, directory, manages in (
            ("NetworkManager", "run/NetworkManager/devices", _networkmanager_manages),
            ("systemd-networkd", "run/systemd/netif/links", _networkd_manages),
        ):
            place = self._root / directory
            if not place.is_dir():
                continue
            states = {device: tree.text(place / number) or "" for device, number in index.items() if number}
            yield Manager(name, tuple(device for device, state in states.items() if manages(state)))


def _networkmanager_manages(state: str) -> bool:
    return ("device", "managed", "true") in tree.assignments(state)


def _networkd_manages(state: str) -> bool:
    settings = {key: value for _, key, value in tree.assignments(state)}
    return settings.get("ADMIN_STATE", "unmanaged") not in {"unmanaged", "linger"}


def _last_word(found: list[tuple[Profile, profiles.Claim]]) -> list[Profile]:
    """netplan merges its files in order of their names: what a later one says of DHCP replaces what came before."""
    final = {claim.device: claim.dhcp for _, claim in found if claim.dhcp is not None}
    return [replace(p, dhcp=False) if p.dhcp and final.get(p.device) is False else p for p, _ in found]


def _first_match(found: list[tuple[Profile, profiles.Claim]]) -> list[tuple[Profile, profiles.Claim]]:
    """systemd-networkd goes by the first file that matches a device, and may be told there to let it alone."""
    first: dict[str, tuple[Profile, profiles.Claim]] = {}
    for profile, claim in found:
        first.setdefault(profile.device, (profile, claim))
    return [pair for pair in first.values() if not pair[1].unmanaged]
