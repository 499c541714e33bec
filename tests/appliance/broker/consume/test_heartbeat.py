"""Heartbeats and lock requests as any client library spells them."""

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from appliance.broker.consume.heartbeat import (
    CONSUME_FROM,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    MOST_GROUPS,
    lock_reply,
    read_check,
    read_heartbeat,
    read_lock,
)
from appliance.broker.filter.subscriptions import Subscription, SubscriptionError
from netstack.errors import Refused
from storage_driver.record import MessageQueue, java_hash


def test_heartbeats_of_all_client_libraries_mean_the_same() -> None:
    codes = sorted((java_hash("A"), java_hash("B")))
    java = {
        "topic": "T", "subString": "A || B", "tagsSet": ["A", "B"], "codeSet": codes,
        "subVersion": 7, "expressionType": "TAG", "classFilterMode": False,
    }  # fmt: skip
    go = {**java, "codeSet": [str(code) for code in codes]}
    go.pop("classFilterMode")
    cpp = {"topic": "T", "subString": "A || B", "subVersion": "7"}
    names = {
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    }
    numbers = {"consumeType": 1, "messageModel": 1, "consumeFromWhere": 4}
    found = []
    for enums, subscription in ((names, java), (names, go), (numbers, cpp)):
        group = {"groupName": "CG", **enums, "subscriptionDataSet": [subscription]}
        beat = read_heartbeat(json.dumps({"clientID": "c@1", "consumerDataSet": [group], "unknown": 1}).encode())
        found.append(beat.consumers[0])
    assert found[0] == found[1] == found[2]
    assert found[0].subscriptions == (Subscription("T", "A || B", "TAG", 7, ("A", "B"), frozenset(codes)),)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"{}", b'{"clientID":""}'])
def test_a_heartbeat_that_says_nothing_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        read_heartbeat(body)


@pytest.mark.parametrize("code", ["2147483648", "-2147483649", '"2305843009213693951"', "1e300"])
def test_hashes_that_no_tag_has_are_refused_before_they_collide(code: str) -> None:
    group = b'{"groupName":"g","subscriptionDataSet":[{"topic":"T","codeSet":[%b]}]}' % code.encode()
    with pytest.raises(Refused, match="subscription of T: a tag's hash of more than 32 bits"):
        read_heartbeat(b'{"clientID":"c","consumerDataSet":[%b]}' % group)


@pytest.mark.parametrize(
    "body", [b'{"clientID":"c"}' + b" " * (4 << 20), b'{clientID:"c",x:"' + b"x" * (64 << 10) + b'"}']
)
def test_a_heartbeat_that_would_keep_others_waiting_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="bytes"):
        read_heartbeat(body)


def beat(consumer: object) -> bytes:
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


@pytest.mark.parametrize(
    "wrong",
    [{"tagsSet": 5}, {"codeSet": 5}, {"codeSet": [None]}, {"codeSet": ["x"]}, {"subVersion": "x"}, {"subVersion": [1]}],
)
def test_a_subscription_that_cannot_be_read_is_refused_by_its_topic(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused, match="subscription of T"):
        read_heartbeat(beat({"groupName": "g", "subscriptionDataSet": [{"topic": "T", **wrong}]}))


def test_an_endless_number_is_refused() -> None:
    body = beat({"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subVersion": 77}]}).replace(b"77", b"1e400")
    with pytest.raises(Refused, match="subscription of T"):
        read_heartbeat(body)


ODD: tuple[object, ...] = (None, True, 0, -1, 1 << 70, 1.5, "", "x", [], [5], [None], [[]], [{}], {}, {"a": []})
SUBSCRIPTION = {
    "topic": "T",
    "subString": "a || b",
    "tagsSet": ["a", "b"],
    "codeSet": [97, 98],
    "subVersion": 5,
    "expressionType": "TAG",
    "classFilterMode": False,
}
CONSUMER = {
    "groupName": "g",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "unitMode": False,
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [SUBSCRIPTION],
}
BODIES: tuple[dict[str, object], ...] = (
    {"clientID": "c", "consumerDataSet": [CONSUMER], "producerDataSet": [{"groupName": "p"}]},
    {"clientId": "c", "consumerGroup": "g", "mqSet": [{"topic": "T", "queueId": 1, "brokerName": "b"}]},
    {"clientId": "c", "group": "g", "subscriptionData": SUBSCRIPTION},
)


def changed(value: object) -> Iterator[object]:
    """Yield a JSON value with each part of it, one at a time, left out or replaced by something odd."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield {other: each for other, each in value.items() if other != name}
            for odd in changed(part):
                yield {**value, name: odd}
    if isinstance(value, list):
        for number, part in enumerate(value):
            for odd in changed(part):
                yield [*value[:number], odd, *value[number + 1 :]]


def test_whatever_a_stranger_sends_is_understood_or_refused() -> None:
    refused = 0
    for whole in BODIES:
        for odd in changed(whole):
            body = json.dumps(odd).encode()
            for read in (read_heartbeat, read_lock, read_check):
                try:
                    read(body)
                except (Refused, SubscriptionError):
                    refused += 1
            with suppress(Refused):
                for each in read_heartbeat(body).consumers:
                    assert each.group
                    assert each.consume_type in CONSUME_TYPES
                    assert each.message_model in MESSAGE_MODELS
                    assert each.consume_from in CONSUME_FROM
                    assert all(subscription.topic for subscription in each.subscriptions)
    assert refused > 100


@pytest.mark.parametrize(
    ("said", "meant"),
    [(0, "BROADCASTING"), (1, "CLUSTERING"), (2, "CLUSTERING"), (-1, "CLUSTERING"), ("x", "CLUSTERING")],
)
def test_numbers_stand_for_words_and_unknown_ones_for_the_usual(said: object, meant: str) -> None:
    assert read_heartbeat(beat({"groupName": "g", "messageModel": said})).consumers[0].message_model == meant


def test_hashes_a_client_leaves_out_are_made_and_those_it_sends_are_taken() -> None:
    def codes(**given: object) -> frozenset[int]:
        row = {"topic": "T", "subString": "a || b", **given}
        return (
            read_heartbeat(beat({"groupName": "g", "subscriptionDataSet": [row]})).consumers[0].subscriptions[0].codes
        )

    assert codes() == codes(codeSet=[]) == frozenset({97, 98})
    assert codes(codeSet=["5", 6]) == frozenset({5, 6})
    assert codes(subString="*") == codes(subString="") == codes(subString=" || ") == frozenset()


@pytest.mark.parametrize("most", [MOST_GROUPS, MOST_GROUPS + 1])
def test_groups_of_one_heartbeat_have_an_end(most: int) -> None:
    body = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": f"p{n}"} for n in range(most)]}).encode()
    if most == MOST_GROUPS:
        assert len(read_heartbeat(body).producers) == most
    else:
        with pytest.raises(Refused, match="1001 groups"):
            read_heartbeat(body)


def test_a_lock_request_takes_the_queues_that_are_queues_and_needs_a_name() -> None:
    rows = [{"topic": "T", "queueId": 1, "brokerName": "b"}, {"topic": 5, "queueId": 1}, {"topic": "T"}, 7, None]
    asked = {"consumerGroup": "g", "clientId": "c", "mqSet": rows}
    assert read_lock(json.dumps(asked).encode()).queues == (MessageQueue("T", 1),)
    for missing in ("consumerGroup", "clientId"):
        with pytest.raises(Refused, match="has no consumerGroup"):
            read_lock(json.dumps({**asked, missing: ""}).encode())
        with pytest.raises(Refused, match="at most 255 and 1024 are allowed"):
            read_lock(json.dumps({**asked, missing: "x" * 1025}).encode())
    assert lock_reply([MessageQueue("T", 1)], "b") == b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}'


def test_queues_that_no_topic_has_are_not_locked() -> None:
    rows = [{"topic": "T", "brokerName": "b", "queueId": number} for number in (-1, 0, 16_383, 16_384, 1 << 40)]
    asked = read_lock(json.dumps({"consumerGroup": "G", "clientId": "c", "mqSet": rows}).encode())
    assert asked.queues == (MessageQueue("T", 0), MessageQueue("T", 16_383))
