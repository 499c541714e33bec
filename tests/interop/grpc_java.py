"""The Java client of RocketMQ 5 by its API, with what it was given as plain values.

INTEROP_JAVA5 names another version of it.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.protocol import Py4JError

from tests.interop.jvm import Jvm

JAVA_VERSION = os.environ.get("INTEROP_JAVA5", "5.0.8")
APIS = "client.apis"
CODE = re.compile(r"response-code=(\d+)")


@dataclass(frozen=True, slots=True)
class View:
    """One message as this client shows it. Times in ms, 0 where there is none; `view` is the client's own."""

    id: str
    topic: str
    body: str
    tag: str
    keys: list[str]
    properties: dict[str, str]
    message_group: str
    due_ms: int
    born_ms: int
    attempt: int
    came_ms: int
    view: Any


def view_of(view: Any) -> View:
    """Read a message by the client's getters."""

    def given(optional: Any) -> Any:
        return optional.get() if optional.isPresent() else None

    return View(
        id=str(view.getMessageId()),
        topic=view.getTopic(),
        body=_text(view),
        tag=given(view.getTag()) or "",
        keys=sorted(map(str, view.getKeys())),
        properties={str(name): str(value) for name, value in dict(view.getProperties()).items()},
        message_group=given(view.getMessageGroup()) or "",
        due_ms=int(given(view.getDeliveryTimestamp()) or 0),
        born_ms=int(view.getBornTimestamp()),
        attempt=int(view.getDeliveryAttempt()),
        came_ms=int(time.time() * 1000),
        view=view,
    )


def _text(view: Any) -> str:
    body = view.getBody()
    return bytes(body.get(at) & 0xFF for at in range(body.limit())).decode()


def code_of(call: Callable[[], Any]) -> int:
    """Return the code with which the client's call was refused, 0 where it was not."""
    try:
        call()
    except Exception as error:
        found = CODE.search(str(error))
        if found is None:
            raise
        return int(found[1])
    return 0


class Reached(Protocol):
    """What listens at an endpoint."""

    @property
    def endpoint(self) -> str: ...


class JavaClient:
    """The Java client by its API; what its listeners saw as plain values: keys and attempts.

    A listener fails key-1 once while `fails`, and always what is `hopeless`.
    """

    def __init__(
        self, jvm: Jvm, box: Reached, *, tls: bool, key: tuple[str, str] | None = None, timeout_s: int = 0
    ) -> None:
        self.jvm = jvm
        self.provider = jvm.cls(f"{APIS}.ClientServiceProvider").loadService()
        builder = jvm.cls(f"{APIS}.ClientConfiguration").newBuilder()
        if key:
            builder = builder.setCredentialProvider(jvm.new(f"{APIS}.StaticSessionCredentialsProvider", *key))
        if timeout_s:
            builder = builder.setRequestTimeout(jvm.cls("java.time.Duration").ofSeconds(timeout_s))
        builder = builder.setEndpoints(box.endpoint)
        with suppress(Py4JError):  # clients before 5.0.5 do not have it: they speak TLS
            builder = builder.enableSsl(tls)
        self.configuration = builder.build()
        self.seen: list[tuple[str, int]] = []
        self.came_s: list[float] = []  # of each of them, when
        self.checked = threading.Event()
        self.fails, self.hopeless = True, ""

    def producer(self, topic: str) -> Any:
        strings = self.jvm.gateway.new_array(self.jvm.gateway.jvm.java.lang.String, 1)
        strings[0] = topic
        checker = self.jvm.callback(f"{APIS}.producer.TransactionChecker", check=self._check)
        builder = self.provider.newProducerBuilder().setClientConfiguration(self.configuration)
        return builder.setTopics(strings).setTransactionChecker(checker).build()

    def _check(self, view: Any) -> Any:
        self.checked.set()
        return self.jvm.cls(f"{APIS}.producer.TransactionResolution").COMMIT

    def message(self, topic: str, number: int) -> Any:
        keys = self.jvm.gateway.new_array(self.jvm.gateway.jvm.java.lang.String, 1)
        keys[0] = f"key-{number}"
        made = self.provider.newMessageBuilder().setTopic(topic).setBody(f"java {number} ✓".encode())
        made = made.setTag(f"tag{number % 3}").setKeys(keys)
        return made.addProperty("number", str(number)).addProperty("läge", "über ✓ 漢字 😀")

    def filters(self, topic: str, expression: str = "*", kind: str = "TAG") -> Any:
        found = self.jvm.cls("java.util.HashMap")()
        kinds = self.jvm.cls(f"{APIS}.consumer.FilterExpressionType")
        found.put(topic, self.jvm.new(f"{APIS}.consumer.FilterExpression", expression, getattr(kinds, kind)))
        return found

    def simple_consumer(self, topic: str, group: str, expression: str = "*", kind: str = "TAG") -> "SimpleConsumer":
        builder = self.provider.newSimpleConsumerBuilder().setClientConfiguration(self.configuration)
        builder = builder.setConsumerGroup(group).setAwaitDuration(self.jvm.cls("java.time.Duration").ofSeconds(5))
        made = builder.setSubscriptionExpressions(self.filters(topic, expression, kind)).build()
        return SimpleConsumer(self.jvm, made)

    def push_consumer(self, topic: str, group: str) -> Any:
        results = self.jvm.cls(f"{APIS}.consumer.ConsumeResult")

        def consume(view: Any) -> Any:
            attempt, key = int(view.getDeliveryAttempt()), str(next(iter(view.getKeys()), ""))
            self.seen.append((key, attempt))
            self.came_s.append(time.time())
            wrong = (key and key == self.hopeless) or (self.fails and (key, attempt) == ("key-1", 1))
            return results.FAILURE if wrong else results.SUCCESS

        listener = self.jvm.callback(f"{APIS}.consumer.MessageListener", consume=consume)
        builder = self.provider.newPushConsumerBuilder().setClientConfiguration(self.configuration)
        builder = builder.setConsumerGroup(group).setSubscriptionExpressions(self.filters(topic))
        return builder.setMessageListener(listener).build()


class SimpleConsumer:
    """A simple consumer and what it was given."""

    def __init__(self, jvm: Jvm, client: Any) -> None:
        self._durations, self.client = jvm.cls("java.time.Duration"), client

    def receive(self, invisible_s: int = 20, most: int = 32) -> list[View]:
        """Return what one receive gives; it waits five seconds for the first message."""
        return [view_of(each) for each in self.client.receive(most, self._durations.ofSeconds(invisible_s))]

    def receive_all(self, count: int, invisible_s: int = 20, seconds: float = 60) -> list[View]:
        """Receive until there are so many, or for so long; return them in the order in which they came."""
        found, end = list[View](), time.monotonic() + seconds
        while len(found) < count and time.monotonic() < end:
            found += self.receive(invisible_s)
        return found

    def ack(self, *seen: View) -> None:
        for each in seen:
            self.client.ack(each.view)

    def change(self, seen: View, invisible_s: int) -> None:
        """Let a message come again after so many seconds."""
        self.client.changeInvisibleDuration(seen.view, self._durations.ofSeconds(invisible_s))

    def close(self) -> None:
        self.client.close()
