"""The routes that a client keeps."""

from netstack.client.route_cache import RouteCache
from netstack.client.routes import TopicRoute


def route(topic: str, **brokers: dict[int, str]) -> TopicRoute:
    return TopicRoute(topic, (), (), brokers)


async def fetch(topic: str) -> TopicRoute:
    raise AssertionError(topic)


def test_who_is_told_hears_of_a_route_only_when_it_is_not_as_it_was() -> None:
    told: list[TopicRoute] = []
    cache = RouteCache(fetch, told.append)
    for _ in range(2):
        cache.keep(route("T", a={0: "x:1"}))
    assert told == [route("T", a={0: "x:1"})]
    cache.keep(route("T", a={0: "y:1"}))
    assert told[1:] == [route("T", a={0: "y:1"})]


def test_addresses_are_those_of_the_routes() -> None:
    cache = RouteCache(fetch, lambda changed: None)
    cache.keep(route("T", a={0: "x:1", 1: "x:2"}))
    cache.keep(route("U", b={1: "y:2"}))
    assert (cache.addresses_of("a"), cache.addresses_of("c")) == ({0: "x:1", 1: "x:2"}, {})
    assert (cache.broker_name_at("y:2"), cache.broker_name_at("z:1")) == ("b", "")
    assert cache.broker_addresses(masters_only=True) == {"x:1"}
    assert cache.broker_addresses(masters_only=False) == {"x:1", "x:2", "y:2"}
