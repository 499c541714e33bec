"""Taking from one queue: where a group begins, how much it gets, and messages that are no longer there."""

from pathlib import Path
from typing import Any

import pytest

from appliance.broker.pop.pop_table import key_of
from appliance.broker.pop.taking import again_for
from storage_driver.reading import ReadResult
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_record, encode_topic
from tests.appliance.broker.pop.bench import GROUP, TOPIC, bodies, handles, pop_bench


async def test_a_group_without_an_offset_begins_at_the_start_of_a_young_queue_or_before_the_end(
    tmp_path: Path,
) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3")
        assert bodies(await bench.receive(group="young", from_end=True)) == [b"1", b"2", b"3"]
        store = bench.small.store
        read = store.read

        async def from_far_behind(queue: MessageQueue, queue_offset: int, **more: Any) -> ReadResult:
            found = await read(queue, queue_offset, **more)
            return found._replace(suggest_slow=True) if more["max_bytes"] == 1 else found

        store.read = from_far_behind  # type: ignore[method-assign]
        assert bodies(await bench.receive(group="late", from_end=True)) == [b"3"]
        assert bodies(await bench.receive(group="early")) == [b"1", b"2", b"3"]


async def test_a_retry_topic_is_consumed_from_its_start(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.topics.ensure("%RETRY%G_T", queues=1)
        await bench.send(b"1", b"2", topic="%RETRY%G_T")
        assert bodies(await bench.receive(from_end=True)) == [b"1", b"2"]


async def test_an_answer_has_at_most_32_messages_and_some_bytes(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(*[b"x"] * 40)
        assert len(bodies(await bench.receive(1000))) == 32
        await bench.send(*[b"x" * 60_000] * 8, queue_id=1)
        assert len(bodies(await bench.receive(queue_id=1))) == 4


async def test_messages_that_come_again_in_their_place_are_no_more_than_an_answer(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(*[b"x" * 60_000] * 14)
        for _ in range(3):
            await bench.receive(queue_id=0)
        queue = bench.table.get(key_of(GROUP, TOPIC, 0))
        assert queue is not None
        for offset, take in list(queue.in_flight.items()):  # as where a bad sector lets none of them be stored again
            bench.table._count_takes([take])
            queue.in_flight[offset] = None
            bench.table.bring_again(queue, offset, 1)
        answers = [await bench.receive(queue_id=0) for _ in range(3)]
        assert [answer.slices[0].offsets for answer in answers] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13]]


async def test_messages_that_retention_took_are_passed_over(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        for _ in range(40):
            await bench.send(*[b"x" * 60_000])
        first = await bench.receive(1)
        while bench.small.store.min_offset(MessageQueue(TOPIC, 0)) == 0:
            await bench.small.store.drop_first()
        low = bench.small.store.min_offset(MessageQueue(TOPIC, 0))
        answer = await bench.receive(1)
        assert answer.slices[0].offsets == [low]
        await bench.acknowledge(*handles(first), *handles(answer))
        assert bench.offsets.get(GROUP, TOPIC, 0) == low + 1


async def test_an_offset_behind_the_end_goes_back_to_it(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        bench.offsets.commit(GROUP, TOPIC, 0, 99)
        assert bodies(await bench.receive()) == []
        await bench.send(b"2")
        assert bodies(await bench.receive()) == [b"2"]


async def test_two_receivers_do_not_read_the_same_queue_at_once(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        await bench.receive()
        for queue in bench.table.all():
            queue.busy = True
        await bench.send(b"2")
        assert bodies(await bench.receive()) == []


@pytest.mark.parametrize("host", [encode_host("10.0.0.1", 1), encode_host("2001:db8::1", 1)])
def test_a_record_counts_deliveries_from_its_place(host: bytes) -> None:
    message = Message("T", 0, b"body", b"", 3, 0, 123, host, 2)
    record = encode_record(message, encode_topic("T"), 7, 4096, stored_ms=456, store_host=host)
    counted = decode_record(again_for(record, 3))
    assert counted == decode_record(record)._replace(reconsume_times=5)
    assert again_for(record, 0) is record
    most = (1 << 31) - 1  # a sender may say so
    assert decode_record(again_for(record, most)).reconsume_times == most
