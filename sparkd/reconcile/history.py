"""How the operations before the present one ended, as far as this daemon has seen them."""

from __future__ import annotations

from dataclasses import dataclass

from sparkd import wire
from sparkd.core import recovery
from sparkd.core.decide import Decision
from sparkd.core.model import Intent

_KEPT = 200


@dataclass(frozen=True)
class _Seen:
    """`reached`: what was asked for was so at some time. `after`: the intent that took its place, None so far."""

    intent: Intent
    reached: bool = False
    after: Intent | None = None


class History:
    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._last: int | None = None

    def see(self, d: Decision) -> None:
        """A cycle came to this."""
        epoch = d.intent.epoch
        known = self._seen.get(epoch)
        if known is None or (reached(d) and not known.reached):
            self._seen[epoch] = _Seen(d.intent, reached(d))
        if self._last is not None and self._last != epoch:
            before = self._seen[self._last]
            self._seen[self._last] = _Seen(before.intent, before.reached, d.intent)
        self._last = epoch
        while len(self._seen) > _KEPT:
            del self._seen[next(iter(self._seen))]

    def ended(self, epoch: int, now: Decision) -> wire.OperationStatus:
        """The operation of an epoch below that of `now`."""
        seen = self._seen.get(epoch)
        in_force = f"epoch {now.intent.epoch} is in force: {now.summary}"
        if seen is not None and seen.after is not None:
            # A restart, as against an operator's order, says of what the epoch before died.
            by, why = seen.after.by, seen.after.reason.removeprefix("restart: ")
            told = f"{_how(seen.intent.want, seen.reached)}; superseded by epoch {seen.after.epoch}, by {by}: {why}"
            return wire.OperationStatus(
                epoch, seen.intent.want, "superseded", f"{told}; {in_force}", _ended(seen.reached), seen.after.epoch
            )
        death = next((death for death in now.intent.deaths if death.epoch == epoch), None)
        if death is not None:
            told = f"{_how('up', death.ready)}; {recovery.describe(death)}"
            return wire.OperationStatus(epoch, "up", "superseded", f"{told}; {in_force}", _ended(death.ready))
        told = "how it ended was before this daemon has started"
        return wire.OperationStatus(epoch, "", "superseded", f"{told}; {in_force}", "unknown")


def reached(d: Decision) -> bool:
    return d.phase in ("ready", "degraded") if d.intent.want == "up" else d.phase in ("down", "held")


def _how(want: str, was_reached: bool) -> str:
    if want == "up":
        return "it got ready" if was_reached else "it never got ready"
    return "all was free" if was_reached else "not all was free yet"


def _ended(was_reached: bool) -> str:
    return "done" if was_reached else "unfinished"
