"""Peers without a network: what a Poller's clients find when they ask."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from sparkd.core.model import Intent, Report
from sparkd.peers.client import PeerError
from tests.core.builders import NOW, report

DOWN = Intent(3, "down", "operator", "stop asked for", NOW)


class Remote:
    """One peer. `down`: the sentence with which it cannot be asked; `may_answer` holds its answers up while cleared."""

    def __init__(self, name: str) -> None:
        self.report = report(name, DOWN, sequence=1)
        self.down = ""
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.pulled = 0
        self.heard: list[Report] = []
        self.requests: list[Mapping[str, object]] = []
        self.closed = 0

    def news(self, **changed: object) -> Report:
        """The next report of the same daemon."""
        self.report = replace(self.report, sequence=self.report.sequence + 1, **changed)  # type: ignore[arg-type]
        return self.report

    def restart(self) -> Report:
        self.report = replace(self.report, instance=self.report.instance + "+", sequence=1)
        return self.report

    def answer(self, within: float) -> Report:
        answer = self.report
        if not self.may_answer.wait(within):
            raise PeerError("no answer in time")
        if self.down:
            raise PeerError(self.down)
        return answer


class RemoteClient:
    """One connection to it, like a PeerClient: for one thread at a time, and of no use once closed."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._busy = threading.Lock()
        self._closed = False

    def pull(self, within: float) -> Report:
        with self._used():
            self._remote.pulled += 1
            return self._remote.answer(within)

    def exchange(self, report: Report, within: float) -> Report:
        with self._used():
            answer = self._remote.answer(within)
            self._remote.heard.append(report)
            return answer

    def request(self, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        with self._used():
            if self._remote.down:
                raise PeerError(self._remote.down)
            self._remote.requests.append(body)
            return 202, {"epoch": 4}

    def fetch(self, path: str) -> bytes:
        with self._used():
            if self._remote.down:
                raise PeerError(self._remote.down)
            return f'"{path}"'.encode()

    def close(self) -> None:
        assert not self._closed, "closed twice"
        self._closed = True
        self._remote.closed += 1

    def _used(self) -> threading.Lock:
        assert not self._closed, "it is closed"
        assert not self._busy.locked(), "two threads at a time"
        return self._busy
