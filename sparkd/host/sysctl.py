"""The per-interface sysctls that a host with several fabric ports needs, below /proc/sys/net."""

from __future__ import annotations

import os
from pathlib import Path

from sparkd.core.hearing import ADDR_GEN_MODE
from sparkd.core.links import SETTINGS
from sparkd.host.worker import describe
from sparkd.ports import DoorError

ROOT = Path("/proc/sys/net")
_NAMES = (*SETTINGS, ADDR_GEN_MODE)


def read(device: str, root: Path = ROOT) -> dict[str, str]:
    """The sysctls that sparkd sets as they are, by name; without those that cannot be read."""
    found = {}
    for name in _NAMES:
        try:
            found[name] = _text(_path(device, name, root))
        except OSError:
            continue  # the device has just gone, which its link says, or has no IPv6
    return found


def write(device: str, name: str, value: str, root: Path = ROOT) -> None:
    """Raises DoorError. Writing needs CAP_NET_ADMIN, and a /proc/sys/net that is not read-only."""
    path = Path(_path(device, name, root))
    try:
        path.write_text(value, "ascii")
    except OSError as error:
        raise DoorError(f"{device}: cannot set {path} to {value}: {describe(error)}") from error


def link_local(proc: str = "/proc/thread-self") -> frozenset[str]:
    """The devices that have an fe80:: address. Empty on a kernel without IPv6."""
    try:
        lines = _text(f"{proc}/net/if_inet6").splitlines()
    except OSError:
        return frozenset()
    rows = (line.split() for line in lines)
    return frozenset(row[5] for row in rows if len(row) == 6 and row[0].startswith("fe8"))


def speaks_ipv6(device: str, root: Path = ROOT) -> bool:
    """IPv6 is on there."""
    try:
        return _text(f"{root}/ipv6/conf/{device}/disable_ipv6") == "0"
    except OSError:
        return False


def _path(device: str, name: str, root: Path) -> str:
    return f"{root}/{'ipv6' if name == ADDR_GEN_MODE else 'ipv4'}/conf/{device}/{name}"


def _text(path: str) -> str:
    """Without the layers of `open`, which cost more than the kernel's answer: this is read with every tick."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 16384):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("ascii", "replace").strip()
