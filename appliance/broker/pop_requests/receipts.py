"""Handles of POP as clients spell them: `POP_CK`, and the strings from which a client makes one per message. Sans I/O.

    POP_CK           startOffset popTime invisibleTime reviveQid kind brokerName queueId queueOffset
    startOffsetInfo  kind queueId startOffset;…
    msgOffsetInfo    kind queueId offset,offset,…;…           in the order of the records
    orderCountInfo   kind qo{queueId}%{offset} count;…kind queueId count;…

`kind` is 0 for the topic itself, 1 and 2 for its retry topics; reviveQid 999 stands for an ordered take. Apache's proxy
appends a ninth field, which nothing needs. Source: RocketMQ 5.5.0 ExtraInfoUtil.
"""

from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Sequence

from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import PopSlice
from storage_driver.named_tuple import NamedTuple

ORDERED_QUEUE, PLAIN_QUEUE = 999, 0
FIELDS = 8
MOST_BITS = 1024  # of one batch of acknowledgements: a take has 32


class PopReceipt(NamedTuple):
    """One POP_CK; its broker name is not looked at."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: TopicKind
    queue_id: int
    queue_offset: int

    def text(self, broker: str) -> str:
        """Return the property's value."""
        head = f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue}"
        return f"{head} {self.kind.value} {broker} {self.queue_id} {self.queue_offset}"


def read_receipt(text: str) -> PopReceipt:
    """Return what a POP_CK says. Raises ValueError."""
    fields = text.split(" ", FIELDS)
    if len(fields) < FIELDS:
        raise ValueError(f"{len(fields)} fields, a handle has {FIELDS}")
    start, pop_ms, invisible_ms, revive, kind, _, queue_id, offset, *_ = fields
    return PopReceipt(
        int(start), int(pop_ms), int(invisible_ms), int(revive), TopicKind(int(kind)), int(queue_id), int(offset)
    )


def start_offset_info(slices: Sequence[PopSlice]) -> str:
    """Return where each take begins."""
    return ";".join(f"{found.kind.value} {found.queue.queue_id} {found.offsets[0]}" for found in slices)


def message_offset_info(slices: Sequence[PopSlice]) -> str:
    """Return the queue offset of each record, in their order."""
    return ";".join(
        f"{found.kind.value} {found.queue.queue_id} {','.join(map(str, found.offsets))}" for found in slices
    )


def order_count_info(slices: Sequence[PopSlice]) -> str:
    """Return how often each message was delivered before."""
    parts = []
    for found in slices:
        queue, counts = found.queue.queue_id, zip(found.offsets, found.deliveries, strict=True)
        parts += [f"{found.kind.value} qo{queue}%{offset} {count}" for offset, count in counts]
        parts.append(f"{found.kind.value} {queue} {min(found.deliveries)}")
    return ";".join(parts)


def offsets_of(start: int, bits: str) -> Iterator[int]:
    """Yield the offsets of a batch: bit i of the bytes, the lowest first, is start + i. Raises ValueError."""
    if len(bits) > MOST_BITS // 6 + 4:
        raise ValueError(f"{len(bits)} characters of Base64, at most {MOST_BITS} messages are acknowledged together")
    try:
        raw = b64decode(bits, validate=True)
    except Error as exc:
        raise ValueError(f"bits {bits[:40]!r}: {exc}") from exc
    for at, byte in enumerate(raw):
        for bit in range(8):
            if byte >> bit & 1:
                yield start + 8 * at + bit
