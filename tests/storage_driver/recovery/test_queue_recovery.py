"""Where queues end after a start, from their files and the log, over a disk in memory that a test damages."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE, HOLE_SIZE
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.recovery import queue_recovery
from storage_driver.recovery.losses import Losses
from storage_driver.recovery.opening import open_folder
from storage_driver.recovery.recovery import Recovered
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk

HOST = encode_host("127.0.0.1", 10911)
ROOT = Path("/data/store")
PER_FILE = 10
SEGMENT = 128 * 1024
T, U = MessageQueue("T", 0), MessageQueue("U", 3)


def config(**changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": SEGMENT,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": PER_FILE,
        "index_enabled": False,
        "scrub_mib_per_h": 0,
    }
    return StoreConfig(ROOT, HOST, **settings | changes)


def path(key: MessageQueue, first: int) -> str:
    return f"{ROOT}/consumequeue/{key.topic}/{key.queue_id}/{first * ENTRY_BYTES:020d}"


class Box:
    """A store on a disk in memory: `places` are the log offsets of each queue's messages."""

    def __init__(self) -> None:
        self.disk = MemoryDisk(folders=("/", "/data"))
        self.places: dict[MessageQueue, list[int]] = {T: [], U: []}

    async def fill(self, count: int = 25, more: Callable[[MessageStore], Any] | None = None) -> None:
        """Store messages in both queues by turns; queues, position and table are on the disk then."""
        async with open_store(config(), now_ms=lambda: 5, disk=self.disk) as store:
            for number in range(count):
                for key in (T, U):
                    placed = store.put(Message(*key, b"%d " % number + bytes(200), b"", 0, 0, 1, HOST))
                    self.places[key].append(placed.log_offset)
            await store.wait_committed(placed.end)
            await store.prove()
            if more is not None:
                await more(store)

    def entries(self, key: MessageQueue) -> list[tuple[int, int, int]]:
        found, first = [], 0
        while path(key, first) in self.disk.names:
            found += list(ENTRY.iter_unpack(self.content(path(key, first))))
            first += PER_FILE
        return found

    def content(self, name: str) -> bytes:
        return bytes(self.disk.inodes[self.disk.names[name]].bytes)

    def scribble(self, name: str, at: int, raw: bytes) -> None:
        content = bytearray(self.content(name))
        content[at : at + len(raw)] = raw
        self.disk.inodes[self.disk.names[name]].bytes = bytes(content)

    def forget_position(self) -> None:
        """Let the next start scan the whole log, and know of no queue but what the files say."""
        for name in [name for name in self.disk.names if name.startswith(f"{ROOT}/rocketbox/")]:
            if Path(name).name.startswith(("position", "queues.json")):
                self.disk.remove(Path(name))

    def start(self, **changes: Any) -> Recovered:
        return open_folder(
            config(**changes), self.disk, now_ms=lambda: 5, new_id=lambda: 1, progress=lambda done, total: None
        ).recovered

    def is_right(self, key: MessageQueue, count: int = 25) -> bool:
        found = self.entries(key)
        return [entry[0] for entry in found[:count]] == self.places[key] and not any(any(e) for e in found[count:])


def zeros_below_the_end(box: Box) -> None:
    box.scribble(path(T, 20), 4 * ENTRY_BYTES, bytes(ENTRY_BYTES))


def garbage_behind_the_end(box: Box) -> None:
    box.scribble(path(T, 20), 5 * ENTRY_BYTES, random.Random(1).randbytes(3 * ENTRY_BYTES))


def an_entry_for_a_record_behind_the_log(box: Box) -> None:
    box.scribble(path(T, 20), 5 * ENTRY_BYTES, ENTRY.pack(box.places[T][-1] + 100_000, 300, 0))


def the_last_points_at_a_record_of_another_queue(box: Box) -> None:
    box.scribble(path(T, 20), 4 * ENTRY_BYTES, ENTRY.pack(box.places[U][-1], 290, 0))


def a_file_is_gone(box: Box) -> None:
    box.disk.remove(Path(path(T, 10)))


def the_first_file_is_gone(box: Box) -> None:
    box.disk.remove(Path(path(T, 0)))


def the_last_file_is_gone(box: Box) -> None:
    box.disk.remove(Path(path(T, 20)))


def a_file_is_short(box: Box) -> None:
    name = path(T, 10)
    box.disk.inodes[box.disk.names[name]].bytes = box.content(name)[:150]


def a_foreign_file_lies_there(box: Box) -> None:
    box.disk.open(Path(path(T, 0)).with_name("notes"), create=True)


def a_file_too_many(box: Box) -> None:
    box.disk.open(Path(path(T, 40)), create=True).resize(PER_FILE * ENTRY_BYTES)


def all_of_the_folder_is_gone(box: Box) -> None:
    box.disk.remove_folder(ROOT / "consumequeue" / "T")


HARMS = [
    zeros_below_the_end,
    garbage_behind_the_end,
    an_entry_for_a_record_behind_the_log,
    the_last_points_at_a_record_of_another_queue,
    a_file_is_gone,
    the_first_file_is_gone,
    the_last_file_is_gone,
    a_file_is_short,
    a_foreign_file_lies_there,
    a_file_too_many,
    all_of_the_folder_is_gone,
]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("scan", ["from the position", "of the whole log"])
async def test_after_any_harm_to_its_files_a_queue_is_what_the_log_says_and_the_others_are_left_alone(
    harm: Callable[[Box], None], scan: str
) -> None:
    box = Box()
    await box.fill()
    if scan == "of the whole log":
        box.forget_position()
    harm(box)
    untouched = [box.disk.names[path(U, first)] for first in (0, 10, 20)]
    found = box.start()
    assert {key: queue.next_offset for key, queue in found.queues.items()} == {T: 25, U: 25}
    assert all(queue.visible == queue.written == 25 for queue in found.queues.values())
    assert box.is_right(T)
    assert box.is_right(U)
    assert [box.disk.names[path(U, first)] for first in (0, 10, 20)] == untouched
    assert found.queues[T].last_log_offset == box.places[T][-1]
    assert all("consumequeue/U" not in reason for reason in found.verdict.reasons)
    again = box.start()
    assert (again.verdict.queues_rebuilt, again.verdict.queues_cut) == (0, 0), "put right once and for all"


def the_whole_log_is_scanned(box: Box) -> None:
    box.forget_position()


def a_backup_was_restored(box: Box) -> None:
    box.forget_position()
    box.disk.remove_folder(ROOT / "consumequeue")


@pytest.mark.parametrize("before", [the_whole_log_is_scanned, a_backup_was_restored, all_of_the_folder_is_gone])
@pytest.mark.parametrize("bit", [0, 4, 10, 21, 40, 62, 63])
async def test_one_wrong_bit_of_a_number_in_the_log_costs_that_message_alone(
    before: Callable[[Box], None], bit: int
) -> None:
    for victim in (0, 5, 16, 23):
        box = Box()
        await box.fill()
        before(box)
        box.scribble(f"{ROOT}/commitlog/{0:020d}", box.places[T][victim] + 20, (victim ^ 1 << bit).to_bytes(8, "big"))
        found, losses = box.start(), Losses(box.disk, ROOT)
        assert (found.queues[T].next_offset, found.queues[T].visible) == (25, 25)
        assert [size == HOLE_SIZE for _, size, _ in box.entries(T)[:25]] == [n == victim for n in range(25)]
        assert box.is_right(U)
        losses.load()
        assert [(loss.damaged, loss.messages, loss.queues) for loss in losses.found] == [(True, 1, [("T", 0, 1)])]
        assert found.verdict.verdict == "salvaged"


@pytest.mark.parametrize("table_is_old", [False, True])
async def test_entries_lost_since_the_table_of_queues_before_are_noticed(table_is_old: bool) -> None:
    box = Box()
    table, backup = f"{ROOT}/rocketbox/queues.json", f"{ROOT}/rocketbox/queues.json.bak"
    older = b""

    async def more(store: MessageStore) -> None:
        nonlocal older
        older = box.content(table)
        for _ in range(4):
            placed = store.put(Message(*T, bytes(200), b"", 0, 0, 1, HOST))
            box.places[T].append(placed.log_offset)
            await store.wait_committed(placed.end)
        await store.prove()

    await box.fill(count=25, more=more)
    if table_is_old:  # as with thousands of queues
        for name in (table, backup):
            box.disk.inodes[box.disk.names[name]].bytes = older
    box.scribble(path(T, 20), 6 * ENTRY_BYTES, bytes(3 * ENTRY_BYTES))
    recovered = box.start()
    assert box.is_right(T, 29)
    assert recovered.queues[T].next_offset == 29


async def test_numbers_of_lost_messages_at_the_end_are_kept_over_any_number_of_starts() -> None:
    box = Box()
    await box.fill()
    for number in (23, 24):
        box.scribble(path(T, 20), (number - 20) * ENTRY_BYTES, HOLE)
    for _ in range(3):
        found = box.start()
        assert (found.queues[T].next_offset, found.verdict.queues_rebuilt) == (25, 0)
        assert [entry[1] for entry in box.entries(T)[22:26]] == [box.entries(T)[22][1], HOLE_SIZE, HOLE_SIZE, 0]


async def test_a_queue_of_holes_alone_keeps_its_end() -> None:
    box = Box()
    await box.fill(3)
    box.scribble(path(T, 0), 0, HOLE * 3)
    assert box.start().queues[T].next_offset == 3


async def test_entries_behind_a_log_that_lost_its_end_keep_their_numbers_and_are_counted() -> None:
    box = Box()
    await box.fill()
    cut_at = box.places[T][12]
    log = f"{ROOT}/commitlog/{0:020d}"
    box.scribble(log, cut_at, bytes(SEGMENT - cut_at))
    box.forget_position()
    found = box.start()
    lost = found.verdict.lost
    assert lost is not None
    assert (found.end, found.queues[T].next_offset, found.queues[U].next_offset) == (SEGMENT, 25, 25)
    assert (lost.ranges[0][0], sorted(lost.queues)) == (cut_at, [(*T, 13), (*U, 13)])


async def test_a_topic_deleted_and_made_again_begins_at_zero_also_when_the_log_has_both_lives() -> None:
    box = Box()

    async def again(store: MessageStore) -> None:
        await store.delete_topic("T")
        box.places[T] = []
        for number in range(4):
            placed = store.put(Message(*T, b"new %d" % number, b"", 0, 0, 1, HOST))
            box.places[T].append(placed.log_offset)
        await store.wait_committed(placed.end)
        await store.prove()

    await box.fill(25, again)
    for harm in (None, box.forget_position, lambda: a_foreign_file_lies_there(box)):
        if harm is not None:
            harm()
        found = box.start()
        assert found.queues[T].next_offset == 4
        assert box.is_right(T, 4)


async def test_a_rebuilding_that_was_cut_short_is_done_again() -> None:
    box = Box()
    await box.fill()
    a_file_is_short(box)
    steps = len(box.disk.steps)
    reference = box.disk.copy()
    box.start()
    taken = len(box.disk.steps) - steps
    assert taken > 10
    for cut in range(2, taken, 3):
        box.disk = reference.copy()
        box.disk.fail_at, box.disk.keep_failing = cut, True
        with suppress(StoreRefused):  # what fails after the queues is no reason to refuse
            box.start()
        box.disk = box.disk.restarted()
        found = box.start()
        assert found.queues[T].next_offset == 25
        assert box.is_right(T)


async def test_with_a_table_of_many_queues_the_files_are_not_opened_but_for_those_the_scan_meets() -> None:
    box = Box()
    await box.fill()
    zeros_below_the_end(box)  # nobody looks
    found = box.start(trust_queues_above=1)
    assert set(found.trusted) == {T, U}
    assert {key: queue.next_offset for key, queue in found.queues.items()} == {T: 25, U: 25}
    assert found.queues[T].last_log_offset == box.places[T][-1]


async def test_a_long_scan_writes_its_entries_on_the_way_and_ends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box()
    await box.fill()
    monkeypatch.setattr(queue_recovery, "FLUSH_ENTRIES", 3)
    all_of_the_folder_is_gone(box)
    box.forget_position()
    found = box.start()
    assert found.queues[T].next_offset == 25
    assert box.is_right(T)
    assert box.is_right(U)


@pytest.mark.parametrize("name", ["T\u00e4\ud800x", "x" * 128, "T/notes", "T/007x", "T/\u00b2", "\u00b2/\u00b2"])
async def test_folders_that_are_no_queue_keep_no_store_from_starting(name: str) -> None:
    box = Box()
    await box.fill(3)
    box.disk.make_folder(ROOT / "consumequeue" / name / ("0" if "/" not in name else ""))
    found = box.start()
    assert {key: queue.next_offset for key, queue in found.queues.items() if queue.next_offset} == {T: 3, U: 3}
    assert box.start(trust_queues_above=1).queues[T].next_offset == 3
