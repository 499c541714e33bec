"""Records of a retry topic as clients get them: under the topic they asked for, with a handle of their own. Sans I/O.

Source: RocketMQ 5.5.0 PopMessageProcessor.popMsgFromQueue (popResponseReturnActualRetryTopic off).
"""

from storage_driver.record import Message, decode_record, encode_record, encode_topic

POP_CK = "POP_CK"


def under_topic(record: bytes, topic: str, receipt: str) -> bytes:
    """Return a whole record with another topic and a POP_CK; all else stays, also its place in the log."""
    stored = decode_record(record, check_crc=False)
    properties = stored.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties += f"{POP_CK}\x01{receipt}\x02".encode()
    message = Message(
        topic,
        stored.queue_id,
        stored.body,
        properties,
        stored.flag,
        stored.sys_flag,
        stored.born_ms,
        stored.born_host,
        stored.reconsume_times,
        stored.prepared_offset,
    )
    return encode_record(
        message,
        encode_topic(topic),
        stored.queue_offset,
        stored.log_offset,
        stored_ms=stored.stored_ms,
        store_host=stored.store_host,
        crc=stored.body_crc,
    )
