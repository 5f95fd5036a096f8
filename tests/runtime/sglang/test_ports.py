"""Ports before and during a start, on addresses of this machine."""

import os
import socket

import pytest

from runtime.environment import Endpoint
from runtime.exits import RankFailure
from runtime.sglang.ports import demand_free, joined, listening, reaching


def test_a_taken_port_names_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1])
        assert listening(endpoint)
        with pytest.raises(RankFailure) as caught:
            demand_free(endpoint, "SPARKD_API")
        assert caught.value.code == 64
        said = f"SPARKD_API: cannot listen on {endpoint}: Address already in use; pid {os.getpid()} listens there: "
        assert caught.value.sentence.startswith(said)
    demand_free(endpoint, "SPARKD_API")
    assert not listening(endpoint)


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(RankFailure, match=r"SPARKD_RENDEZVOUS: cannot listen on 203\.0\.113\.1:20000: Cannot assign"):
        demand_free(Endpoint("203.0.113.1", 20000), "SPARKD_RENDEZVOUS")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_has_connected_is_seen_without_connecting(family: socket.AddressFamily) -> None:
    # PyTorch's store listens on IPv6 for both, so that its connections are among those of IPv6.
    address = "127.98.7.1" if family is socket.AF_INET else "::"
    with socket.create_server((address, 0), family=family, dualstack_ipv6=family is socket.AF_INET6) as listener:
        rendezvous = Endpoint("127.98.7.1", listener.getsockname()[1])
        assert joined(rendezvous) == frozenset()
        assert reaching(rendezvous) == ""
        clients = []
        for host in ("127.98.7.2", "127.98.7.3", "127.98.7.1"):
            client = socket.socket()
            client.bind((host, 0))
            client.connect((rendezvous.host, rendezvous.port))
            clients.append(client)
        assert joined(rendezvous) == {"127.98.7.2", "127.98.7.3"}
        assert reaching(rendezvous) == "connected"
        for client in clients:
            client.close()


def test_a_peer_that_does_not_answer_is_told_from_one_that_refuses() -> None:
    with socket.create_server(("127.98.7.9", 0), backlog=0) as full:
        endpoint = Endpoint("127.98.7.9", full.getsockname()[1])
        # A listener whose queue is full leaves a SYN unanswered, as a firewall does. Who has gone still fills it.
        for _ in range(2):
            with socket.socket() as filler:
                filler.setblocking(False)
                filler.connect_ex((endpoint.host, endpoint.port))
        with socket.socket() as client:
            client.setblocking(False)
            client.connect_ex((endpoint.host, endpoint.port))
            assert reaching(endpoint) == "unanswered"
    with socket.socket() as client:
        client.settimeout(5)
        assert client.connect_ex((endpoint.host, endpoint.port)) != 0
        assert reaching(endpoint) == ""
