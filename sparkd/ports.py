"""Protocols for everything outside the process. `host` and `peers` implement them, tests bring fakes.

Every awaitable here has a deadline of its own and raises `DoorError` with one sentence when the outside does not
answer or refuses; it never blocks the event loop and never hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sparkd.core.actions import FabricChange
from sparkd.core.hardware import HardwareFacts
from sparkd.core.model import (
    Attempt,
    FabricMemory,
    HelloFacts,
    HostFacts,
    Intent,
    NetworkFacts,
    PeerView,
    RankUnit,
    Report,
    RoceFact,
)
from sparkd.core.reach import ReachFact

Wake = Callable[[str], None]
"""Called with a source's name ("units", "network", "hello", "peers", "reach") from the event loop when it has news."""


class DoorError(Exception):
    """The outside did not answer in time, or refused. The message is one sentence for an operator."""


class Links(Protocol):
    """Network devices, addresses and routes (rtnetlink)."""

    async def observe(self) -> NetworkFacts: ...

    async def apply(self, changes: Sequence[FabricChange]) -> None:
        """Carry the changes out in order. What is already so is not an error."""

    def subscribe(self, wake: Wake) -> None: ...

    def close(self) -> None: ...


class Roce(Protocol):
    async def observe(self) -> tuple[RoceFact, ...]: ...


class Hellos(Protocol):
    """What the fabric ports say to whoever they are cabled to, and hear from there."""

    async def observe(self) -> HelloFacts: ...

    def subscribe(self, wake: Wake) -> None:
        """`wake("hello")` when the set of neighbours or of deaf ports has changed."""

    def poke(self) -> None:
        """A link may have changed: do not wait for the period to look and to say hello."""

    def close(self) -> None: ...


class Host(Protocol):
    async def observe(self) -> HostFacts: ...


class Units(Protocol):
    """The rank units of this host, in systemd."""

    async def observe(self) -> tuple[RankUnit, ...]: ...

    async def start(self, epoch: int) -> None: ...

    async def stop(self, epoch: int) -> None: ...

    async def forget(self, epoch: int) -> None: ...

    def subscribe(self, wake: Wake) -> None: ...

    def close(self) -> None: ...


class RankFiles(Protocol):
    """The environment files that rank units read."""

    async def write(self, epoch: int, environment: Mapping[str, str]) -> None: ...

    async def remove(self, epoch: int) -> None: ...


class Store(Protocol):
    """What persists. A save has reached the disk when it returns."""

    def load_intent(self) -> Intent: ...

    def load_attempt(self) -> Attempt | None: ...

    def load_memory(self) -> FabricMemory: ...

    async def save_memory(self, memory: FabricMemory) -> None: ...

    async def save_intent(self, intent: Intent) -> None: ...

    async def save_attempt(self, attempt: Attempt) -> None: ...


class Peers(Protocol):
    def views(self) -> tuple[PeerView, ...]: ...

    def publish(self, report: Report) -> None:
        """This host's report has changed: tell every peer, without waiting for any."""

    def receive(self, report: Report) -> None:
        """A peer has pushed its report."""

    async def request(self, node: str, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """Hand an operator's request to a peer; returns HTTP status and JSON body."""

    def subscribe(self, wake: Wake) -> None: ...


class Reach(Protocol):
    """Tries of the peers' TCP ports, and a port of this host's for theirs."""

    @property
    def port(self) -> int: ...

    def facts(self) -> tuple[ReachFact, ...]: ...

    async def afresh(self) -> None:
        """Try again what was not open; returns once that has been tried."""


class HardwareDoor(Protocol):
    """The host's own files: PCI, kernel, memory, RDMA, other owners of the network and of the ring's ports."""

    async def observe(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, serving: int = 0
    ) -> HardwareFacts: ...

    async def supervisors(self, known: HardwareFacts) -> HardwareFacts:
        """`known`, with a fresh look at who holds the ring's ports."""


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float: ...


class Notifier(Protocol):
    """What systemd is told of the daemon itself."""

    def ready(self) -> None: ...

    def status(self, sentence: str) -> None: ...

    def alive(self) -> None:
        """Feed the watchdog; called after a finished cycle and only then."""

    def stopping(self) -> None: ...
