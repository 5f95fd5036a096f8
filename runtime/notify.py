"""The progress channel of a rank: ``sd_notify`` datagrams that systemd shows as the unit's status text.

``STATUS=STAGE[ N/M] TEXT`` with STAGE one of :class:`Stage`; ``READY=1`` once, when the rank serves; ``WATCHDOG=1`` as
often as the unit asks for it.
The protocol is described in sd_notify(3).
"""

import enum
import os
import socket
import time
from collections.abc import Callable, Mapping

READY_STATUS_SECONDS = 10.0
STATUS_MAX_CHARACTERS = 480
_SIGNS = 4  # of life, within the watchdog's time


class Stage(enum.StrEnum):
    """The stages of a rank, in the order in which an engine may pass them; ``failed`` may follow any."""

    INIT = "init"
    RENDEZVOUS = "rendezvous"
    FORMED = "formed"
    LOAD = "load"
    CAPTURE = "capture"
    WARMUP = "warmup"
    READY = "ready"
    FAILED = "failed"


class Notifier:
    """Sends assignments to ``$NOTIFY_SOCKET``; without one it does nothing. A lost datagram never stops a rank.

    ``watchdog``: seconds after which systemd ends a rank that has not said ``WATCHDOG=1``, None for never.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of the abstract namespace.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._usable = path.startswith(("@", "/"))
        microseconds = environ.get("WATCHDOG_USEC", "")
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        wanted = mine and microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        self.watchdog = int(microseconds) / 1e6 if wanted else None

    def send(self, *assignments: str) -> bool:
        """Send one datagram; True if systemd's socket took it."""
        if not self._usable:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(1.0)
            try:
                channel.sendto("\n".join(assignments).encode(), self._address)
            except OSError:
                return False
        return True


class Progress:
    """Where the rank stands. ``clock`` counts seconds; after ready at most one status per ten of them is sent."""

    def __init__(self, notifier: Notifier, clock: Callable[[], float] = time.monotonic) -> None:
        self._notifier = notifier
        self._clock = clock
        self._last = ""
        self._ready_at: float | None = None
        self._alive_at: float | None = None
        self.stage = Stage.INIT

    def report(self, stage: Stage, text: str = "", count: tuple[int, int] | None = None) -> None:
        """Say the stage, optionally ``count`` = (done, of how many), and a text without line breaks."""
        self.stage = stage
        counted = f"{count[0]}/{count[1]}" if count else ""
        status = one_line(" ".join(part for part in (stage, counted, text) if part))
        if status != self._last:
            self._last = status
            self._notifier.send(f"STATUS={status}")

    def ready(self, text: str, changed: bool = False) -> None:
        """The first call sends ``READY=1``; later ones refresh the text, every ten seconds or if much ``changed``.

        Each is a sign of life for systemd's watchdog, which is told in time.
        """
        now = self._clock()
        self.alive(now)
        if self._ready_at is not None and not changed and now - self._ready_at < READY_STATUS_SECONDS:
            return
        first, self._ready_at = self._ready_at is None, now
        self.stage = Stage.READY
        self._last = one_line(f"{Stage.READY} {text}")
        self._notifier.send(*(["READY=1"] if first else []), f"STATUS={self._last}")

    def alive(self, now: float | None = None) -> None:
        """A sign of life for systemd's watchdog, if it is time for one.

        With the first of them the watchdog begins, also before READY=1: who gives one has to go on.
        """
        limit = self._notifier.watchdog
        now = self._clock() if limit is not None and now is None else now
        if limit is None or now is None:
            return
        if self._alive_at is None or now - self._alive_at >= limit / _SIGNS:
            self._alive_at = now
            self._notifier.send("WATCHDOG=1")

    def failed(self, sentence: str) -> None:
        """The first error, before the rank leaves with a non-zero status."""
        self.report(Stage.FAILED, sentence)

    def stopping(self) -> None:
        """The rank was told to stop."""
        self._notifier.send("STOPPING=1")


def one_line(text: str) -> str:
    """``text`` with every run of white space made one space, cut to what a status line can hold."""
    joined = " ".join(text.split())
    return joined if len(joined) <= STATUS_MAX_CHARACTERS else joined[: STATUS_MAX_CHARACTERS - 3] + "..."
