"""Tries of TCP ports, and the port that is there to be tried, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator

from sparkd.api.listener import tcp_socket
from sparkd.core.reach import ReachFact
from sparkd.peers.reach import Reach
from tests.reconcile.running import in_loop, until

HERE = "127.0.0.1"
LONG = 60.0


class Bench:
    """One end, whose only peer is at `peer_port`."""

    def __init__(self, peer_port: int, deadline: float = 0.2, again: float = LONG) -> None:
        self.ports = {"spark2": peer_port}
        sock = tcp_socket(HERE, 0)
        self.reach = Reach(sock, {"spark2": HERE}, lambda: self.ports, deadline=deadline, period=LONG, again=again)
        self.wakes: list[str] = []
        self.reach.subscribe(self.wakes.append)

    @property
    def fact(self) -> ReachFact | None:
        return next(iter(self.reach.facts()), None)

    def came_to(self, answer: str) -> bool:
        return self.fact is not None and self.fact.answer == answer


@contextlib.asynccontextmanager
async def reaching(peer_port: int = 0, deadline: float = 0.2, again: float = LONG) -> AsyncIterator[Bench]:
    bench = Bench(peer_port, deadline, again)
    task = asyncio.create_task(bench.reach.run())
    await asyncio.sleep(0)
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port whose queue is full: the kernel drops every further SYN, as a firewall would."""
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        sock.bind((HERE, 0))
        sock.listen(0)
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(sock.getsockname())
        yield sock.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        return int(sock.getsockname()[1])


@in_loop
async def test_two_daemons_reach_each_other() -> None:
    async with reaching() as one, reaching(one.reach.port) as two:
        one.ports["spark2"] = two.reach.port
        one.reach.look()
        await until(lambda: one.came_to("open") and two.came_to("open"))
        assert one.fact is not None and (one.fact.peer, one.fact.port) == ("spark2", two.reach.port)
        assert (one.wakes, two.wakes) == (["reach"], ["reach"])


@in_loop
async def test_a_port_that_is_silent_is_told_at_the_deadline_and_its_age_grows() -> None:
    with silent_port() as port:
        async with reaching(port, again=0.05) as bench:
            await until(lambda: bench.came_to("no answer"))
            first = bench.fact
            assert first is not None and first.why == "no answer within 0.2 s, as when a firewall drops it"
            await asyncio.sleep(0.6)  # it has been tried again, to the same effect
            assert bench.fact is not None and bench.fact.age > first.age + 0.5
            assert bench.wakes == ["reach"]


@in_loop
async def test_a_port_that_refuses_is_tried_twice_and_open_as_soon_as_it_is() -> None:
    port = closed_port()
    async with reaching(port, again=0.05) as bench:
        await until(lambda: bench.came_to("refused"))
        with tcp_socket(HERE, port):
            await until(lambda: bench.came_to("open"))
    assert bench.wakes == ["reach", "reach"]


@in_loop
async def test_a_daemon_that_restarts_between_two_tries_has_not_refused() -> None:
    port = closed_port()
    async with reaching(port, deadline=0.5) as bench:
        await asyncio.sleep(0.1)
        with tcp_socket(HERE, port):
            await until(lambda: bench.fact is not None)
            assert bench.came_to("open")


@in_loop
async def test_afresh_tries_what_was_not_open_and_nothing_else() -> None:
    with silent_port() as port:
        async with reaching(port) as bench:
            await until(lambda: bench.came_to("no answer"))
            with tcp_socket(HERE, 0) as sock:
                bench.ports["spark2"] = sock.getsockname()[1]
                await bench.reach.afresh()
                assert bench.came_to("open")
                sock.accept()[0].close()
                await bench.reach.afresh()
                sock.setblocking(False)
                try:
                    sock.accept()[0].close()
                except BlockingIOError:
                    return
                raise AssertionError("it was tried again")


@in_loop
async def test_a_peer_that_tells_no_port_is_not_tried() -> None:
    async with reaching(0) as bench:
        await bench.reach.afresh()
        assert bench.reach.facts() == ()


@in_loop
async def test_a_crowd_is_let_in_slowly_and_costs_no_descriptors() -> None:
    async with reaching() as bench:
        crowd = [socket.create_connection((HERE, bench.reach.port), 5) for _ in range(100)]
        await asyncio.sleep(0.05)
        assert len(crowd) - _closed(crowd) > 60, "all at once"
        await until(lambda: _closed(crowd) == len(crowd))
        for sock in crowd:
            sock.close()


@in_loop
async def test_a_host_without_descriptors_goes_on_when_there_are_some() -> None:
    async with reaching() as bench:
        with socket.socket() as caller, _no_more_descriptors():
            caller.connect((HERE, bench.reach.port))
            await asyncio.sleep(0.1)
            assert _closed([caller]) == 0
        with socket.create_connection((HERE, bench.reach.port), 5) as caller:
            await until(lambda: _closed([caller]) == 1)


@contextlib.contextmanager
def _no_more_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/dev/null") as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _closed(crowd: list[socket.socket]) -> int:
    """How many of them the other side has closed."""
    count = 0
    for sock in crowd:
        sock.setblocking(False)
        try:
            count += sock.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionResetError:
            count += 1
    return count
