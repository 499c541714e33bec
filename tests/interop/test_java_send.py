"""The official Java client sends in every way it has, and its push consumer gets everything back unharmed."""

import pytest

from tests.interop.box import Box, Foreign
from tests.interop.client import Answers, Collected, Seen, producer, push_consumer, unique
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.slow


@pytest.fixture
def how_many(request: pytest.FixtureRequest, jvm: Jvm) -> int:
    """Each length of a body once, fewer with the newer client: a call into Java has its price. --soak: a thousand."""
    few = 300 if jvm.version.startswith("4.") else 200
    return 1000 if request.config.getoption("--soak") else few


def body(number: int) -> bytes:
    """Return a body of its own length and content; every byte value occurs."""
    return bytes((number * 7 + i) % 256 for i in range(number % 300 + 1)) + f" {number} ✓".encode()


def numbers(seen: list[Seen]) -> list[int]:
    return sorted(int(message.properties["number"]) for message in seen)


def message(jvm: Jvm, topic: str, number: int) -> object:
    keys = f"key-{number} schlüssel-{number}"
    return jvm.message(
        topic, body(number), tags=f"tag{number % 3}", keys=keys, number=str(number), läge="über ✓ 漢字 😀"
    )


def check_intact(seen: list[Seen]) -> None:
    for each in seen:
        number = int(each.properties["number"])
        assert each.body == body(number)
        assert (each.tags, each.keys) == (f"tag{number % 3}", f"key-{number} schlüssel-{number}")
        assert each.properties["läge"] == "über ✓ 漢字 😀"


def check_all(collected: Collected, sent: int) -> None:
    seen = collected.wait_count(sent)
    assert numbers(seen) == list(range(sent))
    check_intact(seen)


@pytest.mark.feature("sync send; push consumer; keys, tags, unicode properties, bodies")
def test_sync_sends_reach_a_push_consumer_intact(jvm: Jvm, cluster: Box | Foreign, how_many: int) -> None:
    topic = unique("sync")
    with producer(jvm, cluster.namesrv) as client:
        results = [client.send(message(jvm, topic, number)) for number in range(how_many)]
        assert {result.getSendStatus().toString() for result in results} == {"SEND_OK"}
        places = [(r.getMessageQueue().getQueueId(), r.getQueueOffset()) for r in results]
        assert len(set(places)) == len(results)
        ids = {result.getMsgId() for result in results}
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            check_all(collected, len(results))
    assert {each.properties["UNIQ_KEY"] for each in collected.seen} == ids
    assert {(each.queue_id, each.queue_offset) for each in collected.seen} == set(places)


@pytest.mark.feature("async send")
def test_async_sends_are_all_confirmed_and_reach_a_push_consumer(
    jvm: Jvm, cluster: Box | Foreign, how_many: int
) -> None:
    topic, sent = unique("async"), how_many
    answers = Answers()
    heard = jvm.callback("client.producer.SendCallback", onSuccess=answers.good, onException=answers.bad)
    with producer(jvm, cluster.namesrv) as client:
        client.send(message(jvm, topic, 0))
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            for number in range(1, sent):
                client.send(message(jvm, topic, number), heard)
            answers.wait(sent - 1)
            assert (answers.confirmed, answers.failed) == (sent - 1, [])
            check_all(collected, sent)


@pytest.mark.feature("one-way send")
def test_one_way_sends_arrive_though_nothing_answers_them(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("oneway")
    with producer(jvm, cluster.namesrv) as client:
        client.send(message(jvm, topic, 0))
        for number in range(1, 100):
            client.sendOneway(message(jvm, topic, number))
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            check_all(collected, 100)


@pytest.mark.feature("batch send")
def test_a_batch_lies_in_one_queue_one_after_another(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("batch")
    with producer(jvm, cluster.namesrv) as client:
        result = client.send(jvm.list_of(message(jvm, topic, number) for number in range(100)))
        assert result.getSendStatus().toString() == "SEND_OK"
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            check_all(collected, 100)
    assert {each.queue_id for each in collected.seen} == {result.getMessageQueue().getQueueId()}
    in_order = sorted(collected.seen, key=lambda each: each.queue_offset)
    assert [int(each.properties["number"]) for each in in_order] == list(range(100))
    ids = [each.properties["UNIQ_KEY"] for each in in_order]
    assert len(set(ids)) == 100
    assert result.getMsgId() == ",".join(ids)


@pytest.mark.feature("compressed bodies")
def test_a_body_that_the_client_compresses_comes_back_as_it_was(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("compressed")
    large = b"the same again, " * 20_000
    with producer(jvm, cluster.namesrv) as client:
        client.send(jvm.message(topic, large))
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            (seen,) = collected.wait_count(1)
    assert seen.body == large


@pytest.mark.feature("selector: a queue by key")
def test_a_selector_sends_every_message_of_a_key_to_one_queue(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("selector")
    selector = jvm.new("client.producer.selector.SelectMessageQueueByHash")
    with producer(jvm, cluster.namesrv) as client:
        for number in range(40):
            client.send(message(jvm, topic, number), selector, f"order-{number % 5}")
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            check_all(collected, 40)
    queues = {(int(each.properties["number"]) % 5, each.queue_id) for each in collected.seen}
    assert len(queues) == 5


@pytest.mark.feature("refusals: size, illegal topic")
def test_what_the_broker_refuses_reaches_the_application_as_a_code_and_a_remark(
    jvm: Jvm, cluster: Box | Foreign
) -> None:
    with producer(jvm, cluster.namesrv, MaxMessageSize=8 << 20, RetryTimesWhenSendFailed=0) as client:
        client.setCompressMsgBodyOverHowmuch(1 << 30)
        with pytest.raises(Exception, match="CODE: 13"):
            client.send(jvm.message(unique("large"), b"x" * (5 << 20)))
        client.send(jvm.message(unique("small"), b"still works"))
