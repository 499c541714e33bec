"""The metrics of topics, groups and clients: bounded, in a stable order, so that series neither flap nor pile up.

The first topics of the table have series, those made later than the bound have none; a deleted topic's end with it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import trio

from appliance.box_view import BoxView
from appliance.broker.admin.stats import TrafficCounts
from appliance.broker.tables.clients import Member
from appliance.broker.tables.topics import DEAD_PREFIX, RETRY_PREFIX
from appliance.device.probe import PROBE_TOPIC
from appliance.health.condition_watch import is_watched
from appliance.health.lag import Ages, lag_of
from appliance.metrics.families import FAMILIES, MOST_GROUPS, MOST_PAIRS, MOST_TOPICS
from netstack.wire.versions import version_name
from storage_driver.record import MessageQueue, stored_ms_of

if TYPE_CHECKING:
    from uplink_spark.box.shipper import Uplink

PER_BREATH, NAMES_PER_BREATH = 50, 1000


class Add(Protocol):
    def __call__(self, name: str, value: float, /, **labels: str) -> None: ...


async def read_topics(watched: BoxView, ages: Ages, add: Add) -> dict[str, int]:
    """Add the series of topics, groups and clients; return how many topics and pairs have none."""
    tables = watched.tables
    add("rocketmq_broker_permission", watched.config.broker.permission)
    add("rocketmq_topic_number", len(tables.topics))
    add("rocketmq_consumer_group_number", len(tables.groups))
    names = [topic.name for topic in tables.topics.all()]
    counts = tables.stats.counts()
    for number, topic in enumerate(names[:MOST_TOPICS]):
        messages, size = counts.put.get(topic, (0, 0))
        labels = {"topic": topic, "is_system": _flag(is_system(watched, topic))}
        add("rocketmq_messages_in_total", messages, **labels)
        add("rocketmq_throughput_in_total", size, **labels)
        if number % PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
    pairs, more = await _pairs(watched, counts)
    ages.looks = 0
    for number, (topic, group) in enumerate(pairs):
        await _pair(watched, ages, add, (topic, group), counts.got.get((topic, group), (0, 0)))
        if number % PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
    _dead_letters(watched, add, names)
    await _clients(watched, add)
    await _oldest(watched, add)
    return {"topics": max(0, len(names) - MOST_TOPICS), "pairs": more}


def is_system(watched: BoxView, topic: str) -> bool:
    """Tell whether a topic is not an application's."""
    return topic == PROBE_TOPIC or watched.tables.topics.is_system(topic)


def _flag(value: bool) -> str:
    return "true" if value else "false"


async def _pairs(watched: BoxView, counts: TrafficCounts) -> tuple[list[tuple[str, str]], int]:
    """Return topic and group of the first that have offsets, or pulled without any, and how many more there are."""
    tables, found, more = watched.tables, list[tuple[str, str]](), 0
    names = tables.offsets.table()
    pulled = (f"{topic}@{group}" for topic, group in counts.got)
    for number, name in enumerate([*names, *(name for name in pulled if name not in names)]):
        if number % NAMES_PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
        topic, _, group = name.partition("@")
        if tables.topics.get(topic) is None:
            continue
        if len(found) < MOST_PAIRS:
            found.append((topic, group))
        else:
            more += 1
    return found, more


async def _pair(watched: BoxView, ages: Ages, add: Add, pair: tuple[str, str], got: tuple[int, int]) -> None:
    topic, group = pair
    retry = topic.startswith(RETRY_PREFIX)
    labels = {
        "topic": topic,
        "consumer_group": group,
        "is_retry": _flag(retry),
        "is_system": _flag(is_system(watched, topic)),
    }
    add("rocketmq_messages_out_total", got[0], **labels)
    add("rocketmq_throughput_out_total", got[1], **labels)
    lag = lag_of(watched, group, topic)
    add("rocketmq_consumer_lag_messages", lag.messages, **labels)
    oldest_ms = await ages.oldest_ms(lag.at) if lag.at else watched.now_ms()
    if oldest_ms is not None:
        add("rocketmq_consumer_lag_latency_milliseconds", max(0, watched.now_ms() - oldest_ms), **labels)


def _dead_letters(watched: BoxView, add: Add, names: list[str]) -> None:
    """Add all there ever were, by group; 0 for a group without any, so that a rule sees the first."""
    dead = [name.removeprefix(DEAD_PREFIX) for name in names if name.startswith(DEAD_PREFIX)]
    others = [group.name for group in watched.tables.groups.all() if is_watched(group.name)]
    for group in list(dict.fromkeys(dead + others))[:MOST_GROUPS]:
        topic = DEAD_PREFIX + group
        total = sum(watched.store.max_offset(MessageQueue(topic, queue_id)) for queue_id in watched.store.queues(topic))
        add("rocketmq_send_to_dlq_messages_total", total, consumer_group=group)


async def _clients(watched: BoxView, add: Add) -> None:
    clients = watched.tables.clients
    producers: Counter[tuple[str, str, str]] = Counter()
    for number, name in enumerate(clients.producer_groups()):
        if number % NAMES_PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
        producers.update(map(_library, clients.producers(name).values()))
    for (language, version, protocol), count in producers.most_common(FAMILIES["rocketmq_producer_connections"].most):
        labels = {"language": language, "version": version, "protocol_type": protocol}
        add("rocketmq_producer_connections", count, **labels)
    for name in sorted(clients.consumer_groups())[:MOST_GROUPS]:
        group = clients.consumers(name)
        if group is None:
            continue
        kinds = Counter(map(_library, group.members.values()))
        mode = "push" if group.consume_type == "CONSUME_PASSIVELY" else "pull"
        for (language, version, protocol), count in kinds.most_common(2):
            labels = {"language": language, "version": version, "protocol_type": protocol}
            add("rocketmq_consumer_connections", count, consumer_group=name, consume_mode=mode, **labels)


def _library(member: Member) -> tuple[str, str, str]:
    return member.language.lower(), version_name(member.version), member.protocol


async def _oldest(watched: BoxView, add: Add) -> None:
    age_ms = await age_of(watched, watched.store.first)
    if age_ms is not None:
        labels = {"storage_type": "local", "storage_medium": "disk"}
        add("rocketmq_storage_message_reserve_time_milliseconds", age_ms, **labels)


async def age_of(watched: BoxView, log_offset: int) -> int | None:
    """Return how many ms ago the record at a log offset was stored, None when none begins there."""
    record = await watched.store.record_at(log_offset) if log_offset < watched.store.committed else None
    return max(0, watched.now_ms() - stored_ms_of(record)) if record is not None else None


async def oldest_unshipped_s(watched: BoxView, uplink: Uplink) -> float:
    """Return the age of the oldest message without a receipt.

    Where the hole begins inside a record: for how long the uplink has seen it wait.
    """
    holes = uplink.shipper.state.ledger.unshipped(watched.store.first, watched.store.committed)
    age_ms = await age_of(watched, holes[0][0]) if holes else None
    return uplink.statistics().oldest_unshipped_s if age_ms is None else age_ms / 1000
