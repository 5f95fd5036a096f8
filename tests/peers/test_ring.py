"""Three daemons over real connections: the whole of what lies between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from sparkd.api.guard import Body
from sparkd.api.listener import Listener, tcp_socket
from sparkd.api.peer import peer_app
from sparkd.peers.client import PeerClient
from sparkd.peers.poller import Poller
from sparkd.reconcile.loop import Forwarded
from sparkd.reconcile.refusal import Refusal
from tests.api.serving import listening
from tests.core.builders import NODES
from tests.peers.tls import HERE, Certificates
from tests.reconcile.cluster import Cluster
from tests.reconcile.running import in_loop, until


@contextlib.asynccontextmanager
async def connected(
    certificates: Certificates, tick: float
) -> AsyncIterator[tuple[Cluster, dict[str, Listener], dict[str, int]]]:
    """Their fabric, systemd and disks are fakes; what they tell each other goes through TLS."""
    ring = Cluster()
    sockets = {name: tcp_socket(str(HERE), 0) for name in NODES}
    ports = {name: sock.getsockname()[1] for name, sock in sockets.items()}
    pollers = []

    def client(of: str, to: str) -> PeerClient:
        return certificates.client(of, ports[to])

    for name in NODES:
        others = tuple(other for other in NODES if other != name)
        poller = Poller(others, lambda other, name=name: client(name, other), tick)  # type: ignore[misc]
        poller.subscribe(ring[name].wake)
        ring[name].peers = poller
        pollers.append(poller)
    listeners = {
        name: Listener(Body(peer_app(ring[name].boot()), wanted=True), sockets[name], certificates.server(name))
        for name in NODES
    }
    async with listening(*listeners.values()):
        polls = [asyncio.create_task(poller.run()) for poller in pollers]
        try:
            yield ring, listeners, ports
        finally:
            for task in polls:
                task.cancel()
            await asyncio.wait(polls)
            for poller in pollers:
                poller.close()
            await ring.end()


def test_a_start_a_death_and_a_stop(certificates: Certificates) -> None:
    @in_loop
    async def live() -> None:
        async with connected(certificates, tick=30.0) as (ring, _, _):
            await until(lambda: all(view.report for machine in ring for view in machine.peers.views()))
            answer = await ring.ask("start", "spark3")
            assert isinstance(answer, Forwarded)
            assert (answer.status, answer.body["operation"]) == (202, "/v1/operations/1")
            await ring.reach("ready", epoch=1)
            ring["spark2"].units.die(1, signal=9)
            await until(lambda: not any(machine.running for machine in ring))
            ring.clock.advance(1)
            await ring.reach("ready", epoch=2)
            assert isinstance(await ring.ask("stop", "spark2"), Forwarded)
            await ring.reach("down", epoch=3)

    live()


def test_a_conductor_that_is_gone_is_told_by_its_name_and_may_come_back(certificates: Certificates) -> None:
    @in_loop
    async def live() -> None:
        async with connected(certificates, tick=0.05) as (ring, listeners, ports):
            await until(lambda: all(view.report for machine in ring for view in machine.peers.views()))
            listeners["spark1"].stop()
            await until(lambda: "refused" in ring["spark2"].peers.views()[0].error)
            with pytest.raises(Refusal) as caught:
                await ring.ask("start", "spark2")
            assert caught.value.code == "conductor-unreachable"
            assert caught.value.sentence.startswith("only spark1 issues epochs, and spark1 cannot be asked: 127.0.0.1:")
            assert caught.value.sentence.endswith(": connection refused")
            api = Body(peer_app(ring.conductor.loop), wanted=True)
            async with certificates.serving(api, "spark1", ports["spark1"]):
                await until(lambda: ring["spark2"].peers.views()[0].error == "")
                assert isinstance(await ring.ask("start", "spark2"), Forwarded)
                await ring.reach("ready")

    live()
