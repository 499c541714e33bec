"""Messages that the broker stores a second time: delayed ones that are due, committed halves, check-backs."""

import logging
from collections.abc import Callable, Iterable, Iterator

import trio

from appliance.broker.intake import MessageDraft
from storage_driver.errors import Busy, Full, LogFailed
from storage_driver.interfaces import MarkedAppending
from storage_driver.record import Message, StoredMessage, decode_record
from storage_driver.statistics import AppendResult

log = logging.getLogger("appliance.broker")

REAL_TOPIC, REAL_QUEUE = "REAL_TOPIC", "REAL_QID"
MakeTopic = Callable[[str, int], object]
"""Told of the topic and the queue of a message that rested: it may be gone since."""
RETRY_S = 1.0
BUSY_S = 0.1  # a sync takes long: it ends by itself


def without_topic(name: str, queue_id: int) -> None:
    """Make none."""


def draft_of(stored: StoredMessage) -> MessageDraft:
    """Return a draft that would store this message again, in the same place and with the same properties."""
    return MessageDraft(
        stored.topic,
        stored.queue_id,
        stored.body,
        stored.property_map,
        stored.flag,
        stored.sys_flag,
        stored.born_ms,
        stored.born_host,
        stored.reconsume_times,
        stored.prepared_offset,
    )


def park(draft: MessageDraft, topic: str, queue_id: int) -> None:
    """Send a draft to another topic first; it remembers where it belongs."""
    draft.properties[REAL_TOPIC], draft.properties[REAL_QUEUE] = draft.topic, str(draft.queue_id)
    draft.topic, draft.queue_id = topic, queue_id


def unpark(draft: MessageDraft) -> bool:
    """Point a draft at the topic it belongs to; False when its properties do not say."""
    topic, queue_id = draft.properties.get(REAL_TOPIC), draft.properties.get(REAL_QUEUE, "")
    if topic is None or not queue_id.isdecimal():
        return False
    draft.topic, draft.queue_id = topic, int(queue_id)
    return True


def records_in(chunks: Iterable[bytes]) -> Iterator[StoredMessage]:
    """Return the messages in pieces of whole records."""
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            stored = decode_record(chunk, at, check_crc=False)
            yield stored
            at += stored.size


async def put_patiently(store: MarkedAppending, message: Message) -> AppendResult:
    """Store a message, waiting while the disk is full or slow. Raises LogFailed, MessageIllegal."""
    while True:
        try:
            return store.put(message, own=True)
        except Busy:
            await trio.sleep(BUSY_S)
        except Full:
            await trio.sleep(RETRY_S)


async def wait_kept(store: MarkedAppending, end: int, since: int) -> None:
    """Return once copies are durable up to a mark; `since` is store.truncations from before the first of them.

    Between two copies there may be a wait for space, and the log may take the earlier one back meanwhile. Raises
    LogFailed: then all of them are to be stored again.
    """
    if store.truncations != since:
        raise LogFailed("the disk is full, the copies were undone")
    await store.wait_committed(end)


async def rest_after(failure: LogFailed, what: str, store: MarkedAppending) -> None:
    """Wait a moment when the log only took back what found no space; stand still until cancelled when it is sealed."""
    if store.failure is None:
        await trio.sleep(RETRY_S)
    else:
        log.error("event=%s_stopped reason=%r", what, failure.reason)
        await trio.sleep_forever()


async def rest_after_read(failure: OSError, what: str) -> None:
    """Wait a moment after a read that failed: the store gives a record up that the disk does not give back."""
    log.error("event=%s_waits reason=%r", what, str(failure))
    await trio.sleep(RETRY_S)
