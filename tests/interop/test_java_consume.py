"""How the official Java client consumes: long poll, filters, groups, offsets, order, lite pull."""

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.metrics.scrape import SOCKET_NAME, scrape
from tests.interop.box import Box, Foreign, until
from tests.interop.client import Seen, producer, push_consumer, started, unique
from tests.interop.conftest import ONE_VERSION
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.slow

HELD_MS = 15_000  # how long a pull that found nothing may be held: BrokerSuspendMaxTimeMillis


def bodies(seen: list[Seen]) -> list[str]:
    return [each.body.decode() for each in seen]


def send(jvm: Jvm, client: Any, topic: str, body: str, **more: Any) -> Any:
    return client.send(jvm.message(topic, body.encode(), **more))


def queue_of(result: Any) -> Any:
    return result.getMessageQueue()


@pytest.mark.feature("long poll: a parked pull returns when a message arrives")
def test_a_parked_pull_is_woken_by_the_arrival(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("parked")
    puller = jvm.new("client.consumer.DefaultMQPullConsumer", unique("puller"))
    with producer(jvm, cluster.namesrv) as client, started(puller, cluster.namesrv, {}):
        first = send(jvm, client, topic, "before")
        queue, after = queue_of(first), first.getQueueOffset() + 1
        answers: list[Any] = []
        pulling = threading.Thread(target=lambda: answers.append(puller.pullBlockIfNotFound(queue, "*", after, 32)))
        began = time.monotonic()
        pulling.start()
        pulling.join(1.5)
        assert pulling.is_alive(), "the pull was answered though nothing was there"
        client.send(jvm.message(topic, b"the arrival"), queue)
        pulling.join(HELD_MS / 1000)
        waited_s = time.monotonic() - began
    (answer,) = answers
    assert answer.getPullStatus().toString() == "FOUND"  # one request, answered with a message sent after it
    assert [bytes(found.getBody()) for found in answer.getMsgFoundList()] == [b"the arrival"]
    assert waited_s < HELD_MS / 1000 / 2  # woken, not looked up again when the time was over


@pytest.mark.feature("offsets: first, last, by time, and pulls out of range")
def test_a_pull_from_outside_of_a_queue_is_told_where_it_begins_or_ends(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("outside")
    puller = jvm.new("client.consumer.DefaultMQPullConsumer", unique("puller"))
    with producer(jvm, cluster.namesrv) as client, started(puller, cluster.namesrv, {}):
        queue = queue_of(send(jvm, client, topic, "0"))
        stored_ms = []
        for number in range(1, 5):
            client.send(jvm.message(topic, str(number).encode()), queue)
        for at in range(5):
            (found,) = puller.pull(queue, "*", at, 1).getMsgFoundList()
            stored_ms.append(found.getStoreTimestamp())
        assert (puller.minOffset(queue), puller.maxOffset(queue)) == (0, 5)
        assert puller.searchOffset(queue, stored_ms[0] - 1000) == 0
        assert stored_ms[puller.searchOffset(queue, stored_ms[3])] == stored_ms[3]
        answers = [puller.pull(queue, "*", at, 32) for at in (5, 6, 1000)]
    outcomes = [(each.getPullStatus().toString(), each.getNextBeginOffset()) for each in answers]
    assert outcomes == [("NO_NEW_MSG", 5), ("OFFSET_ILLEGAL", 5), ("OFFSET_ILLEGAL", 5)]


@pytest.mark.feature("filter by tag")
def test_a_tag_expression_lets_only_its_tags_through(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("tags")
    with producer(jvm, cluster.namesrv) as client:
        for number in range(30):
            send(jvm, client, topic, str(number), tags="abc"[number % 3])
        with push_consumer(jvm, cluster.namesrv, topic, selector="a || c") as collected:
            collected.wait_count(20)
    assert sorted(map(int, bodies(collected.seen))) == [n for n in range(30) if n % 3 != 1]


@pytest.mark.feature("filter by SQL92")
def test_a_sql_expression_lets_only_its_matches_through(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("sql")
    rule = jvm.cls("client.consumer.MessageSelector").bySql("a BETWEEN 3 AND 7 AND (colour = 'blue' OR colour IS NULL)")
    with producer(jvm, cluster.namesrv) as client:
        send(jvm, client, topic, "no property")
        for number in range(10):
            send(jvm, client, topic, str(number), a=str(number), colour="blue" if number % 2 else "red")
        send(jvm, client, topic, "none", a="4")
        with push_consumer(jvm, cluster.namesrv, topic, selector=rule) as collected:
            collected.wait_count(4)
    assert sorted(bodies(collected.seen)) == ["3", "5", "7", "none"]


@pytest.mark.feature("a bad SQL92 expression is refused at subscription")
def test_a_bad_sql_expression_is_refused_when_the_consumer_starts(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("badsql")
    bad = jvm.cls("client.consumer.MessageSelector").bySql("a >")
    with producer(jvm, cluster.namesrv) as client:
        send(jvm, client, topic, "makes the topic")
    with pytest.raises(Exception, match="CODE: 23"), push_consumer(jvm, cluster.namesrv, topic, selector=bad):
        pass


@ONE_VERSION
@pytest.mark.feature("clustering: two consumers share the queues; offsets survive")
def test_two_consumers_of_a_group_share_and_a_third_goes_on_where_they_ended(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic, group = unique("share"), unique("share_group")
    with producer(jvm, cluster.namesrv) as client:
        send(jvm, client, topic, "first")
        with (
            push_consumer(jvm, cluster.namesrv, topic, group=group) as one,
            push_consumer(jvm, cluster.namesrv, topic, group=group) as two,
        ):
            deadline = time.monotonic() + 60
            number = 0
            while not (one.seen and two.seen and number > 80) and time.monotonic() < deadline:
                send(jvm, client, topic, str(number))
                number += 1
                time.sleep(0.05)
            one.wait(lambda _: len(one.seen) + len(two.seen) > number, 20)
        assert one.seen
        assert two.seen
        seen = bodies(one.seen) + bodies(two.seen)
        assert set(seen) == {"first", *map(str, range(number))}
        send(jvm, client, topic, "after both")
        with push_consumer(jvm, cluster.namesrv, topic, group=group) as third:
            third.wait(lambda got: "after both" in bodies(got))
    assert bodies(third.seen) == ["after both"]


@ONE_VERSION
@pytest.mark.feature("broadcasting: every consumer gets everything")
def test_in_broadcasting_every_consumer_gets_everything(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic, group = unique("broadcast"), unique("broadcast_group")
    model = jvm.cls(
        "common.protocol.heartbeat.MessageModel" if jvm.version < "5.1" else "remoting.protocol.heartbeat.MessageModel"
    )
    settings = {"group": group, "MessageModel": model.BROADCASTING}
    with producer(jvm, cluster.namesrv) as client:
        for number in range(20):
            send(jvm, client, topic, str(number))
        with (
            push_consumer(jvm, cluster.namesrv, topic, **settings) as one,
            push_consumer(jvm, cluster.namesrv, topic, **settings) as two,
        ):
            for collected in (one, two):
                seen = collected.wait_count(20, 60)  # a rebalance that found no route comes again after 20 s
                assert sorted(bodies(seen), key=int) == [str(number) for number in range(20)]


@pytest.mark.feature("orderly push consumer")
def test_an_orderly_consumer_sees_each_queue_in_the_order_it_was_sent(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("orderly")
    selector = jvm.new("client.producer.selector.SelectMessageQueueByHash")
    failed: set[str] = set()

    def sometimes(batch: list[Seen], _context: Any) -> str:
        stumbling = {each.message_id for each in batch if each.body.endswith(b"/7")} - failed
        failed.update(stumbling)
        return "SUSPEND_CURRENT_QUEUE_A_MOMENT" if stumbling else "SUCCESS"

    with producer(jvm, cluster.namesrv) as client:
        for number in range(60):
            client.send(jvm.message(topic, f"{number % 4}/{number // 4}".encode()), selector, number % 4)
        settings: dict[str, Any] = {"SuspendCurrentQueueTimeMillis": 200, "ConsumeMessageBatchMaxSize": 1}
        consumer = push_consumer(jvm, cluster.namesrv, topic, orderly=True, answer=sometimes, **settings)
        with consumer as collected:
            collected.wait_count(64)
    for order in range(4):
        numbers = [int(body.split("/")[1]) for body in bodies(collected.seen) if body.startswith(f"{order}/")]
        assert numbers == [*range(8), *range(7, 15)]


@pytest.mark.feature("lite pull: assign, seek, poll, commit")
def test_lite_pull_polls_from_where_it_was_told(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("lite")
    lite = jvm.new("client.consumer.DefaultLitePullConsumer", unique("lite_group"))
    with producer(jvm, cluster.namesrv) as client:
        sent = send(jvm, client, topic, "0")
        queue = queue_of(sent)
        for number in range(1, 10):
            client.send(jvm.message(topic, str(number).encode()), queue)
        with started(lite, cluster.namesrv, {"AutoCommit": False}):
            (same,) = [each for each in lite.fetchMessageQueues(topic) if each.getQueueId() == queue.getQueueId()]
            lite.assign(jvm.list_of([same]))
            lite.seek(same, 4)
            got: list[str] = []
            deadline = time.monotonic() + 30
            while len(got) < 6 and time.monotonic() < deadline:
                got += bodies(Seen.read_all(jvm, lite.poll(1000)))
            assert got == [str(number) for number in range(4, 10)]
            lite.commitSync()
            assert lite.committed(same) == 10
            assert lite.offsetForTimestamp(same, 0) == 0


def pulls_so_far(box: Box) -> int:
    """Return how many pulls the box has been asked."""
    _, page = scrape(box.data / "run" / SOCKET_NAME, 10)
    return sum(int(float(count)) for count in re.findall(r'requests_total\{[^}]*PULL_MESSAGE"[^}]*\} (\S+)', page))


@ONE_VERSION
@pytest.mark.feature("too many long polls: consumers wait before they retry, and get their messages")
def test_consumers_whose_pulls_may_not_wait_rest_between_them(jvm: Jvm, tmp_path: Path) -> None:
    topic, box = unique("crowded"), Box(tmp_path / "data", config="[limits]\nparked_pulls = 1\n")
    lite = jvm.new("client.consumer.DefaultLitePullConsumer", unique("crowded_lite"))
    lite.subscribe(topic, "*")
    box.start()
    try:
        with producer(jvm, box.namesrv) as client:
            send(jvm, client, topic, "before")
            with push_consumer(jvm, box.namesrv, topic) as collected, started(lite, box.namesrv, {}):
                assert collected.wait_count(1)
                before, began_s = pulls_so_far(box), time.monotonic()
                until(lambda: pulls_so_far(box) >= before + 18, seconds=60, what="they ask no more")
                asked_a_second = (pulls_so_far(box) - before) / (time.monotonic() - began_s)
                for number in range(8):
                    send(jvm, client, topic, str(number))
                assert len(collected.wait_count(9)) == 9
    finally:
        assert box.stop() == 0, box.log_tail()
    assert asked_a_second < 20  # nine queues with a rest of one to three seconds; without it, a thousand
