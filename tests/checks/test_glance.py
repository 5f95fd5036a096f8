"""The short look at the ring's ports before a start."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.core.hardware import HardwareFacts, SupervisorFacts
from sparkd.host.supervisors import Supervisors, is_free
from tests.checks.spark import PORTS, Spark

AT_20000 = "0100007F:4E20"


def glance(spark: Spark, known: HardwareFacts, *taken: int) -> SupervisorFacts:
    door = Supervisors(PORTS, spark.root, free=lambda port: port not in taken)
    try:
        return asyncio.run(door.glance(known.supervisors))
    finally:
        door.close()


def test_a_listener_that_has_come_is_seen_with_its_process_and_one_that_has_gone_is_not(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    known = spark.facts()
    table = (spark.root / "proc/net/tcp").read_text()
    spark.process(700, "python3", "-m", "http.server", sockets=(4711,))
    spark.listen(AT_20000, 1000, 4711)
    seen = glance(spark, known, 20000)
    assert [(listener.port, listener.pid) for listener in seen.listeners] == [(20000, 700)]
    spark.put("proc/net/tcp", table)
    assert glance(spark, replace(known, supervisors=seen)) == known.supervisors


def test_without_listeners_no_process_is_looked_at(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    known = spark.facts()
    spark.seal("proc/1/cmdline")  # nobody can read this
    assert glance(spark, known) == known.supervisors


def test_what_could_not_be_read_before_is_looked_at_in_full(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    spark.process(700, "vllm", "serve")
    blind = replace(spark.facts(), supervisors=None, unknown={"supervisors": "/proc did not answer within 2 s"})
    seen = glance(spark, blind)
    assert [engine.pid for engine in seen.engines] == [700]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_on_which_somebody_listens_is_not_free_and_one_that_was_in_use_a_moment_ago_is(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert not is_free(port)
        with socket.socket(family) as caller:
            caller.connect((address, port))
            accepted, _ = listener.accept()
            accepted.close()  # first, so that its TIME_WAIT is on the port
    assert [is_free(port), is_free(port)] == [True, True]
