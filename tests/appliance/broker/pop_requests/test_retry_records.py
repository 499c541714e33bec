"""Records of retry topics under the topic that was asked for."""

import pytest

from appliance.broker.pop_requests.retry_records import under_topic
from storage_driver.record import Message, decode_record, encode_host, encode_properties, encode_record, encode_topic

V6 = encode_host("2001:db8::1", 40_000)


@pytest.mark.parametrize("properties", [{}, {"KEYS": "k", "1ST_POP_TIME": "5"}])
@pytest.mark.parametrize("host", [encode_host("10.0.0.1", 10_911), V6])
def test_all_but_topic_and_handle_stays(properties: dict[str, str], host: bytes) -> None:
    message = Message("%RETRY%G_T", 0, b"body", encode_properties(properties), 3, 0, 123, host, 2)
    topic = encode_topic(message.topic)
    record = encode_record(message, topic, 7, 4096, stored_ms=456, store_host=host)
    before, after = decode_record(record), decode_record(under_topic(record, "T", "1 2 3 0 1 box 0 7"))
    assert after.property_map == {**properties, "POP_CK": "1 2 3 0 1 box 0 7"}
    kept = before._asdict() | {"topic": "T", "properties": after.properties, "size": after.size}
    assert after._asdict() == kept
