"""Codes are numbers on the wire: one name each, and the numbers that RocketMQ gives them."""

import pytest

from netstack.wire.codes import RequestCode, ResponseCode, names_of

REQUESTS = {
    "SEND_MESSAGE": 10,
    "PULL_MESSAGE": 11,
    "QUERY_MESSAGE": 12,
    "QUERY_CONSUMER_OFFSET": 14,
    "UPDATE_CONSUMER_OFFSET": 15,
    "UPDATE_AND_CREATE_TOPIC": 17,
    "SEARCH_OFFSET_BY_TIMESTAMP": 29,
    "GET_MAX_OFFSET": 30,
    "GET_MIN_OFFSET": 31,
    "VIEW_MESSAGE_BY_ID": 33,
    "HEART_BEAT": 34,
    "UNREGISTER_CLIENT": 35,
    "CONSUMER_SEND_MSG_BACK": 36,
    "END_TRANSACTION": 37,
    "GET_CONSUMER_LIST_BY_GROUP": 38,
    "CHECK_TRANSACTION_STATE": 39,
    "NOTIFY_CONSUMER_IDS_CHANGED": 40,
    "LOCK_BATCH_MQ": 41,
    "UNLOCK_BATCH_MQ": 42,
    "REGISTER_BROKER": 103,
    "UNREGISTER_BROKER": 104,
    "GET_ROUTEINFO_BY_TOPIC": 105,
    "GET_BROKER_CLUSTER_INFO": 106,
    "SEND_MESSAGE_V2": 310,
    "SEND_BATCH_MESSAGE": 320,
    "SEND_REPLY_MESSAGE": 324,
    "SEND_REPLY_MESSAGE_V2": 325,
    "GET_CONSUMER_RUNNING_INFO": 307,
    "CONSUME_MESSAGE_DIRECTLY": 309,
    "RESET_CONSUMER_CLIENT_OFFSET": 220,
}
RESPONSES = {
    "SUCCESS": 0,
    "SYSTEM_ERROR": 1,
    "SYSTEM_BUSY": 2,
    "REQUEST_CODE_NOT_SUPPORTED": 3,
    "FLUSH_DISK_TIMEOUT": 10,
    "SLAVE_NOT_AVAILABLE": 11,
    "FLUSH_SLAVE_TIMEOUT": 12,
    "MESSAGE_ILLEGAL": 13,
    "SERVICE_NOT_AVAILABLE": 14,
    "NO_PERMISSION": 16,
    "TOPIC_NOT_EXIST": 17,
    "PULL_NOT_FOUND": 19,
    "PULL_RETRY_IMMEDIATELY": 20,
    "PULL_OFFSET_MOVED": 21,
    "QUERY_NOT_FOUND": 22,
    "SUBSCRIPTION_NOT_EXIST": 24,
    "SUBSCRIPTION_NOT_LATEST": 25,
    "SUBSCRIPTION_GROUP_NOT_EXIST": 26,
    "CONSUMER_NOT_ONLINE": 206,
    "CONSUME_MSG_TIMEOUT": 207,
}


@pytest.mark.parametrize(("codes", "known"), [(RequestCode, REQUESTS), (ResponseCode, RESPONSES)])
def test_names_have_the_numbers_of_rocketmq(codes: type, known: dict[str, int]) -> None:
    assert {name: vars(codes)[name] for name in known} == known


@pytest.mark.parametrize(
    ("codes", "shared"),
    [(RequestCode, set()), (ResponseCode, {"POLLING_FULL", "POLLING_TIMEOUT", "BROKER_NOT_EXIST"})],
)
def test_no_number_has_two_names_but_those_that_rocketmq_gave_out_twice(codes: type, shared: set[str]) -> None:
    named = names_of(codes)
    assert {name for name in vars(codes) if name.isupper()} - set(named.values()) == shared
    assert all(type(code) is int and 0 <= code < 1 << 31 for code in named)
