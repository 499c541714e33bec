"""Which permissions a request takes: what is checked is what is done, whatever the spelling."""

import json

import pytest

from appliance.broker.access.request_table import ROWS, AccessClass, Needs
from appliance.broker.access.resources import _READERS, needs
from appliance.broker.consume.heartbeat import read_heartbeat, read_lock
from appliance.broker.rights import ANY, Need, Perm, ResourceKind, of_topic
from netstack.errors import Refused
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import request

T_PUB, T_SUB = Need(ResourceKind.TOPIC, "T", Perm.PUB), Need(ResourceKind.TOPIC, "T", Perm.SUB)
G_SUB = Need(ResourceKind.GROUP, "g", Perm.SUB)
T_ANY = Need(ResourceKind.TOPIC, "T", ANY)
SIGNATURE_ALONE = {
    Code.END_TRANSACTION,  # its handler knows whose the half message is
    *(Code.GET_ROUTEINFO_BY_TOPIC, Code.CHECK_CLIENT_CONFIG),  # they show and change nothing of anybody
}


@pytest.mark.parametrize(
    ("code", "ext", "wanted"),
    [
        (Code.SEND_MESSAGE, {"topic": "T"}, [T_PUB]),
        (Code.SEND_MESSAGE_V2, {"b": "T"}, [T_PUB]),
        (Code.SEND_BATCH_MESSAGE, {"b": "T"}, [T_PUB]),
        (Code.SEND_MESSAGE, {"b": "T", "topic": "open"}, [T_PUB]),
        (Code.SEND_MESSAGE_V2, {"topic": "T"}, [T_PUB]),
        (Code.SEND_MESSAGE_V2, {"b": "", "topic": "open"}, [Need(ResourceKind.TOPIC, "", Perm.PUB)]),
        (Code.SEND_MESSAGE, {}, [Need(ResourceKind.TOPIC, "", Perm.PUB)]),
        (Code.SEND_MESSAGE_V2, {"b": "%RETRY%g"}, [G_SUB]),
        (Code.SEND_MESSAGE_V2, {"b": "%DLQ%g"}, [Need(ResourceKind.TOPIC, "%DLQ%g", Perm.PUB)]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "C_REPLY_TOPIC"}, []),
        (Code.SEND_REPLY_MESSAGE, {"topic": "T"}, [T_PUB]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "_REPLY_TOPICX"}, [Need(ResourceKind.TOPIC, "_REPLY_TOPICX", Perm.PUB)]),
        (Code.RECALL_MESSAGE, {"topic": "T"}, [T_PUB]),
        (Code.PULL_MESSAGE, {"topic": "T", "consumerGroup": "g"}, [T_SUB, G_SUB]),
        (Code.LITE_PULL_MESSAGE, {"topic": "%RETRY%g", "consumerGroup": "g"}, [G_SUB, G_SUB]),
        (Code.PULL_MESSAGE, {"topic": "%RETRY%other", "consumerGroup": "g"}, [G_SUB._replace(name="other"), G_SUB]),
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "g"}, [G_SUB]),
        (Code.QUERY_MESSAGE, {"topic": "T"}, [T_SUB]),
        (Code.VIEW_MESSAGE_BY_ID, {"offset": "0"}, [Need(ResourceKind.TOPIC, "*", Perm.SUB)]),
        (Code.UNREGISTER_CLIENT, {"consumerGroup": "g"}, [G_SUB]),
        (Code.UNREGISTER_CLIENT, {"producerGroup": "g"}, []),
        (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, [G_SUB]),
        (Code.UPDATE_CONSUMER_OFFSET, {"topic": "T", "consumerGroup": "g"}, [T_SUB, G_SUB]),
        (Code.QUERY_CONSUMER_OFFSET, {"topic": "T", "consumerGroup": "g"}, [T_SUB, G_SUB]),
        (
            Code.QUERY_CONSUMER_OFFSET,
            {"topic": "%RETRY%other", "consumerGroup": "g"},
            [G_SUB._replace(name="other"), G_SUB],
        ),
        (Code.GET_MAX_OFFSET, {"topic": "T"}, [T_ANY]),
        (Code.GET_MIN_OFFSET, {"topic": "T"}, [T_ANY]),
        (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "%RETRY%g"}, [G_SUB]),
        (Code.GET_EARLIEST_MSG_STORETIME, {}, [Need(ResourceKind.TOPIC, "", ANY)]),
        (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, []),
    ],
)
def test_a_request_needs_what_it_does(code: int, ext: dict[str, str], wanted: list[Need]) -> None:
    assert needs(request(code, ext)) == wanted


@pytest.mark.parametrize(
    "consumer",
    [
        {"groupName": "g", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%g"}]},
        {"groupName": 5, "subscriptionDataSet": [{"topic": 7}]},
        {"groupName": "", "subscriptionDataSet": [{"topic": "T"}]},
        {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subVersion": "9", "codeSet": ["5"]}]},
        {"groupName": "g"},
        {"groupName": "g", "subscriptionDataSet": None},
        {"groupName": "g", "subscriptionDataSet": {}},
        {"groupName": "g", "subscriptionDataSet": "T"},
        {},
    ],
)
def test_a_heartbeat_joins_no_group_and_no_topic_that_was_not_checked(consumer: dict[str, object]) -> None:
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer, {"groupName": "h"}]}).encode()
    try:
        checked = needs(request(Code.HEART_BEAT, None, body))
    except Refused:
        return  # refused before anybody joins
    for joined in read_heartbeat(body).consumers:
        assert Need(ResourceKind.GROUP, joined.group, Perm.SUB) in checked
        assert {of_topic(each.topic, Perm.SUB) for each in joined.subscriptions} <= set(checked)
    assert Need(ResourceKind.GROUP, "h", Perm.SUB) in checked


@pytest.mark.parametrize("code", [Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize(
    "body",
    [
        {"consumerGroup": "g", "mqSet": [{"topic": "T", "queueId": 0}, {"topic": "%RETRY%g", "queueId": 0}]},
        {"consumerGroup": 5, "mqSet": [{"topic": 7, "queueId": 0}]},
        {"consumerGroup": "g", "mqSet": None},
        {"consumerGroup": "g", "consumergroup": "h", "mqSet": {"topic": "T"}},
        {},
    ],
)
def test_a_lock_touches_no_group_and_no_topic_that_was_not_checked(code: int, body: dict[str, object]) -> None:
    sent = json.dumps({"clientId": "c"} | body).encode()
    try:
        checked = needs(request(code, None, sent))
    except Refused:
        return
    used = read_lock(sent)
    assert Need(ResourceKind.GROUP, used.group, Perm.SUB) in checked
    assert {of_topic(queue.topic, Perm.SUB) for queue in used.queues} <= set(checked)


def test_an_assignment_is_its_groups_and_its_topics() -> None:
    body = b'{"topic":"T","consumerGroup":"g","clientId":"c","strategyName":"AVG","messageModel":"CLUSTERING"}'
    assert needs(request(Code.QUERY_ASSIGNMENT, None, body)) == [T_SUB, G_SUB]


def test_a_name_given_twice_is_checked_as_it_is_used() -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"open","groupName":"g"}]}'
    assert needs(request(Code.HEART_BEAT, None, body)) == [G_SUB]
    assert [each.group for each in read_heartbeat(body).consumers] == ["g"]


@pytest.mark.parametrize("perm", list(Perm))
def test_a_retry_topic_belongs_to_its_group_and_a_name_that_only_looks_so_does_not(perm: Perm) -> None:
    assert of_topic("%RETRY%", perm) == Need(ResourceKind.GROUP, "", Perm.SUB)
    assert of_topic("%RETRY%%RETRY%g", perm) == Need(ResourceKind.GROUP, "%RETRY%g", Perm.SUB)
    for name in ("%retry%g", "X%RETRY%g", "%RETRY"):
        assert of_topic(name, perm) == Need(ResourceKind.TOPIC, name, perm)


def test_every_request_of_the_data_class_is_checked_or_takes_a_signature_alone() -> None:
    data = {code: row.needs for code, row in ROWS.items() if row.access is AccessClass.DATA}
    assert {code for code, needed in data.items() if needed is Needs.SIGNATURE} == set(map(int, SIGNATURE_ALONE))
    assert set(Needs) == set(_READERS) == set(data.values())
    elsewhere = {row.needs for row in ROWS.values() if row.access is not AccessClass.DATA}
    assert elsewhere == {Needs.SIGNATURE}
