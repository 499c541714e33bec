"""`check --deep`, record by record: what of a landed record can be proved from its bytes alone.

A record of Apache's format has a CRC of its body and none of the rest. Of that, lengths, position, topic and queue
offsets have to agree with each other; properties, hosts and times have nothing they could be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from uplink_spark.errors import RecordsBad
from uplink_spark.wire.batch import Piece
from uplink_spark.zone.record_layout import Layout, lay_out, scan_sizes

NOT_QUEUED = (4, 12)  # transaction bits of a half message and of a rolled back one: their queue offset means nothing
TRANSACTION = 0xC
MOST_TOLD = 3  # of one piece


def bad_records(piece: Piece, raw: bytes) -> list[str]:
    """Return what is wrong with the records of a piece, the first few with their log offsets; other kinds have none."""
    header = piece.header
    if header.kind not in ("log", "pick") or not raw:
        return []
    index = piece.sizes()
    try:
        sizes = np.frombuffer(index, "<u4").astype(np.int64) if index is not None else scan_sizes(raw, 0, len(raw))
        layout = lay_out(raw, sizes)
        found = list(_wrong(layout, raw, header.start if header.kind == "log" else None))
    except RecordsBad as error:
        return [f"log offset {header.start + error.at}: {error.reason}"]
    more = [f"and {len(found) - MOST_TOLD} more records"] if len(found) > MOST_TOLD else []
    return found[:MOST_TOLD] + more


def _wrong(layout: Layout, raw: bytes, start: int | None) -> Iterator[str]:
    """Yield one sentence for each record that cannot be what was stored; start: of the log, None where it has holes."""
    borders, head = layout.edges[:-1].reshape(-1, 6).tolist(), layout.head
    fields = (head["log_offset"], head["body_crc"], head["queue_id"], head["queue_offset"], head["sys_flag"])
    expected: dict[tuple[bytes, int], int] = {}
    for edges, place, crc, queue_id, offset, flags in zip(borders, *(field.tolist() for field in fields), strict=True):
        at, body_at, body_end, topic_at, topic_end, _ = edges
        topic = raw[topic_at:topic_end]
        if start is not None and place != start + at:
            yield f"log offset {start + at}: its log-offset field says {place}"
        elif body_end > body_at and crc32(raw[body_at:body_end]) & 0x7FFFFFFF != crc:
            yield f"log offset {place}: the body does not match its CRC"
        elif not _is_text(topic):
            yield f"log offset {place}: the topic is not UTF-8"
        elif flags & TRANSACTION not in NOT_QUEUED:
            least = expected.get((topic, queue_id), 0)
            expected[topic, queue_id] = offset + 1
            if 0 != offset < least:  # 0: the topic was deleted and made again
                yield f"log offset {place}: queue offset {offset} of {topic.decode()}/{queue_id} after {least - 1}"


def _is_text(topic: bytes) -> bool:
    if topic.isascii():
        return True
    try:
        topic.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True
