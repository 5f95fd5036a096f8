"""What systemd is told of the daemon itself (sd_notify). Without NOTIFY_SOCKET, as in a terminal, nothing is sent."""

from __future__ import annotations

import contextlib

from systemd import daemon


class SystemdNotifier:
    """What cannot be told, for want of a descriptor say, is told the next time: no reason for a supervisor to leave."""

    def ready(self) -> None:
        _notify("READY=1")

    def status(self, sentence: str) -> None:
        # A line break would end the assignment and begin another, such as READY=1.
        _notify("STATUS=" + " ".join(sentence.split()))

    def alive(self) -> None:
        _notify("WATCHDOG=1")

    def stopping(self) -> None:
        _notify("STOPPING=1")


def _notify(state: str) -> None:
    with contextlib.suppress(OSError):
        daemon.notify(state)
