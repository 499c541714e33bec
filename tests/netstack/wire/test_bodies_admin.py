"""Administration bodies equal the text that Java prints."""

import pytest

from netstack.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from netstack.wire.bodies_admin import (
    AllConsumeStats,
    BrokerStats,
    ClientConnection,
    ConsumeQueuePage,
    ConsumerConnection,
    ConsumeStats,
    CorrectionOffsets,
    DelayOffsets,
    GroupList,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    QueueEntry,
    QueueTimeSpan,
    StatsSpan,
    SubscriptionGroup,
    SubscriptionGroupTable,
    TimeSpans,
    TopicOffset,
    TopicStats,
    shown_language,
)
from netstack.wire.bodies_route import DataVersion
from netstack.wire.json_body import Body, MessageQueue

MQ = MessageQueue("T", "b", 0)
MQ_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'
VERSION_TEXT = '{"counter":0,"timestamp":1700000000000}'
GROUP_TEXT = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"CG",'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
STATS = ConsumeStats({MQ: OffsetWrapper(10, 7, 1700000000000)}, 1.5)
STATS_TEXT = (
    f'{{"consumeTps":1.5,"offsetTable":{{{MQ_TEXT}:{{"brokerOffset":10,"consumerOffset":7,'
    '"lastTimestamp":1700000000000}}}'
)
CLIENT = ClientConnection("c@1", "1.2.3.4:5", "GO", 317)
CLIENT_TEXT = '{"clientAddr":"1.2.3.4:5","clientId":"c@1","language":"GO","version":317}'
SUB_TEXT = (
    '{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,'
    '"tagsSet":[],"topic":"T"}'
)
SPAN_TEXT = '{"avgpt":0.0,"sum":0,"tps":0.0}'
GOLDEN: list[tuple[Body, str]] = [
    (SubscriptionGroup("CG"), GROUP_TEXT),
    (
        SubscriptionGroupTable({"CG": SubscriptionGroup("CG")}, DataVersion(0, 1700000000000)),
        f'{{"dataVersion":{VERSION_TEXT},"subscriptionGroupTable":{{"CG":{GROUP_TEXT}}}}}',
    ),
    (DelayOffsets({1: 100}), '{"offsetTable":{"1":100}}'),
    (STATS, STATS_TEXT),
    (
        TopicStats({MQ: TopicOffset(0, 5, 0)}),
        f'{{"offsetTable":{{{MQ_TEXT}:{{"lastUpdateTimestamp":0,"maxOffset":5,"minOffset":0}}}}}}',
    ),
    (
        ConsumerConnection((CLIENT,), {"T": SubscriptionData("T", "*", sub_version=1)}),
        (
            f'{{"connectionSet":[{CLIENT_TEXT}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
            f'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUB_TEXT}}}}}'
        ),
    ),
    (ProducerConnection((CLIENT,)), f'{{"connectionSet":[{CLIENT_TEXT}]}}'),
    (GroupList(("CG",)), '{"groupList":["CG"]}'),
    (
        TimeSpans((QueueTimeSpan(MQ),)),
        (
            f'{{"consumeTimeSpanSet":[{{"consumeTimeStamp":0,"delayTime":0,"maxTimeStamp":0,"messageQueue":{MQ_TEXT},'
            '"minTimeStamp":0}]}'
        ),
    ),
    (CorrectionOffsets({0: 5}), '{"correctionOffsets":{"0":5}}'),
    (BrokerStats(), f'{{"statsDay":{SPAN_TEXT},"statsHour":{SPAN_TEXT},"statsMinute":{SPAN_TEXT}}}'),
    (
        AllConsumeStats(({"CG": (STATS,)},), "1.2.3.4:10911"),
        f'{{"brokerAddr":"1.2.3.4:10911","consumeStatsList":[{{"CG":[{STATS_TEXT}]}}],"totalDiff":0}}',
    ),
    (
        ConsumeQueuePage((QueueEntry(0, 200, 123),), 0, 10),
        (
            '{"maxQueueIndex":10,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":0,"physicSize":200,'
            '"tagsCode":123}]}'
        ),
    ),
    (
        ProducerTable({"PG": (ProducerInfo("c@1", "1.2.3.4", "JAVA", 409),)}),
        (
            '{"data":{"PG":[{"clientId":"c@1","language":"JAVA","lastUpdateTimestamp":0,"remoteIP":"1.2.3.4",'
            '"version":409}]}}'
        ),
    ),
]


@pytest.mark.parametrize(("body", "text"), GOLDEN, ids=lambda value: type(value).__name__)
def test_bodies_are_written_as_java_writes_them(body: Body, text: str) -> None:
    assert body.to_bytes().decode() == text
    assert type(body).from_bytes(text.encode()) == body


@pytest.mark.parametrize(("body", "text"), GOLDEN, ids=lambda value: type(value).__name__)
def test_no_body_holds_a_blank_outside_of_texts(body: Body, text: str) -> None:
    assert b" " not in body.to_bytes()


def test_a_group_of_5x_keeps_what_4x_does_not_know() -> None:
    text = (
        b'{"groupName":"CG","groupRetryPolicy":{"type":"CUSTOMIZED"},"consumeMessageOrderly":true,"attributes":{"a":"b"},'
        b'"retryMaxTimes":3,"consumeTimeoutMinute":15,"groupSysFlag":0,"subscriptionDataSet":null}'
    )
    group = SubscriptionGroup.from_bytes(text)
    assert (group.retry_max_times, group.consume_message_orderly, group.attributes) == (3, True, {"a": "b"})
    assert SubscriptionGroup.from_bytes(group.to_bytes()) == group


def test_statistics_keep_their_numbers_apart() -> None:
    stats = BrokerStats(StatsSpan(60, 1.0, 0.5), StatsSpan(3600, 1.0), StatsSpan(86400, 1.0))
    assert BrokerStats.from_bytes(stats.to_bytes()) == stats


def test_languages_that_4x_tools_cannot_read_are_shown_as_other() -> None:
    assert [shown_language(name) for name in ("GO", "RUST", "NODE_JS", "ELIXIR")] == ["GO", "RUST", "OTHER", "OTHER"]


def test_enums_of_a_connection_are_read_as_names_or_ordinals() -> None:
    text = b'{"consumeFromWhere":4,"consumeType":0,"messageModel":"BROADCASTING"}'
    read = ConsumerConnection.from_bytes(text)
    assert read.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert (read.consume_type, read.message_model) == (ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING)
