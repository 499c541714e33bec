"""Which queues a topic has: what a question costs, and that it is right after deletions."""

from collections.abc import Iterator
from pathlib import Path

from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.topic_queues import TopicQueues
from storage_driver.record import MessageQueue, encode_topic
from storage_driver.store import open_store
from tests.storage_driver.test_store import message, put_all, small


class Walked(dict[MessageQueue, ConsumeQueue]):
    """Counts the keys that somebody walks over."""

    steps = 0

    def __reversed__(self) -> Iterator[MessageQueue]:
        for key in super().__reversed__():
            self.steps += 1
            yield key

    def __iter__(self) -> Iterator[MessageQueue]:
        for key in super().__iter__():
            self.steps += 1
            yield key


def add(queues: dict[MessageQueue, ConsumeQueue], topic: str, *ids: int) -> None:
    for queue_id in ids:
        key = MessageQueue(topic, queue_id)
        queues[key] = ConsumeQueue(key, encode_topic(topic))


def test_a_question_walks_over_no_queue_twice() -> None:
    queues, deletions = Walked(), 0
    found = TopicQueues(queues, lambda: deletions)
    for number in range(1000):
        add(queues, f"T{number}", 1, 0)
        assert found.of(f"T{number}") == [0, 1]
    assert (found.of("none"), len(found.topics()), queues.steps) == ([], 1000, 2000)


def test_a_deletion_and_as_many_new_queues_are_seen() -> None:
    queues, deletions = Walked(), 0
    found = TopicQueues(queues, lambda: deletions)
    add(queues, "A", 0, 1)
    add(queues, "B", 0)
    assert found.topics() == ["A", "B"]
    del queues[MessageQueue("A", 0)], queues[MessageQueue("A", 1)]
    deletions = 1
    add(queues, "C", 5, 3)
    assert (found.of("A"), found.of("B"), found.of("C"), found.topics()) == ([], [0], [3, 5], ["B", "C"])


async def test_a_store_tells_the_queues_of_a_topic_that_was_deleted_and_made_again(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=lambda: 1) as store:
        await put_all(store, [message(topic="T", queue_id=2), message(topic="T"), message(topic="U")])
        assert (store.queues("T"), store.topics()) == ([0, 2], ["T", "U"])
        await store.delete_topic("T")
        await put_all(store, [message(topic="V", queue_id=7), message(topic="T", queue_id=1)])
        assert (store.queues("T"), store.queues("V"), store.topics()) == ([1], [7], ["T", "U", "V"])
