"""One topic or one group with its queues, as values for their templates."""

from __future__ import annotations

from itertools import islice
from typing import Any

import trio

from appliance.box_view import BoxView
from appliance.broker.tables.offsets import NOT_STORED
from appliance.health.lag import Ages, lag_of
from storage_driver.record import MessageQueue

MOST_QUEUES = 200
MOST_SHOWN = 500  # members, places, subscriptions of a group
Row = dict[str, Any]


async def topic_values(watched: BoxView, name: str) -> Row | None:
    """Return a topic's queues and the groups that read it, None when there is no such topic."""
    topic = watched.tables.topics.get(name)
    if topic is None:
        return None
    store, queues = watched.store, []
    for queue_id in range(min(topic.queue_count, MOST_QUEUES)):
        queue = MessageQueue(name, queue_id)
        low, high = store.min_offset(queue), store.max_offset(queue)
        last_ms = await store.stored_ms_at(queue, high - 1) if high > low else None
        queues.append({"id": queue_id, "low": low, "high": high, "last_ms": last_ms})
    groups = []
    for group in watched.tables.offsets.groups_of(name)[:MOST_QUEUES]:
        online = watched.tables.clients.consumers(group)
        lag = lag_of(watched, group, name)
        groups.append({"name": group, "lag": lag.messages, "members": len(online.members) if online else 0})
    rate = watched.tables.stats.put_tps(name)
    return {"topic": topic, "queues": queues, "groups": groups, "rate": rate, "held": _held(queues)}


def _held(queues: list[Row]) -> int:
    return sum(queue["high"] - queue["low"] for queue in queues)


async def group_values(watched: BoxView, name: str) -> Row | None:
    """Return a group's members, subscriptions and place in each queue, None when nothing is known of it."""
    tables = watched.tables
    online, topics = tables.clients.consumers(name), tables.offsets.topics_of(name)
    if online is None and not topics and tables.groups.get(name) is None:
        return None
    members = []
    if online:
        for peer, member in islice(online.members.items(), MOST_SHOWN):
            seen_s = max(0.0, (watched.now_ms() - member.seen_ms) / 1000)
            address = f"{peer.remote[0]}:{peer.remote[1]}"
            members.append({"id": member.client_id, "address": address, "language": member.language, "seen_s": seen_s})
    places, more = await _places(watched, name, sorted(topics))
    subscriptions = sorted(online.subscriptions.values(), key=lambda each: each.topic) if online else []
    return {
        "group": name,
        "online": online,
        "members": members,
        "places": places,
        "more_places": more,
        "subscriptions": subscriptions[:MOST_SHOWN],
        "topics": sorted(topics)[:MOST_QUEUES],
    }


async def _places(watched: BoxView, group: str, topics: list[str]) -> tuple[list[Row], int]:
    """Return where a group stands in its first queues, and on how many topics it has more."""
    ages, found = Ages(watched.store), list[Row]()
    for number, topic in enumerate(topics):
        if len(found) >= MOST_SHOWN:
            return found, len(topics) - number
        for queue_id, offset in sorted(watched.tables.offsets.of(topic, group).items())[:MOST_QUEUES]:
            found.append(await _place(watched, ages, MessageQueue(topic, queue_id), offset))
        await trio.lowlevel.checkpoint()
    return found, 0


async def _place(watched: BoxView, ages: Ages, queue: MessageQueue, offset: int) -> Row:
    high = watched.store.max_offset(queue)
    first = max(offset, watched.store.min_offset(queue))
    behind = max(0, high - first) if offset != NOT_STORED else 0
    oldest_ms = await ages.oldest_ms([(queue, first)]) if behind else None
    age_s = (watched.now_ms() - oldest_ms) / 1000 if oldest_ms is not None else None
    return {"queue": queue, "offset": offset, "high": high, "behind": behind, "age_s": age_s}
