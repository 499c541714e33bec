"""Client bodies equal what Java prints, and are read from every client's dialect."""

import pytest

from netstack.errors import Refused
from netstack.wire.bodies import (
    CheckClient,
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeResult,
    ConsumerIdList,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeType,
    HeartbeatData,
    LockReply,
    LockRequest,
    MessageModel,
    MessageQueue,
    ProcessQueueInfo,
    ProducerData,
    QueueAssignment,
    QueueAssignments,
    ResetOffset,
    SubscriptionData,
)
from netstack.wire.json_body import Body

MQ = MessageQueue("T", "b", 0)
MQ_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'
SUB = SubscriptionData("T", "TagA || TagB", ("TagA", "TagB"), (2598919, 2598920), 1700000000000)
SUB_TEXT = (
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    '"subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"T"}'
)
HEARTBEAT = HeartbeatData(
    "10.0.0.1@1234", (ProducerData("PG"),), (ConsumerData("CG", subscription_data_set=(SUB,)),)
)  # fmt: skip
HEARTBEAT_TEXT = (
    '{"clientID":"10.0.0.1@1234","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
    '"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
    + SUB_TEXT
    + '],"unitMode":false}],"producerDataSet":[{"groupName":"PG"}]}'
)
GOLDEN: list[tuple[Body, str]] = [
    (HEARTBEAT, HEARTBEAT_TEXT),
    (ConsumerIdList(("a@1", "b@2")), '{"consumerIdList":["a@1","b@2"]}'),
    (LockRequest("c@1", "g", (MQ, MQ)), f'{{"clientId":"c@1","consumerGroup":"g","mqSet":[{MQ_TEXT},{MQ_TEXT}]}}'),
    (
        QueueAssignments((QueueAssignment(MQ),)),
        f'{{"messageQueueAssignments":[{{"messageQueue":{MQ_TEXT},"mode":"PULL"}}]}}',
    ),
    (QueueAssignments(), "{}"),
    (LockReply((MQ,)), f'{{"lockOKMQSet":[{MQ_TEXT}]}}'),
    (CheckClient("c@1", "CG", SUB), f'{{"clientId":"c@1","group":"CG","subscriptionData":{SUB_TEXT}}}'),
    (ResetOffset({MQ: 12}), f'{{"offsetTable":{{{MQ_TEXT}:12}}}}'),
    (ConsumerStatus({}, {MQ: 12}), f'{{"consumerTable":{{}},"messageQueueTable":{{{MQ_TEXT}:12}}}}'),
    (ConsumerStatus({"c@1": {MQ: 12}}), f'{{"consumerTable":{{"c@1":{{{MQ_TEXT}:12}}}},"messageQueueTable":{{}}}}'),
    (
        ConsumeDirectlyResult(ConsumeResult.CR_SUCCESS),
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":0}',
    ),
]


@pytest.mark.parametrize(("body", "text"), GOLDEN)
def test_bodies_are_written_as_java_writes_them(body: Body, text: str) -> None:
    assert body.to_bytes().decode() == text
    assert type(body).from_bytes(text.encode()) == body


def test_cpp_consumers_get_reset_offsets_as_an_array() -> None:
    text = b'{"offsetTable":[{"brokerName":"b","offset":12,"queueId":0,"topic":"T"}]}'
    assert ResetOffset({MQ: 12}).to_bytes_for_cpp() == text


@pytest.mark.parametrize(
    "key",
    [
        MQ_TEXT,
        '"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}"',
        '{topic:"T","queueId":0,"brokerName":"b"}',
    ],
)
def test_queue_keys_are_read_raw_and_as_text(key: str) -> None:
    assert ResetOffset.from_bytes(f'{{"offsetTable":{{{key}:12}}}}\n'.encode()) == ResetOffset({MQ: 12})


def test_a_heartbeat_of_the_cpp_client_with_ordinals_and_gaps_is_read() -> None:
    text = (
        b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"CG","messageModel":1,'
        b'"subscriptionDataSet":[{"classFilterMode":false,"expressionType":"TAG","subString":"*","subVersion":"17",'
        b'"topic":"T"}],"unitMode":false}]}\n'
    )
    consumer = HeartbeatData.from_bytes(text).consumer_data_set[0]
    assert consumer == ConsumerData("CG", subscription_data_set=(SubscriptionData("T", "*", sub_version=17),))


def test_a_heartbeat_of_the_go_client_with_codes_as_text_is_read() -> None:
    text = b'{"clientID":"g","consumerDataSet":[{"groupName":"CG","consumeType":"CONSUME_ACTIVELY","messageModel":"BROADCASTING","consumeFromWhere":"CONSUME_FROM_TIMESTAMP","subscriptionDataSet":[{"topic":"T","codeSet":["2598919"],"tagsSet":["TagA"],"subVersion":1700000000000000000}]}],"producerDataSet":null}'  # noqa: E501
    heartbeat = HeartbeatData.from_bytes(text)
    consumer = heartbeat.consumer_data_set[0]
    assert heartbeat.producer_data_set == ()
    assert consumer.subscription_data_set[0].code_set == (2598919,)
    assert consumer.subscription_data_set[0].sub_version == 1700000000000000000
    assert (consumer.consume_type, consumer.message_model, consumer.consume_from_where) == (
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )


def test_running_info_of_a_consumer_is_read_with_its_queue_table() -> None:
    text = (
        f'{{"jstack":"main","mqTable":{{{MQ_TEXT}:{{"commitOffset":7,"droped":true,"locked":false}}}},'
        '"properties":{"PROP_CLIENT_VERSION":"V4_9_8"},"statusTable":{"T":{"consumeOKTPS":1.5}},"subscriptionSet":[]}'
    )
    read = ConsumerRunningInfo.from_bytes(text.encode())
    assert read.mq_table == {MQ: ProcessQueueInfo(commit_offset=7, dropped=True)}
    assert (read.status_table["T"].consume_ok_tps, read.jstack) == (1.5, "main")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "HeartbeatData is list, not an object"),
        ('{"consumerDataSet":{}}', "consumerDataSet: dict where a list is expected"),
        ('{"consumerDataSet":[{"messageModel":7}]}', "consumerDataSet: messageModel: MessageModel 7, known: 0..1"),
        ('{"consumerDataSet":[{"messageModel":"LOUD"}]}', "messageModel: 'LOUD' where a number is expected"),
        ('{"heartbeatFingerprint":"x"}', "heartbeatFingerprint: 'x' where a number"),
        ('{"clientID":', "JSON: value expected at character 12"),
        ("\xff", "value expected"),
    ],
)
def test_an_unreadable_body_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says) as refused:
        HeartbeatData.from_bytes(text.encode("latin-1"))
    assert refused.value.code == 1


def test_an_empty_body_is_a_body_without_fields() -> None:
    assert LockRequest.from_bytes(b"") == LockRequest()
