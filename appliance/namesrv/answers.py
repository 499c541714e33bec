"""The bodies of the NameServer's answers, byte for byte as clients cut them apart.

Compact, keys in alphabetical order, broker ids quoted. Source: RocketMQ 4.9.8 TopicRouteData, ClusterInfo, TopicList.
"""

from collections.abc import Iterable, Mapping, Sequence

from netstack.wire import fastjson

from .route_table import BrokerQueues, BrokerRow, Route


def route_body(route: Route, order_conf: str | None = None) -> bytes:
    """Return the body of 105; order_conf like `broker-a:4;broker-b:4` makes clients take their queues from it alone."""
    fields: dict[str, object] = {
        "brokerDatas": [_broker(row) for row in route.brokers],
        "filterServerTable": route.filter_servers,
    }
    if order_conf:
        fields["orderTopicConf"] = order_conf
    fields["queueDatas"] = [_queues(row) for row in route.queues]
    return fastjson.dumps(fields)


def cluster_body(brokers: Iterable[BrokerRow], clusters: Mapping[str, Sequence[str]]) -> bytes:
    """Return the body of 106."""
    return fastjson.dumps(
        {"brokerAddrTable": {row.name: _broker(row) for row in brokers}, "clusterAddrTable": clusters}
    )


def topic_list_body(names: Sequence[str], broker_address: str | None = None) -> bytes:
    fields: dict[str, object] = {} if broker_address is None else {"brokerAddr": broker_address}
    return fastjson.dumps(fields | {"topicList": names})


def table_body(entries: Mapping[str, str]) -> bytes:
    return fastjson.dumps({"table": entries})


def _broker(row: BrokerRow) -> dict[str, object]:
    return {
        "brokerAddrs": {str(broker_id): address for broker_id, address in sorted(row.addresses.items())},
        "brokerName": row.name,
        "cluster": row.cluster,
        "enableActingMaster": False,  # required by Rust clients
    }


def _queues(row: BrokerQueues) -> dict[str, object]:
    return {
        "brokerName": row.broker_name,
        "perm": row.perm,
        "readQueueNums": row.read_queues,
        "topicSysFlag": row.sys_flag,
        "writeQueueNums": row.write_queues,
    }
