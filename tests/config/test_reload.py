"""The configuration read again while ranks serve: all of it, or nothing and a word on why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from sparkd.config import ConfigError, Problem, Settings
from sparkd.reload import Reload
from tests.config.etc import Etc
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until


def told(ring: Cluster, kind: str) -> list[str]:
    return [event.text for event in ring.conductor.loop.events.since(0, 500).events if event.kind == kind]


def reading(etc: Etc, **changed: object) -> Callable[[], Settings]:
    settings = etc.load()
    return lambda: replace(settings, **changed)  # type: ignore[arg-type]


@in_loop
async def test_what_can_change_while_ranks_serve_is_in_force_at_once(etc: Etc) -> None:
    async with cluster() as ring:
        loop = ring.conductor.loop
        settings = etc.load()
        reload = Reload(settings, loop, reading(etc, policy=replace(settings.policy, restarts=9, backoff=1.5)))
        await loop.cycle()
        await reload.run()
        assert loop.site.policy.restarts == 9
        taken = told(ring, "action")[-1]
        await loop.cycle()
        budget = loop.ring().budget
        assert budget is not None
        assert budget.restarts == 9
        assert taken == (
            "the configuration was read again: recovery.backoff_seconds from 5 to 1.5; recovery.restarts from 3 to 9"
        )
        await reload.run()
        assert told(ring, "action")[-1] == "the configuration was read again: nothing has changed in it"


@in_loop
async def test_one_key_that_needs_a_restart_refuses_all_of_it(etc: Etc) -> None:
    async with cluster() as ring:
        loop = ring.conductor.loop
        settings = etc.load()
        before = loop.site.policy
        listen = replace(settings.listen, peer_port=7999)
        engine = replace(settings.engine, rendezvous_port=21000)
        fresh = {"policy": replace(settings.policy, restarts=9), "listen": listen, "engine": engine}
        reload = Reload(settings, loop, reading(etc, **fresh))
        await reload.run()
        assert loop.site.policy == before
        assert told(ring, "error")[-3:] == [
            "engine.rendezvous_port from 20000 to 21000: needs a restart of sparkd on every node and of the ring",
            "listen.peer_port from 7475 to 7999: needs a restart of sparkd",
            "the configuration was not taken, since engine.rendezvous_port, listen.peer_port cannot change by a reload",
        ]
        await loop.cycle()
        assert ring.conductor.notifier.sentences[-1].endswith("; " + told(ring, "error")[-1])
        # Put right, it is said no more.
        reload._read = reading(etc)
        await reload.run()
        await loop.cycle()
        assert "configuration" not in ring.conductor.notifier.sentences[-1]


@in_loop
async def test_a_faulty_file_leaves_the_one_before_in_force(etc: Etc) -> None:
    async with cluster() as ring:
        loop = ring.conductor.loop
        before = loop.site.policy

        def faulty() -> Settings:
            raise ConfigError([Problem("/etc/sparkd/sparkd.toml", "recovery.restarts", "-1", "an integer")])

        reload = Reload(etc.load(), loop, faulty)
        reload.ask()
        reload.ask()  # during the first: answered by it
        await reload.close()
        await Reload(etc.load(), loop, faulty).run()
        assert loop.site.policy == before
        assert told(ring, "error")[-2:] == [
            "/etc/sparkd/sparkd.toml: recovery.restarts: found -1, expected an integer",
            "the configuration is faulty and was not taken; the one before goes on",
        ]


@in_loop
async def test_what_is_asked_for_while_the_files_are_read_is_not_lost(etc: Etc) -> None:
    async with cluster() as ring:
        loop = ring.conductor.loop
        settings = etc.load()
        read: list[int] = []

        def slowly() -> Settings:
            read.append(len(read))
            if len(read) == 1:
                # Somebody saves another value and asks again, before this answer is in force.
                running.call_soon_threadsafe(reload.ask)
                time.sleep(0.05)
            return replace(settings, policy=replace(settings.policy, restarts=4 + len(read)))

        running = asyncio.get_running_loop()
        reload = Reload(settings, loop, slowly)
        reload.ask()
        await until(lambda: loop.site.policy.restarts == 6)
        await reload.close()
        assert len(read) == 2
