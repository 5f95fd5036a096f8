"""Protocols for everything outside the process. `host` and `peers` implement them, tests bring fakes.

Every awaitable here has a deadline of its own and raises `DoorError` with one sentence when the outside does not
answer or refuses; it never blocks the event loop and never hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sparkd.core.actions import FabricChange
from sparkd.core.boots import BootMemory
from sparkd.core.enginefacts import EngineFacts
from sparkd.core.hardware import HardwareFacts
from sparkd.core.incidents import Incident
from sparkd.core.journal import Query
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
from sparkd.core.railfacts import RailFacts
from sparkd.core.reach import ReachFact

Wake = Callable[[str], None]
"""Called from the event loop with a source's name when it has news: "units", "rails", "network", "hello", "peers",
"reach"."""


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

    async def tell(self, epoch: int, drain: bool) -> None:
        """Have the rank drain, or serve again. Raises DoorError also for a rank that does not know how to."""

    async def kill(self, epoch: int) -> None:
        """SIGKILL to every process of the unit, at once."""

    async def forget(self, epoch: int) -> None: ...

    def subscribe(self, wake: Wake) -> None: ...

    def close(self) -> None: ...


class RankFiles(Protocol):
    """The environment files that rank units read."""

    async def write(self, epoch: int, environment: Mapping[str, str]) -> None: ...

    async def remove(self, epoch: int) -> None: ...


class Rails(Protocol):
    """The unit that measures this host's rails, and what it has found. Units tells its news, as "rails"."""

    async def observe(self) -> RailFacts: ...

    async def start(self, epoch: int, environment: Mapping[str, str]) -> None: ...

    async def stop(self, epoch: int) -> None: ...

    async def forget(self) -> None:
        """What was found until now counts no more, also after a restart."""


class Store(Protocol):
    """What persists. A save has reached the disk when it returns."""

    def load_intent(self) -> Intent: ...

    def load_attempt(self) -> Attempt | None: ...

    def load_memory(self) -> FabricMemory: ...

    def load_boots(self) -> BootMemory: ...

    async def save_boots(self, boots: BootMemory) -> None: ...

    async def save_memory(self, memory: FabricMemory) -> None: ...

    async def save_intent(self, intent: Intent) -> None: ...

    async def save_attempt(self, attempt: Attempt) -> None: ...


class Witness(Protocol):
    """What this host can tell of a rank that failed: texts by the name of the file that they are kept in."""

    async def living(self, epoch: int) -> Mapping[str, str]:
        """Of its processes, while there are any: soon and in a moment, for they are being stopped."""

    async def past(self, epoch: int, since: float) -> Mapping[str, str]:
        """Of its journal, the kernel and the memory. `since`: Unix seconds at which it started."""

    def close(self) -> None: ...


class Archive(Protocol):
    """The incidents that are kept, within their limits of age and size."""

    async def keep(self, incident: Incident, files: Mapping[str, str]) -> None:
        """Adds to what is kept of that epoch; the files stay beside those that are there."""

    async def kept(self) -> tuple[Incident, ...]:
        """The newest first."""

    async def files(self, epoch: int) -> Mapping[str, str]: ...

    def close(self) -> None: ...


class JournalReader(Protocol):
    """The journal of this host, as far as it is the daemon's and its ranks'."""

    async def read(self, query: Query) -> bytes:
        """A NodeJournal, as JSON."""

    def close(self) -> None: ...


class Peers(Protocol):
    def views(self) -> tuple[PeerView, ...]: ...

    def publish(self, report: Report) -> None:
        """This host's report has changed: tell every peer, without waiting for any."""

    def receive(self, report: Report) -> None:
        """A peer has pushed its report."""

    async def request(self, node: str, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """Hand an operator's request to a peer; returns HTTP status and JSON body."""

    async def fetch(self, node: str, path: str) -> bytes:
        """The JSON that a peer has at this path, below /peer/v1/."""

    async def fetch_apart(self, node: str, path: str) -> bytes:
        """The same for what may take long or be large: nothing else waits for it."""

    def subscribe(self, wake: Wake) -> None: ...


class Reach(Protocol):
    """Tries of the peers' TCP ports, and a port of this host's for theirs."""

    @property
    def port(self) -> int: ...

    def facts(self) -> tuple[ReachFact, ...]: ...

    async def afresh(self) -> None:
        """Try again what was not open; returns once that has been tried."""


class EngineDoor(Protocol):
    """An engine that is not sparkd's own: its profile and its package on this host."""

    async def observe(self) -> EngineFacts: ...

    def digests(self) -> Mapping[str, str]:
        """What has to be equal on all hosts, of the last look."""

    def environment(self) -> Mapping[str, str]:
        """What the profile adds to a rank's environment file, of the last look. Raises DoorError."""


class HardwareDoor(Protocol):
    """The host's own files: PCI, kernel, memory, RDMA, engine, other owners of the network and of the ring's ports."""

    async def observe(
        self, rank_pid: int = 0, addresses: Mapping[str, str] | None = None, serving: int = 0
    ) -> HardwareFacts: ...

    async def supervisors(self, known: HardwareFacts) -> HardwareFacts:
        """`known`, with a fresh look at who holds the ring's ports, and at the engine's profile."""


@dataclass(frozen=True)
class Grant:
    """What a token allows. `expires`: Unix seconds, None for never."""

    name: str
    role: Literal["read", "operate"]
    expires: float | None = None


class Tokens(Protocol):
    """The tokens of this host's operators, as they are at the time of a request."""

    def find(self, secret: str) -> Grant | None:
        """Raises DoorError if they cannot be read."""


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
