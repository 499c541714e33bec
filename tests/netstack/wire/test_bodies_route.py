"""NameServer bodies: the exact route text, registrations of every age, properties text."""

import pytest

from netstack.wire.bodies_route import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    KvTable,
    QueueData,
    RegisterBrokerBody,
    RouteData,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    properties_text,
    read_properties,
)
from netstack.wire.json_body import Body

VERSION = '{"counter":0,"timestamp":1700000000000}'
TOPIC_TEXT = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
    '"writeQueueNums":4}'
)
ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
    '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
    '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
CLUSTER = (
    '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"1.2.3.4:10911"},"brokerName":"broker-a","cluster":'
    '"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)
BROKER = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"})
QUEUES = (QueueData("broker-a", 4, 4),)
GOLDEN: list[tuple[Body, str]] = [
    (RouteData(QUEUES, (BROKER,)), ROUTE),
    (
        ClusterInfo(
            {"broker-a": BrokerData("DefaultCluster", "broker-a", {0: "1.2.3.4:10911"})},
            {"DefaultCluster": ("broker-a",)},
        ),
        CLUSTER,
    ),
    (TopicList(("A", "B")), '{"topicList":["A","B"]}'),
    (TopicList(("A",), "1.2.3.4:10911"), '{"brokerAddr":"1.2.3.4:10911","topicList":["A"]}'),
    (KvTable({"k": "v"}), '{"table":{"k":"v"}}'),
    (
        TopicConfigTable({"T": TopicConfig("T", 4, 4)}, DataVersion(0, 1700000000000)),
        f'{{"dataVersion":{VERSION},"topicConfigTable":{{"T":{TOPIC_TEXT}}}}}',
    ),
]


@pytest.mark.parametrize(("body", "text"), GOLDEN)
def test_bodies_are_written_as_java_reads_them(body: Body, text: str) -> None:
    assert body.to_bytes().decode() == text
    assert type(body).from_bytes(text.encode()) == body


def test_an_order_configuration_stands_between_servers_and_queues() -> None:
    text = RouteData(QUEUES, (BROKER,), order_topic_conf="broker-a:4").to_bytes().decode()
    assert '"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[' in text


def test_a_route_with_unquoted_ids_as_java_sends_it_is_read() -> None:
    text = ROUTE.replace('"0":', "0:").replace('"127.0.0.1:10911"', '"127.0.0.1:10911",1:"127.0.0.1:20911"')
    read = RouteData.from_bytes(text.encode())
    assert read.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:20911"}


def test_go_finds_the_addresses_by_cutting_the_text() -> None:
    text = RouteData(QUEUES, (BrokerData("C", "b", {0: "1.1.1.1:1", 1: "2.2.2.2:2"}),)).to_bytes().decode()
    cut = text[text.index('"brokerAddrs":{') + len('"brokerAddrs":{') :].partition("}")[0]
    found = {int(part.partition(":")[0].strip('"')): part.partition(":")[2].strip('"') for part in cut.split(",")}
    assert found == {0: "1.1.1.1:1", 1: "2.2.2.2:2"}


def test_a_registration_is_read_with_what_5x_adds() -> None:
    text = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":'
        b'1795203844236},"mappingDataVersion":{},"topicConfigTable":{"T":{"attributes":{},"order":true,"perm":7,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":2,"writeQueueNums":8}},'
        b'"topicQueueMappingInfoMap":{}}}'
    )
    body = RegisterBrokerBody.from_bytes(text)
    assert body.topics.data_version == DataVersion(3, 1795203844236, 1)
    assert body.topics.topic_config_table == {"T": TopicConfig("T", 4, 8, 7, "SINGLE_TAG", 2, True, {})}
    assert body.filter_server_list == ()
    assert RegisterBrokerBody.from_bytes(b'{"filterServerList":null}').filter_server_list is None


def test_a_repeated_object_behind_a_reference_is_found() -> None:
    references = '"B":{"$ref":"$.topicConfigTable.A"},"C":{"$ref":"$.nowhere"}'
    text = f'{{"topicConfigTable":{{"A":{TOPIC_TEXT},{references}}}}}'
    table = TopicConfigTable.from_bytes(text.encode()).topic_config_table
    assert table["A"] == table["B"]
    assert "C" not in table


def test_data_versions_of_4x_and_5x_compare_by_what_both_have() -> None:
    assert DataVersion(1, 2).same_as(DataVersion(1, 2, 0))
    assert not DataVersion(1, 2).same_as(DataVersion(1, 2, 1))


def test_properties_text_survives_itself() -> None:
    text = properties_text({"brokerName": "broker-a", "path": "C:\\x", "n": 3})
    assert text == b"brokerName=broker-a\npath=C:\\\\x\nn=3\n"
    assert read_properties(b"#c\n\n" + text) == {"brokerName": "broker-a", "path": "C:\\x", "n": "3"}
