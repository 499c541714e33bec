"""Producers and consumers of the official Java client, with what they saw as plain Python values."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from py4j.protocol import Py4JError

from tests.interop.jvm import Jvm

Make = Callable[[str, str], Any]
_names = count()


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as a Java listener got it."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    message_id: str
    reconsume_times: int
    born_ms: int
    store_ms: int

    @classmethod
    def read_all(cls, jvm: Jvm, messages: Any) -> "list[Seen]":
        """Return the messages of a Java list, by one call, since a call a field costs minutes."""
        return [cls.from_json(fields) for fields in json.loads(jvm.to_json(messages))]

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Seen":
        properties = fields["properties"]
        return cls(
            fields["topic"],
            fields["queueId"],
            fields["queueOffset"],
            base64.b64decode(fields.get("body") or ""),
            properties.get("TAGS"),
            properties.get("KEYS"),
            properties,
            fields["msgId"],
            fields["reconsumeTimes"],
            fields["bornTimestamp"],
            fields["storeTimestamp"],
        )


class Collected:
    """What a listener saw, in order, with waiting from another thread."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._more = threading.Condition()

    def add(self, messages: list[Seen]) -> None:
        with self._more:
            self.seen.extend(messages)
            self._more.notify_all()

    def wait(self, enough: Callable[[list[Seen]], bool], seconds: float = 30) -> list[Seen]:
        """Return what was seen once it is enough, or what there is after so many seconds."""
        with self._more:
            self._more.wait_for(lambda: enough(self.seen), seconds)
            return list(self.seen)

    def wait_count(self, number: int, seconds: float = 60) -> list[Seen]:
        """As `wait`, for a number of messages.

        A Java consumer that starts while its client is at another heartbeat sends none of its own, and the next one
        comes 30 s later: it has no queues until then (MQClientInstance.sendHeartbeatToAllBrokerWithLock, 5.5.0).
        """
        return self.wait(lambda seen: len(seen) >= number, seconds)


class Answers:
    """A SendCallback's two methods; counts what was stored, keeps the text of what failed."""

    def __init__(self) -> None:
        self.confirmed, self.failed = 0, list[str]()
        self._more = threading.Condition()

    def good(self, result: Any) -> None:
        self._note(str(result))

    def bad(self, error: Any) -> None:
        self._note(str(error))

    def _note(self, text: str) -> None:
        with self._more:
            if "sendStatus=SEND_OK" in text:
                self.confirmed += 1
            else:
                self.failed.append(text)
            self._more.notify_all()

    def wait(self, number: int, seconds: float = 30) -> None:
        with self._more:
            self._more.wait_for(lambda: self.confirmed + len(self.failed) >= number, seconds)


def unique(prefix: str) -> str:
    """Return a name that no other test of this session uses, for topics and groups."""
    return f"{prefix}_{threading.get_native_id()}_{next(_names)}"


@contextmanager
def producer(jvm: Jvm, namesrv: str, *, group: str = "", make: Make | None = None, **settings: Any) -> Iterator[Any]:
    """A started DefaultMQProducer; settings are its setters without `set`, for example RetryTimesWhenSendFailed=0.

    `make` gets class and group and constructs it, where the constructor wants more than the group.
    """
    made = (make or jvm.new)("client.producer.DefaultMQProducer", group or unique("producer"))
    with started(made, namesrv, {"SendMsgTimeout": 10_000, **settings}):
        yield made


@contextmanager
def started(client: Any, namesrv: str, settings: dict[str, Any]) -> Iterator[None]:
    client.setNamesrvAddr(namesrv)
    client.setInstanceName(unique("instance"))
    with suppress(Py4JError):  # clients before 4.9.1 do not have it
        client.setMqClientApiTimeout(15_000)  # the usual 3 s pay for a JVM's first connection too: long when busy
    client.setPollNameServerInterval(2_000)  # a first question that failed all the same is asked again soon
    for name, value in settings.items():
        getattr(client, f"set{name}")(value)
    client.start()
    try:
        yield
    finally:
        client.shutdown()


@contextmanager
def push_consumer(
    jvm: Jvm,
    namesrv: str,
    topic: str,
    *,
    group: str = "",
    selector: Any = "*",
    orderly: bool = False,
    answer: Callable[[list[Seen], Any], str] | None = None,
    make: Make | None = None,
    **settings: Any,
) -> Iterator[Collected]:
    """A started DefaultMQPushConsumer that begins at the first offset and collects what it gets; `make` as above.

    `answer` gets a batch and the listener's context and decides the status by name (CONSUME_SUCCESS, RECONSUME_LATER,
    SUCCESS, SUSPEND_...).
    """
    collected = Collected()
    kind = "Orderly" if orderly else "Concurrently"
    statuses = jvm.cls(
        "client.consumer.listener." + ("ConsumeOrderlyStatus" if orderly else "ConsumeConcurrentlyStatus")
    )
    good = "SUCCESS" if orderly else "CONSUME_SUCCESS"

    def consume(messages: Any, context: Any) -> Any:
        batch = Seen.read_all(jvm, messages)
        collected.add(batch)
        return getattr(statuses, answer(batch, context) if answer else good)

    made = (make or jvm.new)("client.consumer.DefaultMQPushConsumer", group or unique("consumer"))
    first = jvm.cls("common.consumer.ConsumeFromWhere").CONSUME_FROM_FIRST_OFFSET
    made.subscribe(topic, selector)
    made.registerMessageListener(
        jvm.callback(f"client.consumer.listener.MessageListener{kind}", consumeMessage=consume)
    )
    with started(made, namesrv, {"ConsumeFromWhere": first, "ConsumeMessageBatchMaxSize": 32, **settings}):
        yield collected
