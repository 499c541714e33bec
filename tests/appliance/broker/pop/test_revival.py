"""Expired messages: retention may have taken them, the log may take copies back."""

from pathlib import Path

import pytest
import trio

from appliance.broker.delay import redelivery
from storage_driver.errors import LogFailed
from storage_driver.record import MessageQueue
from tests.appliance.broker.pop.bench import GROUP, TOPIC, bodies, pop_bench
from tests.waiting import until

RETRY = MessageQueue("%RETRY%G_T", 0)


async def test_an_expired_message_that_the_log_no_longer_has_is_done(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        await bench.receive(invisible_ms=1000)
        await bench.small.store.delete_topic(TOPIC)
        await until(lambda: bench.engine._revival.gone == 1)
        assert bench.table.in_flight == 0
        assert bench.small.store.max_offset(RETRY) == 0


async def test_messages_in_memory_are_stored_again_without_a_read_of_the_disk(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(*(b"%d" % number for number in range(5)))
        before = bench.small.store._lookup.cold_reads
        await bench.receive(invisible_ms=1)
        await until(lambda: bench.engine._revival.copied == 5)
        assert bench.small.store._lookup.cold_reads == before


async def test_where_the_limit_of_topics_leaves_none_for_retries_an_expired_message_comes_again_in_its_place(
    tmp_path: Path,
) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.topics.rules = bench.topics.rules._replace(most=1)
        await bench.send(b"1")
        for _ in range(4):  # as often as it would be a dead letter, and more
            assert bodies(await bench.receive(invisible_ms=1, poll_s=60)) == [b"1"]
        assert bench.topics.get(RETRY.topic) is None


async def test_copies_that_the_log_took_back_are_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "RETRY_S", 0.01)
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        failures = [LogFailed("the disk is full, the copies were undone")]
        wait = bench.small.store.wait_committed

        async def wait_committed(log_offset: int) -> None:
            if failures:
                raise failures.pop()
            await wait(log_offset)

        monkeypatch.setattr(bench.small.store, "wait_committed", wait_committed)
        await bench.receive(invisible_ms=1)
        await until(lambda: bench.offsets.get(GROUP, TOPIC, 0) == 2)
        assert bench.engine._revival.copied == 2
        found = await bench.small.wait_for(RETRY.topic, 4)  # only this test took the first two back
        assert [message.body for message in found] == [b"1", b"2", b"1", b"2"]
        assert sorted(bodies(await bench.receive())) == [b"1", b"1", b"2", b"2"]


async def test_after_a_crash_a_message_whose_copy_is_there_does_not_come_a_second_time(tmp_path: Path) -> None:
    async with pop_bench(tmp_path, run=False) as bench, trio.open_nursery() as nursery:
        nursery.start_soon(bench.engine.journal.run)
        await bench.send(b"1", b"2")
        await bench.receive(invisible_ms=0)
        ((take, offsets),) = bench.table.expire(10)
        copies = bench.engine._copies
        for offset in offsets:  # the copy of the second one is not made before the crash
            stored = await copies.find(take.queue.key.queue, offset)
            assert stored is not None
            mark = bench.table.copying(take.queue, (offset,), copies.place(GROUP, stored))
            await bench.engine.wait_synced(mark)
            if not offset:
                await bench.small.store.wait_committed((await copies.again(GROUP, stored, 1)).end)
        nursery.cancel_scope.cancel()
    async with pop_bench(tmp_path) as bench:
        bench.topics.ensure(RETRY.topic, queues=1)
        got: list[bytes] = []
        while len(got) < 2:
            got += bodies(await bench.receive(poll_s=10))
        assert sorted(got) == [b"1", b"2"]
        assert [message.body for message in await bench.small.all(RETRY.topic)] == [b"1", b"2"]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 2
