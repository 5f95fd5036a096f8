"""Which of the peers' ports a TCP connection from this host reaches, at random high port numbers.

NCCL and Gloo connect the ranks by TCP on the management network, at ports that the kernel chooses, before any RDMA. A
firewall that lets only known ports through leaves every rank waiting without a word in its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

Answer = Literal["open", "no answer", "refused", "unreachable", "untried"]


@dataclass(frozen=True)
class ReachFact:
    """What the last try to connect to a peer's port came to.

    "untried": this host could not even try, for the reason in `why`, which says nothing of the peer. `age`: seconds
    since it first came to this.
    """

    peer: str
    port: int
    answer: Answer
    why: str = ""
    age: float = 0.0

    @property
    def blocked(self) -> bool:
        return self.answer in ("no answer", "refused", "unreachable")


@dataclass(frozen=True)
class PeerPort:
    """The port to try at a peer. `fact` is None while it has not been tried; `port` is 0 while the peer tells none.

    `answers`: the peer has answered sparkd's own connection since the port came to what `fact` says. Without that it
    may just be off.
    """

    peer: str
    address: str
    own_address: str
    port: int = 0
    fact: ReachFact | None = None
    answers: bool = False


def peer_ports(s: Snapshot) -> tuple[PeerPort, ...]:
    """One for each peer."""
    return tuple(_peer_ports(s))


def _peer_ports(s: Snapshot) -> Iterator[PeerPort]:
    own = str(s.cluster.node(s.node).address)
    facts = {(fact.peer, fact.port): fact for fact in s.reach}
    for peer in s.peers:
        address = str(s.cluster.node(peer.name).address)
        if peer.report is None or peer.age is None or peer.error or peer.age > s.policy.peer_fresh:
            yield PeerPort(peer.name, address, own)
            continue
        fact = facts.get((peer.name, peer.report.probe_port))
        since = fact is not None and peer.age < fact.age
        yield PeerPort(peer.name, address, own, peer.report.probe_port, fact, since)
