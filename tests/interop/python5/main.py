"""The official Python client of RocketMQ 5 against a gRPC port: one subcommand per feature, one JSON object per line.

main.py send ENDPOINT TOPIC COUNT            each with a tag, keys and properties
main.py kinds ENDPOINT TOPIC                 FIFO, delayed and recalled, transactions: commit, rollback, undecided
main.py simple ENDPOINT TOPIC GROUP COUNT    receives and acknowledges, after a first receive that finds nothing
main.py push ENDPOINT TOPIC GROUP COUNT      fails the message with key-1 once
"""

import json
import os
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

KEY, SECRET = os.environ.get("INTEROP_ACCESS_KEY"), os.environ.get("INTEROP_SECRET_KEY")
LONGEST_S = 60


def say(**fields):
    print(json.dumps(fields), flush=True)


def configuration(endpoint):
    return ClientConfiguration(endpoint, Credentials(KEY, SECRET) if KEY else Credentials())


def message(topic, number):
    made = Message()
    made.topic, made.body = topic, f"python {number} ✓".encode()
    made.tag, made.keys = f"tag{number % 3}", f"key-{number}"
    made.add_property("number", str(number))
    made.add_property("läge", "über ✓ 漢字 😀")
    return made


def seen(found):
    say(
        id=found.message_id,
        body=found.body.decode(),
        tag=found.tag,
        keys=list(found.keys or []),
        properties=dict(found.properties),
        attempt=found.delivery_attempt,
    )


def send(endpoint, topic, count):
    producer = Producer(configuration(endpoint), (topic,))
    producer.startup()
    for number in range(int(count)):
        receipt = producer.send(message(topic, number))
        say(id=receipt.message_id, number=number)
    producer.shutdown()


class Checker(TransactionChecker):
    """Commits what it is asked about."""

    def __init__(self):
        self.asked = threading.Event()

    def check(self, found):
        say(checked=found.body.decode())
        self.asked.set()
        return TransactionResolution.COMMIT


def kinds(endpoint, topic):
    checker = Checker()
    producer = Producer(configuration(endpoint), (topic,), checker=checker)
    producer.startup()
    for what, more in (("fifo", {"message_group": "g"}), ("delay", {"delivery_timestamp": int(time.time()) + 2})):
        made = Message()
        made.topic, made.body = topic, what.encode()
        for name, value in more.items():
            setattr(made, name, value)
        say(id=producer.send(made).message_id, what=what)
    made = Message()
    made.topic, made.body, made.delivery_timestamp = topic, b"recalled", int(time.time()) + 30
    receipt = producer.send(made)
    say(recalled=producer.recall_message(topic, receipt.recall_handle), id=receipt.message_id)
    for how in ("commit", "rollback", "check"):
        transaction, made = producer.begin_transaction(), Message()
        made.topic, made.body = topic, how.encode()
        producer.send(made, transaction)
        if how != "check":
            getattr(transaction, how)()
    say(asked=checker.asked.wait(LONGEST_S))
    producer.shutdown()


def simple(endpoint, topic, group, count):
    consumer = SimpleConsumer(configuration(endpoint), group, {topic: FilterExpression("*")}, await_duration=5)
    consumer.startup()
    say(ready=len(consumer.receive(1, 15) or []))
    left, end = int(count), time.monotonic() + LONGEST_S
    while left > 0 and time.monotonic() < end:
        for found in consumer.receive(32, 15) or []:
            seen(found)
            consumer.ack(found)
            left -= 1
    consumer.shutdown()


class Listener(MessageListener):
    """Fails one message once."""

    def __init__(self, count):
        self.left, self.done, self.lock = count, threading.Event(), threading.Lock()

    def consume(self, found):
        with self.lock:
            seen(found)
            if "key-1" in (found.keys or []) and found.delivery_attempt == 1:
                return ConsumeResult.FAILURE
            self.left -= 1
            if self.left == 0:
                self.done.set()
        return ConsumeResult.SUCCESS


def push(endpoint, topic, group, count):
    listener = Listener(int(count))
    consumer = PushConsumer(configuration(endpoint), group, listener, {topic: FilterExpression("*")})
    consumer.startup()
    say(ready=0)
    listener.done.wait(LONGEST_S)
    consumer.shutdown()


if __name__ == "__main__":
    {"send": send, "kinds": kinds, "simple": simple, "push": push}[sys.argv[1]](*sys.argv[2:])
