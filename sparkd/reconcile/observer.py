"""Ask every source once, each under its own deadline, and keep the answers until the source has news."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sparkd.core.model import HelloFacts, HostFacts, NetworkFacts, RankUnit, RoceFact, Unknown
from sparkd.core.railfacts import RailFacts
from sparkd.ports import DoorError, Hellos, Host, Links, Rails, Roce, Units

SOURCES = ("units", "network", "roce", "host", "hello")


class Observer:
    """A source that fails becomes Unknown(why), a fact like any other, and is asked again in the next cycle.

    `rails`: None where rails are not measured.
    """

    def __init__(
        self, units: Units, links: Links, roce: Roce, host: Host, hello: Hellos, rails: Rails | None = None
    ) -> None:
        self._ask: dict[str, Callable[[], Awaitable[Any]]] = {
            "units": units.observe,
            "network": links.observe,
            "roce": roce.observe,
            "host": host.observe,
            "hello": hello.observe,
        }
        self._known: dict[str, Any] = {name: Unknown("not asked yet") for name in SOURCES}
        self._stale: set[str] = set(SOURCES)
        self._known["rails"] = RailFacts()
        if rails is not None:
            self._ask["rails"] = rails.observe
            self._stale.add("rails")

    def stale(self, source: str) -> None:
        """The source has news, or may have."""
        if source in self._ask:
            self._stale.add(source)

    def all_stale(self) -> None:
        self._stale.update(SOURCES)
        # What was measured does not change by itself: there is nothing to look at while nothing measures.
        if isinstance(self.rails, Unknown) or self.rails.running is not None:
            self.stale("rails")

    async def refresh(self) -> None:
        """Ask the stale sources, side by side."""
        await asyncio.gather(*(self._look(name) for name in sorted(self._stale)))

    async def _look(self, name: str) -> None:
        # News that comes while the source is being asked makes it stale again.
        self._stale.discard(name)
        answered = False
        try:
            self._known[name] = await self._ask[name]()
            answered = True
        except DoorError as error:
            self._known[name] = Unknown(str(error))
        finally:
            if not answered:
                self._stale.add(name)

    @property
    def units(self) -> tuple[RankUnit, ...] | Unknown:
        known: tuple[RankUnit, ...] | Unknown = self._known["units"]
        return known

    @property
    def network(self) -> NetworkFacts | Unknown:
        known: NetworkFacts | Unknown = self._known["network"]
        return known

    @property
    def roce(self) -> tuple[RoceFact, ...] | Unknown:
        known: tuple[RoceFact, ...] | Unknown = self._known["roce"]
        return known

    @property
    def hello(self) -> HelloFacts | Unknown:
        known: HelloFacts | Unknown = self._known["hello"]
        return known

    @property
    def rails(self) -> RailFacts | Unknown:
        known: RailFacts | Unknown = self._known["rails"]
        return known

    @property
    def host(self) -> HostFacts | Unknown:
        known: HostFacts | Unknown = self._known["host"]
        return known
