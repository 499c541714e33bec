"""What is stored of a message: its properties in RocketMQ's names, none of the broker's own from a stranger."""

import pytest

from appliance.grpc.outcome import Rejection
from appliance.grpc.sent_messages import RESERVED, has_control, read_sent
from netstack.grpc.v2.definition_pb2 import MessageType
from storage_driver.record import TRANSACTION_PREPARED, decode_properties
from tests.appliance.grpc.asking import message

MIB = 1 << 20


def test_every_system_property_has_its_name() -> None:
    given = message(
        "T", tag="t", keys=["a", "b"], message_group="g", trace_context="tc", born_host="host-1", properties={"x": "y"}
    )
    sent = read_sent(given, "T", {}, MIB)
    assert decode_properties(sent.properties) == {
        "UNIQ_KEY": "01AB",
        "x": "y",
        "TAGS": "t",
        "KEYS": "a b",
        "__SHARDINGKEY": "g",
        "PGROUP": "T",
        "TRACE_CONTEXT": "tc",
        "__BORNHOST": "host-1",
        "BORN_TIMESTAMP": "1700000000123",
    }
    assert (sent.message_id, sent.message_group, sent.sys_flag) == ("01AB", "g", 0)


def test_a_half_message_is_marked_and_is_asked_about_when_its_producer_wants() -> None:
    given = message("T", message_type=MessageType.TRANSACTION)
    given.system_properties.orphaned_transaction_recovery_duration.seconds = 30
    sent = read_sent(given, "T", {}, MIB)
    found = decode_properties(sent.properties)
    assert (found["TRAN_MSG"], found["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")
    assert sent.sys_flag == TRANSACTION_PREPARED


def test_a_priority_is_kept_and_goes_to_a_topic_of_its_type() -> None:
    given = message("T", message_type=MessageType.PRIORITY, priority=3)
    sent = read_sent(given, "T", {"message.type": "PRIORITY"}, MIB)
    assert decode_properties(sent.properties)["_SYS_MSG_PRIORITY_"] == "3"
    read_sent(message("T", priority=3), "T", {"message.type": "PRIORITY"}, MIB)
    with pytest.raises(Rejection, match="of type PRIORITY"):
        read_sent(message("T"), "T", {"message.type": "PRIORITY"}, MIB)
    with pytest.raises(Rejection, match="0 or more"):
        read_sent(message("T", priority=-1), "T", {}, MIB)


def test_names_with_a_meaning_to_the_broker_are_reserved() -> None:
    assert {"TRAN_MSG", "DELAY", "TIMER_DELIVER_MS", "POP_CK", "RBX_OWNER", "PGROUP", "UNIQ_KEY"} <= RESERVED


def test_control_characters_are_those_of_java() -> None:
    assert [has_control(text) for text in ("a", "ü", "\x00", "a\x1f", "\x7f", "\x9f", "\xa0")] == [
        *(False, False, True, True, True, True, False)
    ]


def test_tag_keys_and_own_properties_share_a_room_that_their_names_in_the_log_are_not_counted_in() -> None:
    for full in (
        {"tag": "t" * 16384},
        {"keys": ["k" * 8192] * 2},
        {"tag": "t" * 8192, "properties": {"n" * 92: "v" * 8100}},
    ):
        read_sent(message("T", **full), "T", {}, MIB)
    for more in ({"tag": "ü" * 8193}, {"keys": ["k" * 8192, "k" * 8193]}, {"properties": {"n": "v" * 16384}}):
        with pytest.raises(Rejection, match="too large"):
            read_sent(message("T", **more), "T", {}, MIB)


def test_a_time_that_is_none_is_refused() -> None:
    given = message("T")
    for seconds, nanos in ((-1, 0), (1 << 40, 0), (0, -1), (0, 1_000_000_000)):
        given.system_properties.born_timestamp.seconds, given.system_properties.born_timestamp.nanos = seconds, nanos
        with pytest.raises(Rejection, match="out of range"):
            read_sent(given, "T", {}, MIB)
