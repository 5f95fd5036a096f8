"""A node is who its certificate says, on both sides of a connection, over real mutual TLS."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparkd.api.callers import names_in
from sparkd.api.guard import Body
from sparkd.api.peer import peer_app
from sparkd.core.model import Intent
from sparkd.peers.client import PeerClient, PeerError
from sparkd.peers.tls import Credentials, client_context
from tests.core.builders import NOW, report
from tests.peers.tls import HERE, Certificates
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

THEIRS = report("spark2", Intent(3, "down", "operator", "stop asked for", NOW), instance="new")


def client(certificates: Certificates, of: str, port: int, to: str = "") -> PeerClient:
    return PeerClient(str(HERE), port, client_context(Credentials.below(certificates.folder / of)), to)


def test_a_report_with_another_nodes_certificate_is_refused(certificates: Certificates) -> None:
    @in_loop
    async def body() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            machine = ring.conductor
            await ring["spark2"].kill()  # or its own report would follow the one that is told here in its name
            before = [view.report for view in machine.peers.views()]
            async with certificates.serving(Body(peer_app(machine.loop), wanted=True), "spark1") as port:
                third = client(certificates, "spark3", port)
                with pytest.raises(PeerError, match="answered 403"):
                    await asyncio.to_thread(third.exchange, THEIRS)
                assert [view.report for view in machine.peers.views()] == before
                with pytest.raises(PeerError, match="answered 403"):
                    await asyncio.to_thread(third.exchange, replace(THEIRS, node="spark1"))
                second = client(certificates, "spark2", port)
                assert (await asyncio.to_thread(second.exchange, THEIRS)).node == "spark1"
                heard = next(view.report for view in machine.peers.views() if view.name == "spark2")
                assert heard is not None and heard.instance == "new"
                third.close()
                second.close()

    body()


def test_whoever_answers_at_a_nodes_address_has_to_have_its_certificate(certificates: Certificates) -> None:
    @in_loop
    async def body() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            async with certificates.serving(Body(peer_app(ring["spark3"].loop), wanted=True), "spark3") as port:
                asking = client(certificates, "spark1", port, "spark2")
                with pytest.raises(PeerError, match="its certificate is of spark3, not spark2"):
                    await asyncio.to_thread(asking.pull)
                right = client(certificates, "spark1", port, "spark3")
                assert (await asyncio.to_thread(right.pull)).node == "spark3"
                asking.close()
                right.close()

    body()


def test_only_the_dns_names_of_a_certificate_are_names() -> None:
    names = (("DNS", "spark2"), ("IP Address", "192.168.77.2"), ("email", "spark1"))
    certificate = {"subject": ((("commonName", "spark1"),),), "subjectAltName": names}
    assert names_in(certificate) == {"spark2"}
    assert names_in({}) == frozenset()
