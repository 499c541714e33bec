"""What a route says to producers and consumers."""

from netstack.client.routes import any_address, from_template, publish_address, subscribe_address, topic_route
from netstack.wire.bodies_route import BrokerData, QueueData, RouteData

ROUTE = RouteData(
    (QueueData("b", 2, 1, 6), QueueData("a", 1, 3, 2), QueueData("c", 2, 2, 6), QueueData("d", 1, 1, 4)),
    (
        BrokerData("C", "a", {0: "a:1"}),
        BrokerData("C", "b", {0: "b:1", 1: "b:2"}),
        BrokerData("C", "c", {1: "c:2"}),
        BrokerData("C", "d", {0: "d:1"}),
    ),
)


def test_only_writable_queues_of_living_masters_are_published_to() -> None:
    route = topic_route("T", ROUTE)
    assert [(q.broker_name, q.queue_id) for q in route.publish] == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_only_readable_queues_are_subscribed_to_also_without_a_master() -> None:
    route = topic_route("T", ROUTE)
    assert [(q.broker_name, q.queue_id) for q in route.subscribe] == [("b", 0), ("b", 1), ("c", 0), ("c", 1), ("d", 0)]


def test_an_order_configuration_names_the_queues() -> None:
    route = topic_route("T", RouteData(ROUTE.queue_datas, ROUTE.broker_datas, {}, "a:1;b:2"))
    assert route.ordered
    assert [(q.broker_name, q.queue_id) for q in route.publish] == [("a", 0), ("b", 0), ("b", 1)]


def test_an_unknown_topic_gets_at_most_the_wanted_queues_of_the_template() -> None:
    template = RouteData((QueueData("a", 8, 8, 7), QueueData("b", 2, 2, 7)), ROUTE.broker_datas)
    route = from_template("new", template, 4)
    assert [q.broker_name for q in route.publish] == ["a"] * 4 + ["b"] * 2


def test_routes_in_another_order_are_the_same_route() -> None:
    turned = RouteData(ROUTE.queue_datas[::-1], ROUTE.broker_datas[::-1])
    assert topic_route("T", ROUTE) == topic_route("T", turned)


def test_addresses_are_the_master_the_wanted_slave_the_next_or_any() -> None:
    brokers = topic_route("T", ROUTE).brokers
    assert publish_address(brokers, "c") is None
    assert subscribe_address(brokers, "b", 1) == ("b:2", True)
    assert subscribe_address(brokers, "b", 0) == ("b:1", False)
    assert subscribe_address(brokers, "c", 0) == ("c:2", True)
    assert subscribe_address(brokers, "b", 7) == ("b:1", False)
    assert subscribe_address(brokers, "x") is None
    assert any_address(brokers, "c") == "c:2"
    assert any_address(brokers, "x") is None
