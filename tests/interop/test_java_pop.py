"""POP by the official Java 5.x client: its push consumer in POP mode, and its own calls for pop, ack and renewal."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.box import Box, Cluster, Foreign, until
from tests.interop.client import Collected, Seen, producer, push_consumer, started, unique
from tests.interop.jvm import Jvm
from tests.interop.test_java_admin import mqadmin

pytestmark = pytest.mark.slow

LONG_MS = 60_000


@contextmanager
def admin(jvm: Jvm, cluster: Box | Foreign) -> Iterator[Any]:
    made = jvm.new("tools.admin.DefaultMQAdminExt")
    made.setAdminExtGroup(unique("admin"))
    with started(made, cluster.namesrv, {}):
        yield made


def broker_of(tool: Any) -> tuple[str, str]:
    """Return name and address of the cluster's broker."""
    (data,) = tool.examineBrokerClusterInfo().getBrokerAddrTable().values()
    return data.getBrokerName(), data.selectBrokerAddr()


def make(jvm: Jvm, tool: Any, topic: str, group: str, *, queues: int = 4, mode: str = "", **of_group: Any) -> None:
    """Create a topic and a group, and let the group consume by POP."""
    _, address = broker_of(tool)
    tool.createAndUpdateTopicConfig(address, jvm.new("common.TopicConfig", topic, queues, queues, 6))
    settings = jvm.new("remoting.protocol.subscription.SubscriptionGroupConfig")
    settings.setGroupName(group)
    for name, value in of_group.items():
        getattr(settings, f"set{name}")(value)
    tool.createAndUpdateSubscriptionGroupConfig(address, settings)
    if mode:
        modes = jvm.cls("common.message.MessageRequestMode")
        tool.setMessageRequestMode(address, topic, group, getattr(modes, mode), 0, 10_000)


@dataclass(frozen=True, slots=True)
class Got:
    """One message that was popped, with its handle."""

    body: str
    topic: str
    handle: str
    queue_offset: int
    reconsume_times: int
    java: Any


class Popper:
    """The client's calls for POP on one topic and group: MQClientAPIImpl."""

    def __init__(self, jvm: Jvm, tool: Any, topic: str, group: str) -> None:
        self.jvm, self.topic, self.group = jvm, topic, group
        self.api = tool.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
        self.name, self.address = broker_of(tool)
        self._extra = jvm.cls("remoting.protocol.header.ExtraInfoUtil")

    def call(self, callback: str, send: Any) -> Any:
        """Return what an asynchronous call of the client says. Raises what it reports."""
        answers: list[Any] = []
        failures: list[str] = []
        done = threading.Event()

        def good(answer: Any) -> None:
            answers.append(answer)
            done.set()

        def bad(error: Any) -> None:
            failures.append(str(error.toString()))
            done.set()

        send(self.jvm.callback(f"client.consumer.{callback}", onSuccess=good, onException=bad))
        assert done.wait(60), "no answer"
        assert not failures, failures[0]
        return answers[0]

    def pop(
        self, most: int = 32, *, invisible_ms: int = LONG_MS, poll_ms: int = 0, order: bool = False, **more: Any
    ) -> list[Got]:
        """Pop from all queues, or from `queue`; `attempt` names the try of an ordered pop."""
        header = self.jvm.new("remoting.protocol.header.PopMessageRequestHeader")
        queue, attempt = more.get("queue", -1), more.get("attempt")
        fields = {"ConsumerGroup": self.group, "Topic": self.topic, "QueueId": queue, "MaxMsgNums": most}
        fields |= {"InvisibleTime": invisible_ms, "PollTime": poll_ms, "BornTime": int(time.time() * 1000)}
        fields |= {"InitMode": 0, "ExpType": "TAG", "Exp": more.get("tags", "*"), "Order": order}
        for name, value in fields.items():
            getattr(header, f"set{name}")(value)
        if attempt:
            header.setAttemptId(attempt)
        send = self.api.popMessageAsync
        result = self.call("PopCallback", lambda back: send(self.name, self.address, header, 30_000 + poll_ms, back))
        if result.getPopStatus().toString() != "FOUND":
            return []
        return [
            Got(
                bytes(found.getBody()).decode(),
                found.getTopic(),
                found.getProperty("POP_CK"),
                found.getQueueOffset(),
                found.getReconsumeTimes(),
                found,
            )
            for found in result.getMsgFoundList()
        ]

    def ask(self, code: int, header: Any) -> dict[str, str]:
        """Return the ext fields of the answer to a request of the client's remoting layer."""
        request = self.jvm.cls("remoting.protocol.RemotingCommand").createRequestCommand(code, header)
        answer = self.api.getRemotingClient().invokeSync(self.address, request, 20_000)
        assert answer.getCode() == 0, answer.getRemark()
        return dict(answer.getExtFields())

    def _fill(self, header: Any, got: Got, handle: str) -> None:
        parts = self._extra.split(handle)
        header.setTopic(self._extra.getRealTopic(parts, self.topic, self.group))
        header.setQueueId(self._extra.getQueueId(parts))
        header.setOffset(self._extra.getQueueOffset(parts))
        header.setConsumerGroup(self.group)
        header.setExtraInfo(handle)

    def ack(self, got: Got, handle: str = "") -> str:
        """Acknowledge and return the status."""
        header = self.jvm.new("remoting.protocol.header.AckMessageRequestHeader")
        self._fill(header, got, handle or got.handle)
        send = self.api.ackMessageAsync
        return str(
            self.call("AckCallback", lambda back: send(self.address, 10_000, back, header)).getStatus().toString()
        )

    def change(self, got: Got, invisible_ms: int) -> str:
        """Move the time of a message and return the new handle."""
        header = self.jvm.new("remoting.protocol.header.ChangeInvisibleTimeRequestHeader")
        self._fill(header, got, got.handle)
        header.setInvisibleTime(invisible_ms)
        send = self.api.changeInvisibleTimeAsync
        result = self.call("AckCallback", lambda back: send(self.name, self.address, header, 10_000, back))
        assert result.getStatus().toString() == "OK"
        return str(result.getExtraInfo())

    def until_popped(self, seconds: float = 20, **more: Any) -> tuple[list[Got], float]:
        """Pop until something comes; return it and how long that took."""
        began = time.monotonic()
        while not (found := self.pop(poll_ms=2000, **more)):
            assert time.monotonic() - began < seconds, "nothing came"
        return found, time.monotonic() - began


@contextmanager
def popper(jvm: Jvm, cluster: Box | Foreign, queues: int = 4, **of_group: Any) -> Iterator[tuple[Popper, Any]]:
    """A topic, a group and the calls, and a producer."""
    topic, group = unique("pop"), unique("pop_group")
    with admin(jvm, cluster) as tool, producer(jvm, cluster.namesrv) as client:
        make(jvm, tool, topic, group, queues=queues, **of_group)
        yield Popper(jvm, tool, topic, group), client


def send(jvm: Jvm, client: Any, topic: str, *bodies: str, tags: str = "") -> None:
    for body in bodies:
        client.send(jvm.message(topic, body.encode(), tags=tags))


@contextmanager
def pop_consumer(jvm: Jvm, cluster: Cluster, topic: str, group: str, **more: Any) -> Iterator[Collected]:
    """A push consumer that lets the broker assign, and so receives by POP."""
    settings = {"ClientRebalance": False, **more}
    with push_consumer(jvm, cluster.namesrv, topic, group=group, **settings) as collected:
        yield collected


@pytest.mark.feature("POP: push consumer in POP mode")
def test_the_push_consumer_gets_everything_once_by_pop(jvm5: Jvm, cluster: Box | Foreign) -> None:
    topic, group = unique("popush"), unique("popush_group")
    with admin(jvm5, cluster) as tool, producer(jvm5, cluster.namesrv) as client:
        make(jvm5, tool, topic, group, mode="POP")
        send(jvm5, client, topic, *map(str, range(50)))
        with pop_consumer(jvm5, cluster, topic, group) as one, pop_consumer(jvm5, cluster, topic, group) as two:
            until(lambda: len(one.seen) + len(two.seen) >= 50, seconds=60, what="the first messages")
            send(jvm5, client, topic, *map(str, range(50, 100)))
            until(lambda: len(one.seen) + len(two.seen) >= 100, seconds=60, what="all messages")
            seen = one.seen + two.seen
            assert all("POP_CK" in each.properties for each in seen)
            until_acknowledged(tool, topic, group)
    assert sorted(int(each.body) for each in seen) == list(range(100))


def until_acknowledged(tool: Any, topic: str, group: str) -> None:
    """Wait until a group has acknowledged everything."""

    def lags() -> int:
        return int(tool.examineConsumeStats(group, topic).computeTotalDiff())

    until(lambda: lags() == 0, seconds=30, what=lambda: f"{lags()} messages are not acknowledged")


@pytest.mark.soak
@pytest.mark.feature("POP: mqadmin setConsumeMode changes a running group")
def test_mqadmin_lets_a_running_group_go_over_to_pop_and_back(jvm5: Jvm, cluster: Box) -> None:
    if not isinstance(cluster, Box):
        pytest.skip("needs a box of its own")
    topic, group = unique("popmode"), unique("popmode_group")
    with admin(jvm5, cluster) as tool, producer(jvm5, cluster.namesrv) as client:
        make(jvm5, tool, topic, group)
        with pop_consumer(jvm5, cluster, topic, group) as collected:
            for mode in ("PULL", "POP", "PULL"):
                place = ["-n", cluster.namesrv, "-b", cluster.broker]
                said = mqadmin("5.5.0", ["setConsumeMode", *place, "-t", topic, "-g", group, "-m", mode])
                assert "success" in said, said

                def comes_by(mode: str = mode) -> bool:
                    count = len(collected.seen)
                    send(jvm5, client, topic, mode)
                    collected.wait_count(count + 1)
                    return ("POP_CK" in collected.seen[-1].properties) == (mode == "POP")

                until(comes_by, seconds=90, what=f"messages come by {mode}")


@pytest.mark.feature("POP: a failed message comes again by POP")
def test_a_message_that_fails_comes_again_under_its_own_topic(jvm5: Jvm, cluster: Box | Foreign) -> None:
    topic, group = unique("popfail"), unique("popfail_group")
    times: list[Seen] = []

    def answer(batch: list[Seen], _context: Any) -> str:
        times.extend(batch)
        return "RECONSUME_LATER" if batch[0].reconsume_times == 0 else "CONSUME_SUCCESS"

    with admin(jvm5, cluster) as tool, producer(jvm5, cluster.namesrv) as client:
        make(jvm5, tool, topic, group, mode="POP")
        with pop_consumer(jvm5, cluster, topic, group, answer=answer):
            send(jvm5, client, topic, "again")
            until(lambda: len(times) >= 2, seconds=60, what="the second delivery")
    first, second = times[:2]
    assert (second.topic, second.body, second.reconsume_times) == (topic, b"again", 1)
    assert int(second.properties["1ST_POP_TIME"]) <= int(second.properties["POP_CK"].split()[1])
    assert first.properties["UNIQ_KEY"] == second.properties["UNIQ_KEY"]


@pytest.mark.feature("POP: pop, ack; what is not acknowledged comes again when its time is over")
def test_popped_messages_are_acknowledged_or_come_again(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):
        send(jvm5, client, pop.topic, "0", "1", "2")
        began = time.monotonic()
        got = pop.pop(invisible_ms=5000)
        assert [each.body for each in got] == ["0", "1", "2"]
        assert [each.queue_offset for each in got] == [0, 1, 2]
        assert pop.ack(got[0]) == pop.ack(got[2]) == "OK"
        again, _ = pop.until_popped()
        assert time.monotonic() - began >= 4.9
        assert [(each.body, each.topic, each.reconsume_times) for each in again] == [("1", pop.topic, 1)]
        assert pop.ack(got[1]) == "OK"  # too late, and told so by nobody
        assert pop.ack(again[0]) == "OK"
        assert pop.pop(poll_ms=7000) == []


@pytest.mark.feature("POP: change of the invisible time")
def test_a_renewed_message_stays_away_and_its_handles_work(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):
        send(jvm5, client, pop.topic, "longer", "shorter")
        longer, shorter = pop.pop(invisible_ms=8000)
        began = time.monotonic()
        renewed = pop.change(longer, 20_000)
        pop.change(shorter, 1000)
        again, _ = pop.until_popped()
        assert [each.body for each in again] == ["shorter"]
        assert time.monotonic() - began >= 0.9
        assert pop.ack(again[0]) == "OK"
        assert pop.pop(poll_ms=9000) == []
        assert pop.ack(longer, renewed) == "OK"
        assert pop.pop(poll_ms=11_000) == []


@pytest.mark.feature("POP: long poll")
def test_a_pop_waits_for_the_first_message(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster) as (pop, client):
        began = time.monotonic()
        assert pop.pop(poll_ms=2000) == []
        assert time.monotonic() - began >= 1.8
        sending = threading.Timer(1.0, send, (jvm5, client, pop.topic, "late"))
        sending.start()
        began = time.monotonic()
        assert [each.body for each in pop.pop(poll_ms=20_000)] == ["late"]
        assert time.monotonic() - began < 10
        sending.join()


@pytest.mark.feature("POP: filter by tag")
def test_a_pop_with_tags_gets_those_alone(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):
        for number in range(12):
            send(jvm5, client, pop.topic, str(number), tags="abc"[number % 3])
        got = pop.pop(tags="a || c")
        assert [int(each.body) for each in got] == [n for n in range(12) if n % 3 != 1]
        assert {pop.ack(each) for each in got} == {"OK"}


@pytest.mark.feature("POP: in order, blocked until acknowledged, counted")
def test_an_ordered_pop_blocks_its_queue_and_counts_deliveries(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):
        send(jvm5, client, pop.topic, "0", "1", "2", "3")
        first = pop.pop(2, invisible_ms=6000, order=True, queue=0, attempt="a")
        assert [(each.body, each.reconsume_times) for each in first] == [("0", 0), ("1", 0)]
        assert pop.pop(order=True, queue=0, attempt="b") == []
        again = pop.pop(2, invisible_ms=6000, order=True, queue=0, attempt="a")
        assert [each.body for each in again] == ["0", "1"]
        assert pop.ack(again[0]) == "OK"
        late, _ = pop.until_popped(order=True, queue=0)
        assert late[0].body == "1"
        assert late[0].reconsume_times == 1
        assert {pop.ack(each) for each in late} == {"OK"}
        if len(late) == 1:
            assert [each.body for each in pop.pop(order=True, queue=0)] == ["2", "3"]


@pytest.mark.feature("POP: notification and polling info")
def test_a_notification_tells_of_a_message_without_taking_it(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):

        def noticed(poll_ms: int) -> bool:
            header = jvm5.new("remoting.protocol.header.NotificationRequestHeader")
            fields = {"ConsumerGroup": pop.group, "Topic": pop.topic, "QueueId": -1, "PollTime": poll_ms}
            for name, value in (fields | {"BornTime": int(time.time() * 1000)}).items():
                getattr(header, f"set{name}")(value)
            return pop.ask(200054, header)["hasMsg"] == "true"

        assert not noticed(0)
        send(jvm5, client, pop.topic, "1")
        assert noticed(0)
        (got,) = pop.pop()
        assert not noticed(500)
        assert pop.ack(got) == "OK"
        info = jvm5.new("remoting.protocol.header.PollingInfoRequestHeader")
        for name, value in {"ConsumerGroup": pop.group, "Topic": pop.topic, "QueueId": -1}.items():
            getattr(info, f"set{name}")(value)
        assert pop.ask(200055, info)["pollingNum"] == "0"
        waiting = threading.Thread(target=pop.pop, kwargs={"poll_ms": 3000})
        waiting.start()
        until(lambda: pop.ask(200055, info)["pollingNum"] == "1", seconds=3, what="the pop waits")
        waiting.join()


@pytest.mark.feature("POP: batch acknowledgement")
def test_a_batch_of_acknowledgements_counts_for_each(jvm5: Jvm, cluster: Box | Foreign) -> None:
    with popper(jvm5, cluster, queues=1) as (pop, client):
        send(jvm5, client, pop.topic, *map(str, range(10)))
        got = pop.pop(invisible_ms=5000)
        handles = [each.handle for each in got if int(each.body) % 2]
        api = pop.api.batchAckMessageAsync
        result = pop.call("AckCallback", lambda back: api(pop.address, 10_000, back, pop.topic, pop.group, handles))
        assert result.getStatus().toString() == "OK"
        again: list[Got] = []
        while len(again) < 5:
            again += pop.until_popped()[0]
        assert sorted(int(each.body) for each in again) == [0, 2, 4, 6, 8]


@pytest.mark.feature("POP: handles survive a kill of the box")
def test_after_a_kill_nothing_acknowledged_comes_again_and_handles_still_work(jvm5: Jvm, tmp_path: Path) -> None:
    box = Box(tmp_path / "data")
    box.start()
    try:
        with popper(jvm5, box, queues=1) as (pop, client):
            send(jvm5, client, pop.topic, *map(str, range(6)))
            got = pop.pop(4, invisible_ms=25_000)
            began = time.monotonic()
            assert pop.ack(got[0]) == pop.ack(got[2]) == "OK"
            box.kill()
            box.start()
            rest, _ = pop.until_popped()
            assert [each.body for each in rest] == ["4", "5"]
            assert {pop.ack(each) for each in (got[1], *rest)} == {"OK"}
            again, _ = pop.until_popped(40)
            assert time.monotonic() - began >= 24.5
            assert [each.body for each in again] == ["3"]
            assert pop.ack(again[0]) == "OK"
            assert pop.pop(poll_ms=1000) == []
    finally:
        assert box.stop() == 0, box.log_tail()
