"""What a command line asks of topics and groups, beside what is there."""

import argparse
from dataclasses import replace
from typing import Any

import pytest

from appliance.commands.messaging.table_settings import (
    asked_group,
    asked_topic,
    attribute_changes,
    left_queues,
    left_text,
    topic_text,
)
from netstack.wire.bodies_admin import SubscriptionGroup
from netstack.wire.bodies_route import TopicConfig

TOPIC = TopicConfig("T", 8, 4, 6, order=True, attributes={"acknowledge": "both"})


def line(**said: Any) -> argparse.Namespace:
    """Return a command line that says this alone."""
    names = ("queues", "perm", "type", "acknowledge", "retries", "consume", "broadcast", "ordered")
    return argparse.Namespace(**{**dict.fromkeys(names), **said})


def test_what_the_line_does_not_name_stays() -> None:
    assert asked_topic(TOPIC, line()) == TOPIC
    assert asked_topic(TOPIC, line(perm="r")) == replace(TOPIC, perm=4)
    assert asked_topic(TOPIC, line(queues=5)) == replace(TOPIC, read_queue_count=5, write_queue_count=5)
    group = SubscriptionGroup("G", retry_max_times=3, attributes={"priority.factor": "80"})
    assert asked_group(group, line(ordered=False)) == group  # one of 4.9 says nothing of order
    assert asked_group(group, line(ordered=True)) == replace(group, consume_message_orderly=True)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ({}, ""),
        ({"acknowledge": "both"}, ""),
        ({"acknowledge": "box"}, "-acknowledge"),
        ({"type": "FIFO", "acknowledge": "one"}, "+acknowledge=one,+message.type=FIFO"),
    ],
)
def test_attributes_are_sent_as_changes(said: dict[str, str], changes: str) -> None:
    assert attribute_changes(TOPIC, asked_topic(TOPIC, line(**said))) == changes


def test_queues_that_consumers_lose_are_those_of_the_broker_with_most() -> None:
    more = {"a": TOPIC, "b": replace(TOPIC, read_queue_count=9)}
    left = left_queues(more, 8)
    assert left_text("T", left, 1) == "Consumers of T will not read queue 8 any more, with 1 message."
    assert not left_queues(more, 9)


def test_a_topic_is_told_with_what_is_unusual() -> None:
    assert topic_text(TOPIC) == "8 queues, of them 4 for writing, acknowledge both"
    assert topic_text(TopicConfig("T", 1, 1, 2)) == "1 queue, permission write"
