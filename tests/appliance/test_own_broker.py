"""The broker's topics in the NameServer's routes."""

from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.namesrv.own_broker import own_broker
from appliance.namesrv.route_table import BrokerQueues, RouteTable
from appliance.testing import MemoryStateFile


def topic_table() -> TopicTable:
    return TopicTable(MemoryStateFile(), TopicRules("Edge", "box"), now_ms=lambda: 1)


def test_a_topic_is_routed_from_the_moment_it_exists() -> None:
    topics = topic_table()
    routes = RouteTable(own_broker(topics))
    assert routes.route("T", "x:1") is None
    topics.put(Topic("T", 4, 4))
    route = routes.route("T", "x:1")
    assert route is not None
    assert route.queues == [BrokerQueues("box", 4, 4, 6)]
    topics.delete("T")
    assert routes.route("T", "x:1") is None


def test_the_template_for_automatic_topics_is_routed_with_its_inherit_bit() -> None:
    route = RouteTable(own_broker(topic_table())).route("TBW102", "x:1")
    assert route is not None
    assert route.queues == [BrokerQueues("box", 8, 8, 7)]


def test_a_read_only_broker_lends_its_permission_to_all_topics() -> None:
    route = RouteTable(own_broker(topic_table(), permission=4)).route("TBW102", "x:1")
    assert route is not None
    assert route.queues[0].perm == 4


def test_the_probe_topic_is_in_no_list() -> None:
    assert "RBX_PROBE" not in RouteTable(own_broker(topic_table())).topics()


def test_a_retry_topic_has_a_route_before_its_group_has_sent_a_heartbeat() -> None:
    route = RouteTable(own_broker(topic_table())).route("%RETRY%group", "x:1")
    assert route is not None
    assert route.queues == [BrokerQueues("box", 1, 1, 6)]
    assert "%RETRY%group" not in RouteTable(own_broker(topic_table())).topics()
