"""What systemd is told of the daemon itself (sd_notify). Without NOTIFY_SOCKET, as in a terminal, nothing is sent."""

from __future__ import annotations

from systemd import daemon


class SystemdNotifier:
    def ready(self) -> None:
        daemon.notify("READY=1")

    def status(self, sentence: str) -> None:
        # A line break would end the assignment and begin another, such as READY=1.
        daemon.notify("STATUS=" + " ".join(sentence.split()))

    def alive(self) -> None:
        daemon.notify("WATCHDOG=1")

    def stopping(self) -> None:
        daemon.notify("STOPPING=1")
