"""Which port is cabled to which, and whether that is a ring.

A ring runs from port 0 of each node to port 1 of the next. A cable between equal ports would make NCCL pair RDMA
devices that are not on one cable, except between two nodes, where every device has the same peer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ring_mesh.cluster import PlanError, Problem

CAGES = (0, 1)


@dataclass(frozen=True, order=True)
class Socket:
    """One QSFP cage of a node. cage: 0 or 1, the port's number; CablingError names any other."""

    node: str
    cage: int

    def __str__(self) -> str:
        return f"{self.node} port {self.cage}"


CablePair = tuple[Socket, Socket]


@dataclass(frozen=True)
class Cabling:
    """The cables that are there, right or wrong. Equal for the same wiring, in whatever order it is described."""

    cables: tuple[CablePair, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "cables", tuple(sorted({(min(cable), max(cable)) for cable in self.cables})))

    def far(self, socket: Socket) -> tuple[Socket, ...]:
        """What the socket is cabled to: one socket, unless nothing is plugged in or the description is wrong."""
        return tuple(b if a == socket else a for a, b in self.cables if socket in (a, b))


@dataclass(frozen=True)
class CableProblem(Problem):
    """One fault of a cabling. key: the socket in words.

    id: cable-same-port, cable-missing, cable-loop, cable-foreign, cable-port-twice (one port, two cables),
    cable-no-such-port, or cable-two-rings. sockets: the socket of the key, then those that it is cabled to.
    """

    id: str
    sockets: tuple[Socket, ...]


class CablingError(PlanError):
    """The cables do not make one ring of all nodes. Each of `problems` is a CableProblem."""

    def __init__(self, problems: Iterable[CableProblem]) -> None:
        self.cables: tuple[CableProblem, ...] = tuple(problems)
        super().__init__(self.cables)


def by_order(names: Sequence[str]) -> Cabling:
    """Port 0 of each node to port 1 of the next, and of the last to the first; two nodes: one cable of ports 0."""
    if len(names) == 2:
        return Cabling(((Socket(names[0], 0), Socket(names[1], 0)),))
    following = (*names[1:], *names[:1])
    return Cabling(tuple((Socket(a, 0), Socket(b, 1)) for a, b in zip(names, following, strict=True)))


def ring_order(cabling: Cabling, names: Sequence[str]) -> tuple[str, ...]:
    """The nodes in the order of the ring along their ports 0, from names[0] on.

    names: all nodes by rank, at least two. Two nodes need one cable or two, between whichever ports, and are in the
    order of their ranks. Raises CablingError with every fault, or ValueError for fewer than two or repeated names.
    """
    if len(names) < 2 or len(set(names)) != len(names):
        raise ValueError(f"a ring is of two or more different nodes, not of {', '.join(names) or 'none'}")
    if problems := [*_per_cable(cabling, names), *_per_socket(cabling, names)]:
        raise CablingError(problems)
    if len(names) == 2:
        return tuple(names)
    following = dict(_along(cabling))
    rings = []
    left = dict.fromkeys(names)
    while left:
        ring = [next(iter(left))]
        while (node := following[ring[-1]]) != ring[0]:
            ring.append(node)
        left = {name: None for name in left if name not in ring}
        rings.append(tuple(ring))
    if len(rings) > 1:
        raise CablingError(_two_rings(ring, cabling, names) for ring in rings[1:])
    return rings[0]


def cables_in_order(cabling: Cabling, names: Sequence[str]) -> tuple[CablePair, ...]:
    """The cables along the ring, each with its port 0 first; two nodes: by the lower rank's port, ports 0 first.

    Between equal ports the lower rank comes first. Raises what `ring_order` raises.
    """
    order = ring_order(cabling, names)
    if len(order) > 2:
        following = dict(_along(cabling))
        return tuple((Socket(name, 0), Socket(following[name], 1)) for name in order)
    rank = {name: index for index, name in enumerate(names)}
    pairs = [sorted(cable, key=lambda socket: rank[socket.node]) for cable in cabling.cables]
    ordered = [sorted(pair, key=lambda socket: socket.cage) for pair in sorted(pairs)]
    return tuple((first, second) for first, second in ordered)


def _along(cabling: Cabling) -> Iterator[tuple[str, str]]:
    for cable in cabling.cables:
        zero, one = sorted(cable, key=lambda socket: socket.cage)
        yield zero.node, one.node


def _per_cable(cabling: Cabling, names: Sequence[str]) -> Iterator[CableProblem]:
    known = frozenset(names)
    for a, b in cabling.cables:
        for here, there in ((a, b), (b, a)):
            if here.node not in known:
                yield _problem(
                    "cable-foreign", there, f"a cable to {here}", f"a cable to one of {', '.join(names)}", [here]
                )
            elif here.cage not in CAGES:
                yield _problem("cable-no-such-port", here, f"a cable to {there}", "port 0 or 1", [there])
        if a.node == b.node:
            found = "a cable to itself" if a == b else f"a cable to port {b.cage} of the same node"
            yield _problem("cable-loop", a, found, "a cable to another node", [b])
        elif a.cage == b.cage and len(names) > 2 and {a.node, b.node} <= known and a.cage in CAGES:
            yield _problem(
                "cable-same-port", a, f"a cable to {b}", f"a cable to port {1 - a.cage} of another node", [b]
            )


def _per_socket(cabling: Cabling, names: Sequence[str]) -> Iterator[CableProblem]:
    far: dict[Socket, list[Socket]] = {Socket(name, cage): [] for name in names for cage in CAGES}
    for a, b in cabling.cables:
        for here, there in {(a, b), (b, a)}:
            if here in far:
                far[here].append(there)
    for socket, others in far.items():
        if len(others) > 1:
            found = f"cables to {' and '.join(str(other) for other in sorted(others))}"
            yield _problem("cable-port-twice", socket, found, "one cable", sorted(others))
        elif not others and len(names) > 2:
            expected = f"a cable to port {1 - socket.cage} of another node"
            yield _problem("cable-missing", socket, "no cable", expected, [])
    if len(names) == 2 and not any(far.values()):
        yield _problem("cable-missing", Socket(names[0], 0), "no cable", f"a cable to {names[1]}", [])


def _two_rings(ring: Sequence[str], cabling: Cabling, names: Sequence[str]) -> CableProblem:
    socket = Socket(ring[0], 0)
    found = f"a ring of its own, {' - '.join(ring)}"
    expected = f"one ring of all {len(names)} nodes, with {names[0]}"
    return _problem("cable-two-rings", socket, found, expected, cabling.far(socket))


def _problem(kind: str, socket: Socket, found: str, expected: str, others: Sequence[Socket]) -> CableProblem:
    return CableProblem(str(socket), found, expected, kind, (socket, *others))
