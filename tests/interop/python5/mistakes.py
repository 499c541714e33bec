"""What the official Python client says of an application's mistakes: one JSON object per line.

mistakes.py ENDPOINT NORMAL FIFO GROUP      topics of these types alone; `seen`: a code, or the client's own error
"""

import json
import os
import sys
import threading
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer
from rocketmq.grpc_protocol.definition_pb2 import FilterType

HANGS_S, AWAIT_S, LEAST_S = 30, 5, 10


def outcome(call):
    seen = []

    def run():
        try:
            call()
            seen.append("ok")
        except Exception as error:
            seen.append(getattr(error, "code", None) or type(error).__name__)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS_S)
    return seen[0] if seen else "hangs"


def message(topic, body=b"x", properties=None, **more):
    made = Message()
    made.topic, made.body = topic, body
    for name, value in (properties or {}).items():
        made.add_property(name, value)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def mistakes(endpoint, normal, fifo, group):
    at = ClientConfiguration(endpoint, Credentials())
    producer = Producer(at, (normal, fifo))
    producer.startup()

    def sends(name, topic=normal, **more):
        return name, lambda: producer.send(message(topic, **more))

    def received(name, topic=normal, group=group, expression="*", kind=FilterType.TAG, invisible_s=LEAST_S):
        def call():
            made = SimpleConsumer(at, group, {topic: FilterExpression(expression, kind)}, await_duration=AWAIT_S)
            made.startup()
            made.receive(32, invisible_s)

        return name, call

    def acknowledged(name, wait_s, times):
        def call():
            made = SimpleConsumer(at, group, {normal: FilterExpression("*")}, await_duration=AWAIT_S)
            made.startup()
            made.receive(32, LEAST_S)
            producer.send(message(normal))
            (found,) = made.receive(32, LEAST_S)
            time.sleep(wait_s)
            for _ in range(times):
                made.ack(found)

        return name, call

    yield sends("no topic", "no_such_topic")
    yield sends("normal to FIFO", fifo)
    yield sends("FIFO to normal", message_group="one")
    yield sends("a large body", body=b"x" * (4 * 1024 * 1024 + 1))
    yield sends("a reserved property", properties={"KEYS": "x"})
    yield sends("129 properties", properties={f"k{number}": "v" for number in range(129)})
    yield sends("17,000 bytes of properties", properties={"a": "x" * 17_000})
    yield received("consumes no topic", "no_such_topic")
    yield received("consumes by no SQL", expression="a >", kind=FilterType.SQL)
    yield received("is given back too soon", invisible_s=5)
    yield acknowledged("acknowledges twice", 0, 2)
    yield acknowledged("acknowledges late", LEAST_S + 1, 1)


if __name__ == "__main__":
    for name, call in mistakes(*sys.argv[1:]):
        print(json.dumps({"mistake": name, "seen": outcome(call)}), flush=True)
    os._exit(0)  # what hangs has threads
