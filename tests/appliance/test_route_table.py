"""The NameServer's tables, row by row."""

from appliance.namesrv.route_table import (
    MOST,
    WRITE,
    BrokerQueues,
    OwnBroker,
    Registration,
    RouteTable,
    TopicTableVersion,
)

V0, V1 = TopicTableVersion(0, 1_795_203_844_236), TopicTableVersion(1, 1_795_203_844_999)


class OwnTopics:
    """The own broker's topic table as the composition hands it over."""

    def __init__(self) -> None:
        self.rows = {"own": BrokerQueues("box", 4, 4, 6), "TBW102": BrokerQueues("box", 8, 8, 7)}
        self.version = TopicTableVersion(1, 1)

    def broker(self) -> OwnBroker:
        return OwnBroker("box", "Edge", self.rows.get, lambda: list(self.rows.items()), lambda: self.version)


def told(name: str = "broker-a", broker_id: int = 0, **changes: object) -> Registration:
    fields: dict[str, object] = {
        "name": name,
        "address": f"10.0.0.{broker_id + 1}:10911",
        "cluster": "DefaultCluster",
        "ha_address": f"10.0.0.{broker_id + 1}:10912",
        "broker_id": broker_id,
        "version": V0,
        "topics": {"T": BrokerQueues(name, 4, 4, 6), "U": BrokerQueues(name, 4, 4, 6)},
    }
    return Registration(**(fields | changes))  # type: ignore[arg-type]


def table() -> RouteTable:
    return RouteTable(OwnTopics().broker())


def perms(routes: RouteTable, topic: str) -> dict[str, int]:
    route = routes.route(topic, "x:1")
    return {} if route is None else {row.broker_name: row.perm for row in route.queues}


def addresses(routes: RouteTable, topic: str) -> dict[str, dict[int, str]]:
    route = routes.route(topic, "x:1")
    return {} if route is None else {row.name: dict(row.addresses) for row in route.brokers}


def test_the_own_broker_is_routed_at_the_address_the_asker_reached() -> None:
    routes = table()
    assert addresses(routes, "own") == {"box": {0: "x:1"}}
    other = routes.route("own", "192.168.7.1:10911")
    assert other is not None
    assert other.brokers[0].addresses == {0: "192.168.7.1:10911"}


def test_the_own_broker_never_expires() -> None:
    routes = table()
    routes.expire(10_000_000.0)
    assert perms(routes, "own") == {"box": 6}


def test_an_unknown_topic_has_no_route() -> None:
    assert table().route("nobody", "x:1") is None


def test_a_registered_master_routes_its_topics_and_a_slaves_own_topics_are_ignored() -> None:
    routes = table()
    assert routes.register(told(), 1, 0.0) is None
    extra = {"T": BrokerQueues("broker-a", 4, 4, 6), "S": BrokerQueues("broker-a", 4, 4, 6)}
    assert routes.register(told(broker_id=1, topics=extra), 2, 0.0) == ("10.0.0.1:10912", "10.0.0.1:10911")
    assert addresses(routes, "T") == {"broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}
    assert perms(routes, "U") == {"broker-a": 6}
    assert routes.route("S", "x:1") is None


def test_registration_merges_and_never_deletes() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    routes.register(told(version=V1, topics={"T": BrokerQueues("broker-a", 8, 8, 6)}), 1, 1.0)
    route = routes.route("T", "x:1")
    assert route is not None
    assert route.queues == [BrokerQueues("broker-a", 8, 8, 6)]
    assert perms(routes, "U") == {"broker-a": 6}


def test_an_unchanged_data_version_changes_no_queue() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    weaker = {"T": BrokerQueues("broker-a", 4, 4, 4)}
    routes.register(told(topics=weaker), 1, 1.0)
    assert perms(routes, "T") == {"broker-a": 6}
    routes.register(told(topics=weaker, version=V1), 1, 2.0)
    assert perms(routes, "T") == {"broker-a": 4}


def test_a_promoted_slave_leaves_no_second_row_for_its_address() -> None:
    routes = table()
    routes.register(told(broker_id=1, address="10.9.9.9:1", topics=None), 1, 0.0)
    routes.register(told(broker_id=0, address="10.9.9.9:1"), 1, 0.0)
    assert addresses(routes, "T") == {"broker-a": {0: "10.9.9.9:1"}}


def test_unregistering_the_only_broker_removes_its_topics_and_its_cluster() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    routes.unregister("broker-a", "10.0.0.1:10911", 0)
    assert routes.route("T", "x:1") is None
    assert routes.clusters() == {"Edge": ["box"]}
    assert [row.name for row in routes.brokers("x:1")] == ["box"]


def test_without_its_master_a_slave_keeps_the_topics_routed() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    routes.register(told(broker_id=1), 2, 0.0)
    routes.unregister("broker-a", "10.0.0.1:10911", 0)
    assert addresses(routes, "T") == {"broker-a": {1: "10.0.0.2:10911"}}


def test_a_silent_broker_expires_after_two_minutes_and_a_version_query_keeps_it() -> None:
    routes = table()
    routes.register(told(), 7, 0.0)
    assert routes.expire(120.0) == []
    routes.seen("10.0.0.1:10911", "", 100.0)
    assert routes.expire(121.0) == []
    assert routes.expire(220.1) == [(7, "10.0.0.1:10911")]
    assert routes.route("T", "x:1") is None


def test_an_old_connection_that_closes_does_not_harm_a_broker_that_came_back() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    routes.register(told(), 2, 1.0)
    routes.channel_closed(1)
    assert perms(routes, "T") == {"broker-a": 6}
    routes.channel_closed(2)
    assert routes.route("T", "x:1") is None


def test_wiping_lasts_until_the_broker_registers_a_change() -> None:
    routes = table()
    routes.register(told(topics={"T": BrokerQueues("broker-a", 4, 4, 7)}), 1, 0.0)
    assert routes.wipe_write("broker-a") == 1
    assert perms(routes, "T") == {"broker-a": 5}
    assert routes.add_write("broker-a") == 1
    assert perms(routes, "T") == {"broker-a": 6}
    routes.wipe_write("broker-a")
    routes.register(told(version=V1), 1, 1.0)
    assert perms(routes, "T") == {"broker-a": 6}
    assert routes.wipe_write("nobody") == 0


def test_wiping_the_own_broker_ends_with_its_next_data_version() -> None:
    topics = OwnTopics()
    routes = RouteTable(topics.broker())
    assert routes.wipe_write("box") == 2
    assert perms(routes, "own") == {"box": 4}
    assert perms(routes, "TBW102") == {"box": 5}
    topics.version = TopicTableVersion(2, 2)
    assert perms(routes, "own") == {"box": 6}


def test_a_deleted_topic_is_gone_for_one_cluster_or_for_all() -> None:
    topics = OwnTopics()
    topics.rows["T"] = BrokerQueues("box", 4, 4, 6)
    routes = RouteTable(topics.broker())
    routes.register(told(), 1, 0.0)
    routes.delete_topic("T", "nowhere")
    assert set(perms(routes, "T")) == {"box", "broker-a"}
    routes.delete_topic("T", "DefaultCluster")
    assert set(perms(routes, "T")) == {"box"}
    routes.delete_topic("T")
    assert routes.route("T", "x:1") is None
    topics.version = TopicTableVersion(2, 2)
    assert set(perms(routes, "T")) == {"box"}


def test_lists_name_topics_by_cluster_by_flag_and_hide_the_probe() -> None:
    topics = OwnTopics()
    topics.rows["RBX_PROBE"] = BrokerQueues("box", 1, 1, 6)
    routes = RouteTable(topics.broker())
    flagged = {"unit": BrokerQueues("broker-a", 4, 4, 6, 1), "sub": BrokerQueues("broker-a", 4, 4, 6, 2)}
    routes.register(told(topics=flagged), 1, 0.0)
    assert routes.topics() == ["own", "TBW102", "unit", "sub"]
    assert routes.topics_of_cluster("DefaultCluster") == ["unit", "sub"]
    assert routes.topics_of_cluster("nowhere") == []
    assert routes.topics_with_flags(1) == ["unit"]
    assert routes.topics_with_flags(2, unwanted=1) == ["sub"]
    assert routes.system_topics() == ["Edge", "box", "DefaultCluster", "broker-a"]


def test_a_broker_that_moves_to_another_cluster_is_listed_in_both() -> None:
    routes = table()
    routes.register(told(), 1, 0.0)
    routes.register(told(cluster="Other", version=V1), 1, 0.0)
    assert routes.clusters() == {"Edge": ["box"], "DefaultCluster": ["broker-a"], "Other": ["broker-a"]}
    route = routes.route("T", "x:1")
    assert route is not None
    assert route.brokers[0].cluster == "DefaultCluster"


def test_filter_servers_are_kept_replaced_and_removed() -> None:
    routes = table()
    routes.register(told(filter_servers=["f:1"]), 1, 0.0)
    routes.register(told(), 1, 0.0)
    first = routes.route("T", "x:1")
    assert first is not None
    assert first.filter_servers == {"10.0.0.1:10911": ["f:1"]}
    routes.register(told(filter_servers=[]), 1, 0.0)
    second = routes.route("T", "x:1")
    assert second is not None
    assert second.filter_servers == {}


def test_strangers_cannot_grow_the_table_without_end() -> None:
    routes = table()
    for number in range(256):
        routes.register(told(name=f"b{number}", address=f"h:{number}", topics={}), 1, 0.0)
    assert routes.is_full_for(told("one-more", topics={}))
    assert not routes.is_full_for(told("b3", topics={}))
    many = {f"t{number}": BrokerQueues("b3", 1, 1, 6) for number in range(100_001)}
    assert routes.is_full_for(told("b3", topics=many))
    for number in range(1023):
        routes.register(told("b3", number + 10, address=f"a{number}:1", topics={}, cluster=f"c{number % 9}"), 1, 0.0)
    assert routes.is_full_for(told("b3", 5, address="one-more:1", topics={}))
    assert not routes.is_full_for(told("b3", 5, address="a7:1", topics={}))


def test_one_broker_cannot_name_clusters_without_end_and_a_deletion_of_nothing_leaves_nothing() -> None:
    routes = table()
    for number in range(256):
        routes.register(told(cluster=f"cluster{number}"), 1, 0.0)
    assert routes.is_full_for(told(cluster="one-more"))
    assert not routes.is_full_for(told(cluster="cluster7"))
    routes.delete_topic("nobody knows it")
    assert not routes._overlay.deleted


def test_a_connection_is_watched_once_however_often_it_registers() -> None:
    routes = table()
    assert routes.new_channel(1)
    routes.register(told(), 1, 0.0)
    routes.unregister("broker-a", "10.0.0.1:10911", 0)
    assert not routes.new_channel(1)
    routes.channel_closed(1)
    assert routes.new_channel(1)


def test_the_queues_of_a_topic_are_those_of_all_brokers_and_no_number_a_stranger_tells_is_believed() -> None:
    routes = table()
    rows = {"own": BrokerQueues("broker-a", 1 << 31, 1, 6), "T": BrokerQueues("broker-a", 3, 1, 6)}
    routes.register(told(topics=rows), 1, 0.0)
    for number in range(1, 4):
        row = BrokerQueues(f"stranger-{number}", 1 << 31, 1, 6)
        routes.register(told(row.broker_name, address=f"10.0.1.{number}:10911", topics={"own": row}), 1 + number, 0.0)
    assert [(queue.broker_name, queue.queue_id) for queue in routes.readable("T")] == [
        ("broker-a", n) for n in range(3)
    ]
    found = routes.readable("own")
    assert [queue.queue_id for queue in found if queue.broker_name == "box"] == [0, 1, 2, 3]
    assert len(found) == MOST
    routes.register(told(topics={"T": BrokerQueues("broker-a", 3, 1, WRITE)}, version=V1), 1, 0.0)
    assert routes.readable("T") == []
