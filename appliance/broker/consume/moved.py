"""OFFSET_MOVED_EVENT: a message that tells operators that a group's offset had to be corrected.

A consumer that keeps asking for a wrong offset leaves one event a second at most, not one per pull.
Source: RocketMQ 4.9.8 PullMessageProcessor.generateOffsetMovedEvent.
"""

import time
from collections.abc import Callable

import trio

from appliance.broker.intake import Intake, MessageDraft
from appliance.broker.tables.topics import OFFSET_MOVED_TOPIC
from netstack.errors import Refused
from netstack.wire import fastjson
from storage_driver.record import MessageQueue, encode_host

EVERY_S = 1.0
REMEMBERED = 4096
_NOBODY = encode_host("127.0.0.1", 0)


class MovedEvents:
    """Stores one event per group and queue and second."""

    def __init__(
        self, intake: Intake, broker: str, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._intake, self._broker, self._now_ms = intake, broker, now_ms
        self._last_s: dict[tuple[str, MessageQueue], float] = {}

    def note(self, group: str, queue: MessageQueue, asked: int, corrected: int) -> None:
        """Store an event; a full or failed disk does not affect the consumer."""
        now_s = trio.current_time()
        if now_s - self._last_s.get((group, queue), -EVERY_S) < EVERY_S:
            return
        if len(self._last_s) >= REMEMBERED:
            self._last_s.clear()
        self._last_s[group, queue] = now_s
        named = {"brokerName": self._broker, "queueId": queue.queue_id, "topic": queue.topic}
        body = {"consumerGroup": group, "messageQueue": named, "offsetNew": corrected, "offsetRequest": asked}
        properties = {"TAGS": group, "KEYS": group}
        draft = MessageDraft(OFFSET_MOVED_TOPIC, 0, fastjson.dumps(body), properties, 0, 0, self._now_ms(), _NOBODY)
        try:
            self._intake.put(draft)
        except Refused:
            return
