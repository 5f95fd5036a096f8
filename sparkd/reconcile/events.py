"""What happened, newest last: kept for the API, and one line each in the journal."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sparkd.core.decide import Decision
from sparkd.core.model import Finding, Intent, Phase
from sparkd.ports import Clock
from sparkd.reconcile import messages
from sparkd.wire import Event, Events

_KEPT = 500
# Not the digits of a name: spark2 falling silent is no repetition of spark3 falling silent.
_NUMBER = re.compile(r"(?<!\w)\d+(\.\d+)?")
_NONE: Mapping[str, int] = MappingProxyType({})
_log = logging.getLogger("sparkd")


class EventLog:
    """`ranks`: of each node, for the journal."""

    def __init__(self, node: str, clock: Clock, ranks: Mapping[str, int] = _NONE) -> None:
        self._node = node
        self._clock = clock
        self._ranks = ranks
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._last = 0
        self._summary: tuple[int, str, str] | None = None
        self._failure = ""
        self._findings: dict[tuple[str, str, str], Finding] = {}
        self._epoch = 0
        self._phase: Phase = "down"
        self._followers: list[Callable[[], None]] = []

    def follow(self, told: Callable[[], None]) -> None:
        """`told` is called when there is another event."""
        self._followers.append(told)

    def unfollow(self, told: Callable[[], None]) -> None:
        self._followers.remove(told)

    def add(self, kind: str, text: str, level: int = logging.INFO, epoch: int | None = None) -> None:
        """`epoch`, if it is not the one in force before."""
        self._add(kind, text, level, self._fields(kind, self._node, epoch))

    def _add(self, kind: str, text: str, level: int, fields: Mapping[str, str]) -> None:
        self._last += 1
        epoch = int(fields["SPARKD_EPOCH"])
        event = Event(self._last, self._clock.now(), self._node, kind, epoch, self._phase, text)
        self._events.append(event)
        _log.log(level, "%s", text, extra={"journal": fields})
        for told in self._followers:
            told()

    def _fields(self, kind: str, node: str, epoch: int | None = None) -> dict[str, str]:
        return messages.fields(kind, self._epoch if epoch is None else epoch, self._phase, node, self._ranks)

    def at(self, intent: Intent, phase: Phase) -> None:
        """The epoch and phase that what follows belongs to."""
        self._epoch, self._phase = intent.epoch, phase

    def summary(self, decision: Decision) -> None:
        """Told when it changes in more than its counts: seconds, shards and ports that go by are no news."""
        self.at(decision.intent, decision.phase)
        if decision.phase == "starting":
            # The stage of the first rank that is not ready; what follows the comma is how far it has come in it.
            gist = _NUMBER.sub("#", decision.summary.partition(", ")[0])
        else:
            gist = _NUMBER.sub("#", decision.summary)
        news = (decision.intent.epoch, decision.phase, gist)
        if news != self._summary:
            self._summary = news
            self.add("summary", decision.summary)

    def findings(self, found: tuple[Finding, ...]) -> None:
        """Each finding is told when it appears and when it is gone."""
        # What time or sparkd itself puts right is in the summary while it is waited for, and no news of its own.
        now = {(f.id, f.node, f.subject): f for f in found if f.severity != "repair"}
        for key, finding in now.items():
            if key not in self._findings:
                self._finding(finding, f"{finding.sentence}. Fix: {finding.fix}", logging.WARNING)
        for key, finding in self._findings.items():
            if key not in now:
                self._finding(finding, f"{finding.node}: {finding.subject}: put right", logging.INFO)
        self._findings = now

    def _finding(self, finding: Finding, text: str, level: int) -> None:
        more = messages.of_finding(finding, gone=level == logging.INFO)
        self._add("finding", f"{finding.id}: {text}", level, self._fields("finding", finding.node) | more)

    def error(self, text: str) -> None:
        self.add("error", text, logging.ERROR)

    def failed(self, text: str) -> None:
        """An action did not work. It is tried again with every tick, but told only when it fails otherwise."""
        gist = _NUMBER.sub("#", text)
        if gist != self._failure:
            self._failure = gist
            self.error(text)

    def worked(self) -> None:
        """All actions of a cycle did work: the next failure is news."""
        self._failure = ""

    def since(self, after: int, limit: int) -> Events:
        """The newest `limit` events whose id is above `after`, oldest first; all that are kept if `after` is an id that
        this daemon has not given yet, since then it is an earlier one's."""
        known = after <= self._last
        chosen = [event for event in self._events if event.id > after or not known]
        told = tuple(chosen[-limit:]) if limit > 0 else ()
        return Events(told, self._last, not known or (bool(told) and 0 < after < told[0].id - 1))
