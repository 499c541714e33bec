"""`RouteCache`: the routes that a client knows, and where they say brokers are."""

from collections.abc import Awaitable, Callable, Mapping

import trio

from netstack.client.lifetime import Shared
from netstack.client.routes import TopicRoute

ROUTES_EVERY_S = 30.0
SUSPECT_S = 1.0  # between two refreshes of routes that somebody doubts


class RouteCache:
    """One route a topic. `fetch` asks a NameServer; `changed` hears of each route that is not as it was."""

    def __init__(self, fetch: Callable[[str], Awaitable[TopicRoute]], changed: Callable[[TopicRoute], None]) -> None:
        self.known: dict[str, TopicRoute] = {}
        self._fetch, self._changed = fetch, changed
        self._refreshing: Shared[str, TopicRoute] = Shared(self._fetch_and_keep)
        self._suspicion = trio.Event()

    async def refresh(self, topic: str, nursery: trio.Nursery) -> TopicRoute:
        """Return the route as a NameServer knows it now. Raises NoRoute, NoNameServer."""
        return await self._refreshing.get(topic, nursery)

    async def _fetch_and_keep(self, topic: str) -> TopicRoute:
        route = await self._fetch(topic)
        self.keep(route)
        return route

    def keep(self, route: TopicRoute) -> None:
        """Put a route into the cache."""
        changed = self.known.get(route.topic) != route
        self.known[route.topic] = route
        if changed:
            self._changed(route)

    def suspect(self) -> None:
        """Have `stale` return soon."""
        self._suspicion.set()

    async def stale(self) -> None:
        """Return when routes are to be asked for again: after half a minute, or a second once somebody doubts them."""
        await trio.sleep(SUSPECT_S)
        with trio.move_on_after(ROUTES_EVERY_S - SUSPECT_S):
            await self._suspicion.wait()
        self._suspicion = trio.Event()

    def addresses_of(self, broker_name: str) -> Mapping[int, str]:
        """Return id → address of a broker as the newest routes say."""
        for route in self.known.values():
            if broker_name in route.brokers:
                return route.brokers[broker_name]
        return {}

    def broker_name_at(self, address: str) -> str:
        """Return which broker has this address; empty when no route says."""
        names = (
            name for route in self.known.values() for name, addrs in route.brokers.items() if address in addrs.values()
        )
        return next(names, "")

    def broker_addresses(self, *, masters_only: bool) -> set[str]:
        """Return the addresses of all brokers, of masters alone if asked so."""
        return {
            address
            for route in self.known.values()
            for addresses in route.brokers.values()
            for number, address in addresses.items()
            if number == 0 or not masters_only
        }
