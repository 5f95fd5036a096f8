"""How the kernel would send, asked of a real one: what it picks, and what a rule before its main table makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparkd.core.actions import AddAddress, AddRoute, SetUp
from sparkd.core.model import RouteFact
from sparkd.host.netlink import NetlinkLinks
from tests.contract.namespace import inside, ip
from tests.contract.networks import ONE, TWO, RealWorld

WHOLE = (
    SetUp(ONE),
    SetUp(TWO),
    AddAddress(ONE, "10.77.0.1/24", f"{ONE}:s"),
    AddAddress(TWO, "10.77.1.1/24", f"{TWO}:s"),
    AddRoute("10.77.2.2", "10.77.0.2", ONE, "10.77.0.1"),
)
PLANNED = {
    RouteFact("10.77.2.2", ONE, "", "10.77.0.1"),
    RouteFact("10.77.0.2", ONE, "", "10.77.0.1"),
    RouteFact("10.77.1.2", TWO, "", "10.77.1.1"),
}


def with_links(body: Callable[[NetlinkLinks], Awaitable[None]]) -> None:
    async def whole() -> None:
        RealWorld().prepare()
        ip("link set far2 up")
        links = NetlinkLinks()
        try:
            await links.apply(WHOLE)
            await body(links)
        finally:
            links.close()

    inside(lambda: asyncio.run(whole()))


async def ways(links: NetlinkLinks) -> set[RouteFact]:
    return set((await links.observe()).ways)


def test_what_is_configured_is_what_the_kernel_picks() -> None:
    async def body(links: NetlinkLinks) -> None:
        assert await ways(links) == PLANNED

    with_links(body)


def test_a_rule_before_the_main_table_is_seen_in_the_way_alone() -> None:
    async def body(links: NetlinkLinks) -> None:
        before = (await links.observe()).routes
        ip(f"route add default dev {TWO} table 77", "rule add to 10.77.2.0/24 lookup 77")
        seen = await links.observe()
        assert seen.routes == before
        assert set(seen.ways) == PLANNED - {RouteFact("10.77.2.2", ONE, "", "10.77.0.1")} | {
            RouteFact("10.77.2.2", TWO, "", "10.77.1.1")
        }

    with_links(body)


def test_no_way_at_all() -> None:
    async def body(links: NetlinkLinks) -> None:
        ip("rule add to 10.77.0.0/24 prohibit")
        assert RouteFact("10.77.0.2", "", "", "") in await ways(links)
        assert RouteFact("10.77.1.2", TWO, "", "10.77.1.1") in await ways(links)

    with_links(body)
