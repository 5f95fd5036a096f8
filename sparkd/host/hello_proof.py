"""Proof that a hello was said at the other end of this cable just now: it repeats a number that this port has said.

Every port says a random number (a nonce) in its hellos, a new one every few seconds, and repeats those that it has
heard there. A hello counts once it repeats one that its hearer has said on that very port, in this run of the daemon,
not longer ago than `hold`.

So a recorded hello makes no cable appear when it is played back on another port or host, after a restart of the
daemon, after the port has been seen dark, or later than `hold` seconds. It can make a neighbour that has just fallen
silent, without the port losing its carrier, be believed in for those seconds. Not prevented: a machine in the middle of
a cable that passes frames on in both directions, which is a longer cable and nothing else; and whoever holds the
cluster's key.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

BYTES = 8
REPEATED = 4
"""A cable has one other end; through a switch more are heard, which is a fault that is to be told."""


class Challenge:
    """Of one port. `renew`: seconds after which another number is said. Times are seconds of the caller's clock."""

    def __init__(self, renew: float, hold: float) -> None:
        self._renew, self._hold = renew, hold
        self._said: deque[tuple[str, float]] = deque(maxlen=int(hold / renew) + 2)
        self._heard: deque[str] = deque(maxlen=REPEATED)

    def nonce(self, now: float) -> str:
        """What to say."""
        if not self._said or self._said[-1][1] + self._renew <= now:
            self._said.append((os.urandom(BYTES).hex(), now))
        return self._said[-1][0]

    def repeated(self) -> tuple[str, ...]:
        """What to repeat."""
        return tuple(self._heard)

    def heard(self, nonce: str) -> bool:
        """True if it is to be repeated from now on."""
        if not nonce or nonce in self._heard:
            return False
        self._heard.append(nonce)
        return True

    def proven(self, repeated: Sequence[str], now: float) -> bool:
        """Whether one of the numbers was said here lately."""
        return any(nonce in repeated for nonce, at in self._said if at + self._hold > now)

    def forget(self) -> None:
        """The port is dark: whoever is heard there next has to prove itself anew."""
        self._said.clear()
        self._heard.clear()
