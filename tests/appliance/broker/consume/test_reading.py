"""What a read finds, asked without a wire: one queue or several, what is there or what comes."""

from pathlib import Path

import trio
import trio.lowlevel
import trio.testing

from appliance.broker.consume.reading import FilteredReader
from appliance.testing import FakePeer, SmallStore, small_store
from storage_driver.reading import FoundStatus, ReadRequest
from storage_driver.record import Message, MessageQueue, encode_properties

QUEUES = [MessageQueue("T", number) for number in range(3)]


def put(small: SmallStore, queue: MessageQueue, body: bytes, tag: str = "") -> None:
    properties = encode_properties({"TAGS": tag} if tag else {})
    small.store.put(
        Message(queue.topic, queue.queue_id, body, properties, 0, 0, 1_700_000_000_000, b"\x7f\0\0\1\0\0\0\1")
    )


def wanted(queue: MessageQueue, queue_offset: int = 0, word: bytes = b"") -> ReadRequest:
    """Want a queue's messages, or those that have a word in them."""
    return ReadRequest(queue, queue_offset, 32, 1 << 18, None, (lambda record: word in bytes(record)) if word else None)


async def test_a_wait_for_several_queues_ends_with_the_one_that_has_something(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small, trio.open_nursery() as nursery:
        reader, results = FilteredReader(small.store, small.arrivals), list[tuple[int, int]]()

        async def wait() -> None:
            number, found = await reader.wait([wanted(q) for q in QUEUES], FakePeer(), group="g", timeout_s=60)
            results.append((number, found.records))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert results == []
        put(small, QUEUES[2], b"here")
        with trio.fail_after(20):
            while not results:
                await trio.lowlevel.checkpoint()
        assert results == [(2, 1)]
        assert small.arrivals._waiters == {}, "nobody waits in the other queues any more"


async def test_what_is_there_already_ends_a_wait_at_once(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        reader = FilteredReader(small.store, small.arrivals)
        put(small, QUEUES[1], b"early")
        await small.wait_for("T", 1, 1)
        number, found = await reader.wait([wanted(q) for q in QUEUES], FakePeer(), group="g", timeout_s=60)
        assert (number, found.status) == (1, FoundStatus.FOUND)


async def test_a_wait_that_ends_in_vain_tells_how_far_it_looked(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        reader = FilteredReader(small.store, small.arrivals)
        put(small, QUEUES[0], b"other")
        await small.wait_for("T", 1)
        number, found = await reader.wait([wanted(QUEUES[0], word=b"ZEBRA")], FakePeer(), group="g", timeout_s=0)
        assert (number, found.status, found.next_offset) == (0, FoundStatus.NO_MATCHED, 1)


async def test_a_read_gives_back_the_room_it_reserved(tmp_path: Path) -> None:
    class Room:
        held = most = 0

        async def reserve(self, size: int, /) -> None:
            self.held += size
            self.most = max(self.most, self.held)

        def give_back(self, size: int, /) -> None:
            self.held -= size

    async with small_store(tmp_path) as small:
        put(small, QUEUES[0], b"a ZEBRA")
        put(small, QUEUES[0], b"ab")
        await small.wait_for("T", 2)
        room, reader = Room(), FilteredReader(small.store, small.arrivals)
        found = await reader.read(wanted(QUEUES[0], word=b"ZEBRA"), room)
        assert (found.status, found.records, room.held) == (FoundStatus.FOUND, 1, 0)
        assert room.most >= 1 << 18
