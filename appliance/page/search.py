"""Finds messages by id, key or time for the page, and sets one out for reading."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from appliance.box_view import BoxView
from appliance.broker.delay.redelivery import records_in
from appliance.page import words
from storage_driver.errors import RecordDamaged
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue, StoredMessage, decode_host, decode_record, parse_message_id

MOST_FOUND = 50
MOST_TOPICS, MOST_QUEUES = 200, 256  # looked through: topics when none is named, queues of one
READ_BYTES, LEAST_BYTES = 16 << 20, 64 << 10  # of all queues together, of one
START_BYTES = 200  # of a body, in a list
FOREVER_MS = 1 << 62
COMPRESSED = 1  # in sys_flag
Row = dict[str, Any]
INTERNAL = ("MIN_OFFSET", "MAX_OFFSET")


class SearchQuery(NamedTuple):
    """What somebody looks for; empty fields do not count."""

    topic: str = ""
    key: str = ""
    id: str = ""
    time: str = ""

    @property
    def empty(self) -> bool:
        return not any(self)


class SearchResult(NamedTuple):
    """The messages found, newest first except for a search by time, and a sentence about the search."""

    messages: list[Row]
    said: str


async def search(watched: BoxView, wanted: SearchQuery) -> SearchResult:
    """Return what was found; every kind of search is bounded."""
    topics = watched.tables.topics
    if wanted.topic and topics.get(wanted.topic) is None:
        return SearchResult([], f"there is no topic {wanted.topic}")
    if wanted.id:
        return await _by_id(watched, wanted)
    if wanted.key:
        found = await _by_key(watched, wanted.topic, wanted.key)
        return _outcome(found, f"with the key {wanted.key}")
    if wanted.topic:
        return await _by_time(watched, wanted)
    return SearchResult([], "name a topic, a key or a message id")


class BestRows:
    """The rows of the best messages among those looked at: what is kept of one is some hundred bytes."""

    def __init__(self, *, oldest: bool = False) -> None:
        self._heap: list[tuple[tuple[int, int, int], Row]] = []  # the worst first
        self._oldest, self._count = oldest, 0

    def add(self, message: StoredMessage) -> None:
        """Take a message: the newest in the log are the best, or the oldest by their time."""
        self._count += 1  # one message may be found twice, by a key that it has twice
        place = (-message.stored_ms, -message.log_offset) if self._oldest else (message.log_offset, 0)
        rank = (*place, self._count)
        if len(self._heap) < MOST_FOUND:
            heapq.heappush(self._heap, (rank, summary(message)))
        elif rank > self._heap[0][0]:
            heapq.heapreplace(self._heap, (rank, summary(message)))

    def __len__(self) -> int:
        return len(self._heap)

    def rows(self) -> list[Row]:
        """Return them, the best first."""
        return [row for _, row in sorted(self._heap, key=itemgetter(0), reverse=True)]


def _outcome(found: BestRows, what: str) -> SearchResult:
    rows = found.rows()
    return SearchResult(
        rows, f"{len(rows)} message{'' if len(rows) == 1 else 's'} {what}" if rows else f"nothing {what}"
    )


async def _by_id(watched: BoxView, wanted: SearchQuery) -> SearchResult:
    """Ids of both kinds look alike: try the place in the log first, then the id that the client made."""
    identity = wanted.id.strip()
    message = await at_place(watched, identity)
    if message is not None:
        found = BestRows()
        found.add(message)
        return _outcome(found, f"with the id {identity}")
    return _outcome(await _by_key(watched, wanted.topic, identity), f"with the id {identity}")


async def at_place(watched: BoxView, identity: str) -> StoredMessage | None:
    """Return the message whose offset id this is."""
    try:
        _, log_offset = parse_message_id(identity)
    except ValueError:
        return None
    record = await watched.store.record_at(log_offset) if 0 <= log_offset < watched.store.committed else None
    try:
        message = decode_record(record, 0) if record else None
    except RecordDamaged:
        return None
    return message if message is not None and message.message_id == identity.upper() else None


async def _by_key(watched: BoxView, topic: str, key: str) -> BestRows:
    names = [topic] if topic else [each.name for each in watched.tables.topics.all()][:MOST_TOPICS]
    found = BestRows()
    for name in names:
        for record in await watched.store.find_by_key(name, key.strip(), MOST_FOUND, 0, FOREVER_MS):
            found.add(decode_record(record, 0))
        if len(found) >= MOST_FOUND:
            break
    return found


async def _by_time(watched: BoxView, wanted: SearchQuery) -> SearchResult:
    """Return the first messages of a topic from a moment on, or its newest ones."""
    if not wanted.time:
        queues = _queues(watched, wanted.topic)
        return _outcome(await _newest(watched, queues), f"in {wanted.topic}, the newest first{_of(queues)}")
    try:
        since_ms = time_ms(wanted.time)
    except ValueError:
        return SearchResult([], f"{wanted.time} is not a time: write 2026-03-02 10:11 (UTC)")
    found, queues = BestRows(oldest=True), _queues(watched, wanted.topic)
    for queue in queues:
        first = await watched.store.offset_by_time(queue, since_ms, boundary="lower")
        for message in await _read(watched, queue, first, len(queues)):
            if message.stored_ms >= since_ms:
                found.add(message)
    said = f"stored in {wanted.topic} from {words.moment(since_ms)} on{_of(queues)}"
    rows = found.rows()
    return SearchResult(rows, f"the first {len(rows)} {said}" if rows else f"nothing {said}")


def time_ms(text: str) -> int:
    """Return a time as it is written into a form, in UTC unless it says another zone. Raises ValueError."""
    read = datetime.fromisoformat(text.strip())
    try:
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)
    except OverflowError as exc:  # a zone before the year 1
        raise ValueError(text) from exc


def _queues(watched: BoxView, topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, queue_id) for queue_id in watched.store.queues(topic)[:MOST_QUEUES]]


def _of(queues: Sequence[MessageQueue]) -> str:
    return f" (of its first {MOST_QUEUES} queues)" if len(queues) == MOST_QUEUES else ""


async def _newest(watched: BoxView, queues: Sequence[MessageQueue]) -> BestRows:
    found = BestRows()
    for queue in queues:
        low, high = watched.store.min_offset(queue), watched.store.max_offset(queue)
        for message in await _read(watched, queue, max(low, high - MOST_FOUND), len(queues)):
            found.add(message)
    return found


async def _read(watched: BoxView, queue: MessageQueue, first: int, queues: int) -> list[StoredMessage]:
    """Return messages of one of so many queues."""
    most = max(LEAST_BYTES, READ_BYTES // queues)
    return list(records_in((await watched.store.read(queue, first, max_count=MOST_FOUND, max_bytes=most)).chunks))


def summary(message: StoredMessage) -> Row:
    """Return a message as a row of a list."""
    properties = message.property_map
    body = readable(message)
    kind, text = words.body_text(body, START_BYTES)
    return {
        "at": message.message_id,
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored": words.moment(message.stored_ms),
        "keys": properties.get("KEYS", ""),
        "tags": properties.get("TAGS", ""),
        "bytes": len(message.body),
        "start": text.split("  ")[1] if kind == "bytes" else body[:START_BYTES].decode(errors="ignore"),
    }


def setting_out(message: StoredMessage) -> Row:
    """Return a message with everything there is to know of it."""
    properties = message.property_map
    body = readable(message)
    kind, text = words.body_text(body)
    facts = {
        "Topic": message.topic,
        "Queue, offset": f"{message.queue_id}, {message.queue_offset}",
        "Offset id": message.message_id,
        "Unique key": properties.get("UNIQ_KEY", "–"),
        "Keys": properties.get("KEYS", "–"),
        "Tags": properties.get("TAGS", "–"),
        "Born": f"{words.moment(message.born_ms)} at {_host(message.born_host)}",
        "Stored": f"{words.moment(message.stored_ms)}, {message.stored_ms - message.born_ms} ms later",
        "Reconsumed": str(message.reconsume_times),
        "Size": f"{words.count(len(message.body))} bytes body, {words.count(message.size)} bytes record",
        "Log offset": str(message.log_offset),
        "Flags": f"{message.flag} (application), {message.sys_flag:#x} (system)",
    }
    hidden = {"UNIQ_KEY", "KEYS", "TAGS", *INTERNAL}
    rest = {name: value for name, value in sorted(properties.items()) if name not in hidden}
    shown = {"kind": kind, "text": text, "unpacked": body is not message.body}
    return {"facts": facts, "properties": rest, "body": shown, "cut": len(body) > words.PREVIEW_BYTES}


def readable(message: StoredMessage) -> bytes:
    """Return the body, or the start of what it was before its producer packed it (zlib, the clients' default)."""
    if not message.sys_flag & COMPRESSED:
        return message.body
    try:
        return zlib.decompressobj().decompress(message.body, words.PREVIEW_BYTES + 1)
    except zlib.error:
        return message.body  # LZ4 and Zstandard of 5.x clients stay packed


def _host(host: bytes) -> str:
    address, port = decode_host(host)
    return f"{address}:{port}"
