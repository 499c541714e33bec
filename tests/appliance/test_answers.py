"""The NameServer's answers, byte for byte."""

from appliance.namesrv.answers import cluster_body, route_body, table_body, topic_list_body
from appliance.namesrv.route_table import BrokerQueues, BrokerRow, Route

BROKER = BrokerRow("C", "box", {1: "h:2", 0: "h:1"})


def test_keys_are_in_alphabetical_order_and_broker_ids_are_quoted() -> None:
    route = Route([BROKER], [BrokerQueues("box", 4, 3, 6, 0)], {})
    broker = b'{"brokerAddrs":{"0":"h:1","1":"h:2"},"brokerName":"box","cluster":"C","enableActingMaster":false}'
    queues = b'{"brokerName":"box","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":3}'
    assert route_body(route) == b'{"brokerDatas":[%b],"filterServerTable":{},"queueDatas":[%b]}' % (broker, queues)
    assert b'"orderTopicConf":"box:4","queueDatas"' in route_body(route, "box:4")
    table = b'{"brokerAddrTable":{"box":%b},"clusterAddrTable":{"C":["box"]}}'
    assert cluster_body([BROKER], {"C": ["box"]}) == table % broker


def test_lists_and_tables() -> None:
    assert topic_list_body(["T"]) == b'{"topicList":["T"]}'
    assert topic_list_body(["T"], "h:1") == b'{"brokerAddr":"h:1","topicList":["T"]}'
    assert table_body({"k": "v"}) == b'{"table":{"k":"v"}}'
