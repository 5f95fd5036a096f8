"""The measured rates of the rails as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ring_mesh import PORTS, Socket
from sparkd.cli.answer import Json, number, rows
from sparkd.cli.text import clean

_FAULTS = {"rail-degraded-13g": "slow", "mtu-wrong": "large packets lost"}


def of_device(ring: Json, node: str, device: str) -> str:
    """The rate of one rail with its method, from either of its ends; "-" if it was not measured."""
    rail = _rail(ring, node, device)
    if rail is None:
        return "-"
    if rail.get("mtu_passed") is False:
        return "large packets lost"
    rate = number(rail.get("gbps"))
    return "-" if rate is None else f"{_three(rate)} ({clean(rail.get('method'))})"


def of_cable(ring: Json, end: Socket) -> str:
    """The rates of both rails of the cable in that port; empty if neither was measured."""
    rails = [_rail(ring, end.node, port.device) for port in PORTS if port.cage == end.cage]
    if not any(rails):
        return ""
    told = []
    for rail in rails:
        rate = number(rail.get("gbps")) if rail is not None else None
        told.append("?" if rate is None else _three(rate))
    methods = {clean(rail.get("method")) for rail in rails if rail is not None}
    return f"{' + '.join(told)} Gb/s{' by TCP' if 'tcp' in methods else ''}"


def fault(ring: Json, ends: Iterable[Socket]) -> str:
    """What a measurement of the rails of that cable has found wrong, in a few words; empty if it has not."""
    devices = {(end.node, port.device) for end in ends for port in PORTS if port.cage == end.cage}
    for finding in rows(ring, "findings"):
        if (finding.get("node"), finding.get("subject")) in devices and finding.get("id") in _FAULTS:
            return _FAULTS[clean(finding.get("id"))]
    return ""


def _three(rate: float) -> str:
    """Three digits, also where the last ones are zeros: 98 among 98.1 and 97.9 looks as if it were known less well."""
    return f"{rate:#.3g}".rstrip(".")


def _rail(ring: Json, node: str, device: str) -> Json | None:
    for rail in rows(ring, "rails"):
        for end in (rail.get("a"), rail.get("b")):
            if isinstance(end, dict) and (end.get("node"), end.get("device")) == (node, device):
                return rail
    return None
