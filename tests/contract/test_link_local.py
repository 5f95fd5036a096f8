"""The fe80:: address of a port, without which it cannot say hello: what FakeLinks and the kernel both do."""

from __future__ import annotations

import pytest

from sparkd.core import hearing
from sparkd.core.actions import SetSysctl, SetUp
from tests.contract.networks import ONE
from tests.contract.test_links import Bench, Run, run
from tests.contract.waiting import until

__all__ = ["run"]


async def up(bench: Bench) -> None:
    """Once the kernel has made the address; or once it would have."""
    await bench.links.apply([SetUp(ONE)])
    await until(bench.link, lambda link: link.carrier and link.link_local)


@pytest.mark.parametrize("mode", ["0", "3"])
def test_an_address_that_was_flushed_is_missed_and_made_again(run: Run, mode: str) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetSysctl(ONE, "addr_gen_mode", mode)])
        await up(bench)
        assert hearing.mend(await bench.link()) == ()
        bench.world.flush_link_local()
        missed = await bench.link()
        assert not missed.link_local
        await bench.links.apply(hearing.mend(missed))
        after = await bench.link()
        assert after.link_local
        assert after.settings == missed.settings
        assert after.settings["addr_gen_mode"] == mode

    run(body)


def test_a_port_that_is_to_have_none_gets_one(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.links.apply([SetSysctl(ONE, "addr_gen_mode", "1"), SetUp(ONE)])
        missed = await until(bench.link, lambda link: not link.link_local)
        await bench.links.apply(hearing.mend(missed))
        assert (await bench.link()).link_local

    run(body)


def test_a_port_that_is_down_or_without_ipv6_misses_nothing(run: Run) -> None:
    async def body(bench: Bench) -> None:
        assert (await bench.link()).link_local
        await up(bench)
        bench.world.flush_link_local()
        bench.world.switch_ipv6_off()
        assert (await bench.link()).link_local

    run(body)


def test_other_addresses_of_the_port_stay(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await up(bench)
        bench.world.add_address("10.9.0.1/24")
        bench.world.flush_link_local()
        before = (await bench.links.observe()).addresses
        await bench.links.apply(hearing.mend(await bench.link()))
        assert (await bench.links.observe()).addresses == before

    run(body)
