"""Copies of messages: what they keep of the first one."""

from pathlib import Path

from appliance.broker.pop.copies import Copies, CopyTables
from appliance.testing import NoStats
from storage_driver.record import MessageQueue
from tests.appliance.broker.pop.bench import GROUP, TOPIC, pop_bench


async def test_a_copy_keeps_the_first_pop_time_and_a_dead_letter_names_topic_and_message(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        copies = Copies(bench.small.store, CopyTables(bench.topics, bench.groups, NoStats()))
        await bench.send(b"1", tags="A")
        first = await copies.find(MessageQueue(TOPIC, 0), 0)
        assert first is not None
        once = await copies.again(GROUP, first, 5)
        await bench.small.store.wait_committed(once.end)
        again = await copies.find(MessageQueue("%RETRY%G_T", 0), 0)
        assert again is not None
        assert (again.reconsume_times, again.property_map["1ST_POP_TIME"], again.queue_id) == (1, "5", 0)
        await bench.small.store.wait_committed((await copies.again(GROUP, again, 9)).end)
        twice = await copies.find(MessageQueue("%RETRY%G_T", 0), 1)
        assert twice is not None
        assert (twice.reconsume_times, twice.property_map["1ST_POP_TIME"]) == (2, "5")
        await bench.small.store.wait_committed((await copies.again(GROUP, twice, 11)).end)
        (dead,) = await bench.small.all("%DLQ%G")
    assert dead.property_map["RETRY_TOPIC"] == TOPIC
    assert dead.property_map["ORIGIN_MESSAGE_ID"] == twice.message_id
    assert dead.property_map["TAGS"] == "A"


async def test_a_message_that_is_gone_is_not_found(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        copies = Copies(bench.small.store, CopyTables(bench.topics, bench.groups, NoStats()))
        assert await copies.find(MessageQueue(TOPIC, 0), 7) is None


async def test_copies_tell_which_messages_they_were_made_of(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        copies = Copies(bench.small.store, CopyTables(bench.topics, bench.groups, NoStats()))
        await bench.send(b"1", b"2", b"3")
        found = [await copies.find(MessageQueue(TOPIC, 0), offset) for offset in range(3)]
        places = []
        for each in found[:2]:
            assert each is not None
            places.append(copies.place(GROUP, each))
            await bench.small.store.wait_committed((await copies.again(GROUP, each, 5)).end)
        assert [place.start for place in places] == [0, 1]
        assert await copies.sources(places[0]) == {"T 0 0", "T 0 1"}
        assert await copies.sources(places[1]) == {"T 0 1"}
        await bench.send(b"of somebody else", topic=places[0].topic)
        assert await copies.sources(places[0]._replace(start=2)) == set()
