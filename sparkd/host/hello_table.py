"""Who was heard on which port, and until when that counts. Times are seconds of one clock that the caller reads."""

from __future__ import annotations

from dataclasses import astuple

from sparkd.core.facts import Neighbour

_Key = tuple[str, str, str]  # id, port and its MAC: a copy of a disk has the id in common and nothing else
MAX_PER_PORT = 8
"""A cable has one far end. More are heard through a switch, which is wrong and needs no complete list."""


class Table:
    """What is heard counts for `hold` seconds, or until the port is lost.

    A port keeps at most MAX_PER_PORT neighbours, and those that carry the cluster's key displace those that do not.
    A stranger's first words stand until they are forgotten: whatever strangers send, they cannot make news more often
    than MAX_PER_PORT times per `hold`.
    """

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._ports: dict[str, dict[_Key, tuple[Neighbour, float]]] = {}

    def hear(self, neighbour: Neighbour, now: float) -> bool:
        """True if this one was not known on this port, or has booted since."""
        heard = self._ports.setdefault(neighbour.device, {})
        key = (neighbour.node_id, neighbour.remote, neighbour.mac)
        known = heard[key][0] if key in heard else None
        if known is None:
            if len(heard) >= MAX_PER_PORT and not (neighbour.ours and _drop_a_stranger(heard)):
                return False
        elif not neighbour.ours and known != neighbour:
            return False
        heard[key] = (neighbour, now + self._hold)
        return known is None or (known.ours, known.boot) != (neighbour.ours, neighbour.boot)

    def lose(self, device: str) -> None:
        """The port has no carrier, or is gone: nobody is heard there."""
        self._ports.pop(device, None)

    def forget(self, now: float) -> None:
        for device, heard in self._ports.items():
            self._ports[device] = {key: entry for key, entry in heard.items() if entry[1] > now}

    def knows_ours(self, device: str) -> bool:
        return any(neighbour.ours for neighbour, _ in self._ports.get(device, {}).values())

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Sorted, so that equal sets are equal."""
        return tuple(sorted((n for heard in self._ports.values() for n, _ in heard.values()), key=astuple))


def _drop_a_stranger(heard: dict[_Key, tuple[Neighbour, float]]) -> bool:
    key = next((key for key, (neighbour, _) in heard.items() if not neighbour.ours), None)
    if key is None:
        return False
    del heard[key]
    return True
