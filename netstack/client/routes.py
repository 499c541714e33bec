"""A route for a producer and for a consumer.

Source: RocketMQ 4.9.8 MQClientInstance.topicRouteData2TopicPublishInfo.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from netstack.client.text import code_units
from netstack.wire.bodies_route import QueueData, RouteData
from netstack.wire.json_body import MessageQueue

READABLE, WRITABLE = 4, 2
TEMPLATE_TOPIC = "TBW102"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of one topic that can be written and read, and where their brokers are; equal when nothing changed."""

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    ordered: bool = False

    def write_queues(self, broker_name: str) -> int:
        return sum(queue.broker_name == broker_name for queue in self.publish)


def topic_route(topic: str, route: RouteData) -> TopicRoute:
    """Return what the NameServer's answer means for this topic."""
    brokers = {each.broker_name: dict(each.broker_addrs) for each in route.broker_datas}
    rows = sorted(route.queue_datas, key=lambda row: code_units(row.broker_name))
    ordered = _ordered(topic, route.order_topic_conf)
    publish = ordered or tuple(
        MessageQueue(topic, row.broker_name, number)
        for row in rows
        if row.perm & WRITABLE and 0 in brokers.get(row.broker_name, {})
        for number in range(row.write_queue_count)
    )
    subscribe = tuple(
        MessageQueue(topic, row.broker_name, number)
        for row in rows
        if row.perm & READABLE
        for number in range(row.read_queue_count)
    )
    return TopicRoute(topic, publish, subscribe, brokers, bool(ordered))


def _ordered(topic: str, conf: str | None) -> tuple[MessageQueue, ...]:
    """Return the queues an order configuration names: `brokerA:4;brokerB:8`."""
    found = []
    for part in (conf or "").split(";"):
        name, mark, count = part.partition(":")
        if mark and count.strip().isdecimal():
            found += [MessageQueue(topic, name, number) for number in range(int(count))]
    return tuple(found)


def from_template(topic: str, route: RouteData, queue_count: int) -> TopicRoute:
    """Return the route that an unknown topic will have once its first message has made it."""
    rows = []
    for row in route.queue_datas:
        count = min(queue_count, row.read_queue_count)
        rows.append(QueueData(row.broker_name, count, count, row.perm, row.topic_sys_flag))
    return topic_route(topic, RouteData(tuple(rows), route.broker_datas))


def publish_address(brokers: Mapping[str, Mapping[int, str]], broker_name: str) -> str | None:
    """Return where to send: the master or nothing."""
    return brokers.get(broker_name, {}).get(0)


def subscribe_address(
    brokers: Mapping[str, Mapping[int, str]], broker_name: str, wanted_id: int = 0
) -> tuple[str, bool] | None:
    """Return where to pull and whether that is a slave: the wanted one, the next, any."""
    addresses = brokers.get(broker_name, {})
    found_id = wanted_id
    if found_id not in addresses and wanted_id:
        found_id += 1
    if found_id not in addresses:
        found_id = next(iter(addresses), -1)
    return (addresses[found_id], found_id != 0) if found_id in addresses else None


def any_address(brokers: Mapping[str, Mapping[int, str]], broker_name: str) -> str | None:
    """Return where to ask about offsets and members: the master if known, else any."""
    found = subscribe_address(brokers, broker_name)
    return found[0] if found else None
