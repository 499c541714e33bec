"""A log that lost its end is told as lost, whoever knows of it: with counts, until somebody has acknowledged it."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.files.checkpoint import CommittedFile
from storage_driver.files.disk import RealDisk
from storage_driver.index.index_file import IndexSize
from storage_driver.log.cut_history import CutDone
from storage_driver.log.truncation import BEGUN, Truncation
from storage_driver.queues.consume_queue import QueueFiles
from storage_driver.record import Message, MessageQueue, encode_host, encode_properties
from storage_driver.recovery.losing import Losing
from storage_driver.recovery.losses import Losses
from storage_driver.recovery.lost_numbers import LostNumbers
from storage_driver.recovery.witnesses import Witnesses
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk

HOST, NOW, SEGMENT, CUT = encode_host("127.0.0.1", 10911), 1_700_000_000_000, 1 << 20, 400_000
Sent = list[tuple[MessageQueue, int, int]]  # queue, number, log offset


def config(root: Path, **changes: Any) -> StoreConfig:
    small = {"segment_bytes": SEGMENT, "max_message_bytes": 64 << 10, "index_size": IndexSize(500, 9000)}
    return StoreConfig(root, HOST, **{**small, "queue_file_entries": 500, "flush_every_s": 0.01, **changes})


def message(number: int) -> Message:
    topic = "A" if number % 3 else "B"
    properties = encode_properties({"UNIQ_KEY": f"U{number}"})
    return Message(topic, number % 2, b"%600d" % number, properties, 0, 0, NOW, HOST)


async def fill(root: Path, count: int = 2000) -> Sent:
    """Send messages that are on the disk when this returns, some 1.5 MB of log; the position is saved behind them."""
    sent: Sent = []
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        for number in range(count):
            one = message(number)
            placed = store.put(one)
            sent.append((MessageQueue(one.topic, one.queue_id), placed.queue_offset, placed.log_offset))
        await store.wait_committed(placed.end)
        await store.prove()
    return sent


def first_file(root: Path) -> Path:
    return root / "commitlog" / f"{0:020d}"


def cut_short(root: Path) -> None:
    for file in sorted((root / "commitlog").iterdir())[1:]:
        file.unlink()
    os.truncate(first_file(root), CUT)


def zeroed(root: Path) -> None:
    for file in sorted((root / "commitlog").iterdir()):
        begin = CUT if file == first_file(root) else 0
        with file.open("r+b") as out:
            out.seek(begin)
            out.write(bytes(SEGMENT - begin))


def deleted(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def the_newest_is_deleted(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[-1].unlink()


def nothing(root: Path) -> None:
    """All of them know."""


def without_position(root: Path) -> None:
    (root / "rocketbox" / "position").unlink()


def without_tables(root: Path) -> None:
    """The queue files and the index are all there is."""
    shutil.rmtree(root / "rocketbox")


def with_receipts_alone(root: Path) -> None:
    for folder in ("rocketbox", "consumequeue", "index"):
        shutil.rmtree(root / folder)


def is_lost(log_offset: int, harm: Callable[[Path], None]) -> bool:
    if harm is the_newest_is_deleted:
        return log_offset >= SEGMENT
    return harm is deleted or log_offset >= CUT - 700


async def test_a_first_file_of_the_log_that_was_removed_is_lost(tmp_path: Path) -> None:
    sent = await fill(tmp_path)
    lost = Counter(queue for queue, _, log_offset in sent if log_offset < SEGMENT)
    first_file(tmp_path).unlink()
    for _ in range(2):
        async with open_store(config(tmp_path), now_ms=lambda: NOW) as store:
            (loss,) = store.losses.found
    assert (loss.ranges, loss.messages) == ([(0, SEGMENT)], sum(lost.values()))
    assert {(topic, queue_id): count for topic, queue_id, count in loss.queues} == dict(lost)
    assert loss.reasons == [f"commitlog/ begins at {SEGMENT}, it began at 0"]


async def test_what_retention_deleted_is_not_lost(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with open_store(config(tmp_path), now_ms=lambda: NOW) as store:
        assert await store.drop_first()
    async with open_store(config(tmp_path), now_ms=lambda: NOW) as store:
        assert (store.losses.found, store.verdict.first) == ([], SEGMENT)


async def test_a_full_disk_keeps_no_segment_from_deletion(tmp_path: Path) -> None:
    await fill(tmp_path)
    assert (tmp_path / "rocketbox" / "first").stat().st_blocks * 512 >= 8192, "both slots have their blocks"


@pytest.mark.parametrize("harm", [cut_short, zeroed, deleted, the_newest_is_deleted])
@pytest.mark.parametrize("left", [nothing, without_position, without_tables])
async def test_a_log_that_lost_its_end_says_how_many_messages_of_which_queues(
    tmp_path: Path, harm: Callable[[Path], None], left: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    sent = await fill(root)
    harm(root)
    left(root)
    expected = Counter(key for key, _, at in sent if is_lost(at, harm))
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        loss = store.verdict.lost
        assert loss is not None
        assert store.verdict.verdict == "lost"
        assert {MessageQueue(topic, queue): count for topic, queue, count in loss.queues} == expected
        assert loss.messages == sum(expected.values())
        assert loss.witnesses, "it says who knew of more"
        assert loss.ranges[-1][1] > sent[-1][2]
        assert store.losses.unacknowledged() == [loss]
        await goes_on(store, sent)
    assert json.loads(sorted((tmp_path / "verdicts").iterdir())[-1].read_text())["lost"]["messages"] == loss.messages


async def goes_on(store: MessageStore, sent: Sent) -> None:
    """Nothing that was given out is given out again: neither a number of a queue nor a place in the log."""
    highest = {key: number for key, number, _ in sent}
    for number in range(4):
        one = message(number)
        placed = store.put(one)
        assert placed.queue_offset > highest[MessageQueue(one.topic, one.queue_id)]
        highest[MessageQueue(one.topic, one.queue_id)] = placed.queue_offset
        assert placed.log_offset > sent[-1][2]
    await store.wait_committed(placed.end)


async def test_a_loss_is_told_once_and_stays_until_it_is_acknowledged_also_over_restarts(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root)
    cut_short(root)
    for start in range(3):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            assert (store.verdict.verdict == "lost") == (start == 0)
            assert len(store.losses.unacknowledged()) == 1
            assert (0, store.verdict.first) <= (store.first, sent[0][2])
    other = Losses(RealDisk(), root)  # of another process
    other.load()
    assert [loss.number for loss in other.acknowledge(NOW)] == [1]
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert (store.verdict.lost, store.losses.unacknowledged(), len(store.losses.found)) == (None, [], 1)


async def test_a_box_that_runs_sees_that_its_loss_was_acknowledged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root, 900)
    cut_short(root)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        other = Losses(RealDisk(), root)
        other.load()
        other.acknowledge(NOW)
        assert store.losses.unacknowledged() == []


async def test_the_uplink_hears_of_the_range(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root)
    cut_short(root)
    for _ in range(2):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            start, end = store.damaged()[0][0], store.damaged()[-1][1]
            assert start <= CUT < 2 * SEGMENT <= end, "what the next start hears of, too"


async def test_a_verdict_with_a_wrong_number_has_no_message_told_as_damaged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root)
    with first_file(root).open("r+b") as file:
        file.seek(sent[100][2] + 200)
        file.write(b"\xff" * 10)
    (root / "rocketbox/position").unlink()
    (root / "rocketbox/queues.json").unlink()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        found = [(sent[100][2], sent[101][2])]
        assert store.damaged() == found
    (verdict,) = [path for path in (tmp_path / "verdicts").iterdir() if "body CRC" in path.read_text()]
    for name, wrong in (("to", sent[900][2]), ("from", sent[90][2]), ("from", sent[100][2] - 7), ("to", 1 << 70)):
        told = json.loads(verdict.read_text())
        told["log"]["quarantined"].append({"from": found[0][0], "to": found[0][1], name: wrong})
        verdict.write_text(json.dumps(told))
    os.mkfifo(tmp_path / "verdicts/store-000009-000000000000009.json")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.damaged() == found


async def test_receipts_alone_know_that_there_was_more(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root)
    zeroed(root)
    with_receipts_alone(root)
    receipts = {"receipts of the gateway": sent[-1][2]}
    async with open_store(config(root), now_ms=lambda: NOW, others=receipts) as store:
        loss = store.verdict.lost
        assert loss is not None
        assert loss.witnesses == receipts
        assert store.put(message(0)).log_offset > sent[-1][2]


async def test_with_thousands_of_queues_that_are_trusted_the_same_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root)
    cut_short(root)
    async with open_store(config(root, trust_queues_above=1), now_ms=lambda: NOW) as store:
        expected = Counter(key for key, _, at in sent if is_lost(at, cut_short))
        assert store.verdict.lost is not None
        assert {MessageQueue(t, q): count for t, q, count in store.verdict.lost.queues} == expected
        await goes_on(store, sent)


async def test_what_was_never_synced_is_a_torn_tail_and_no_loss(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root, 300)
    with first_file(root).open("r+b") as file:
        file.seek(sent[-1][2])
        tail = file.read(5000).rstrip(b"\0")
        file.seek(sent[-1][2] + len(tail) + 4)
        file.write(tail[4:200])  # the sectors of a batch that was being written
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert (store.verdict.verdict, store.verdict.lost) == ("clean_tail", None)
        assert store.verdict.torn_bytes > 0


async def test_one_segment_that_was_cut_short_does_not_make_its_length_that_of_all_segments(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root, 900)
    os.truncate(first_file(root), CUT)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.segment_bytes == SEGMENT


async def share(root: Path, keep: int) -> int:
    """Fill a log that others share, of which the first `keep` messages are committed; return where it ends."""
    async with open_store(config(root, shared=True), now_ms=lambda: NOW) as store:
        synced = trio.Event()
        store.share(lambda log_offset: synced.set() if log_offset >= ends[-1] else None)
        ends = [store.put(message(number)).end for number in range(300)]
        await synced.wait()
        store.commit(ends[keep - 1])
        await store.wait_committed(ends[keep - 1])
        await store.prove()
        return store.synced


async def test_a_cut_that_the_journal_speaks_of_is_no_loss_begun_or_done(tmp_path: Path) -> None:
    root = tmp_path / "store"
    end = await share(root, 80)
    async with open_store(config(root, shared=True), now_ms=lambda: NOW) as store:
        at = store.committed
        assert at < end == store.synced
    Truncation(RealDisk(), root)._save(CutDone(at, end, "the leader differs", []), BEGUN)
    for _ in range(2):
        async with open_store(config(root, shared=True), now_ms=lambda: NOW) as store:
            assert (store.synced, store.verdict.lost) == (at, None)


async def test_the_committed_mark_knows_what_a_shared_log_lost(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await share(root, 80)
    known = CommittedFile(RealDisk(), root / "rocketbox" / "committed").load()
    os.truncate(first_file(root), 8192)
    for name in ("consumequeue", "index", "rocketbox/position", "rocketbox/queues.json"):
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    async with open_store(config(root, shared=True), now_ms=lambda: NOW) as store:
        assert store.verdict.lost is not None
        assert store.verdict.lost.witnesses == {"the committed mark": known}


def test_a_range_that_nobody_knew_to_be_durable_is_not_lost_and_nothing_is_written() -> None:
    disk = MemoryDisk(folders=("/", "/store"))
    losing = Losing(Losses(disk, Path("/store")), Witnesses(), LostNumbers(QueueFiles(disk, Path("/store"))), NOW)
    losing.note(100, 200, "torn")
    assert (losing.finish(), disk.list(Path("/store/rocketbox"))) == (None, [])
    losing.witnesses.add("somebody", 150)
    losing.note(100, 200, "gone")
    loss = losing.finish()
    assert loss is not None
    assert loss.ranges == [(100, 150)]


@pytest.mark.slow
async def test_an_end_of_more_than_64_files_that_is_lost_is_told_and_no_number_comes_again(tmp_path: Path) -> None:
    small = {"segment_bytes": 80 * 1024, "max_message_bytes": 8 << 10}
    ends = dict[MessageQueue, int]()
    async with open_store(config(tmp_path, **small), now_ms=lambda: NOW) as store:
        for number in range(900):
            one = message(number)._replace(body=bytes(6000))
            placed = store.put(one)
            ends[MessageQueue(one.topic, one.queue_id)] = placed.queue_offset + 1
            if number % 100 == 99:
                await store.wait_committed(placed.end)
        await store.prove()
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) > 66
    for file in files[1:]:
        file.unlink()
    for _ in range(2):
        async with open_store(config(tmp_path, **small), now_ms=lambda: NOW) as store:
            assert {queue: store.max_offset(queue) for queue in ends} == ends
            assert store.first == 0
            assert store.end >= placed.end
            assert len(store.losses.found) == 1
            assert store.losses.messages() == sum(ends.values()) - 13


async def test_a_damaged_topic_that_no_folder_can_have_is_told_and_refuses_no_start(tmp_path: Path) -> None:
    root = tmp_path / "store"
    sent = await fill(root, 30)
    with first_file(root).open("r+b") as file:
        raw = file.read()
        at = raw.index(b"\1A", sent[10][2])  # of three letters now: one of the properties goes to it
        file.seek(at)
        file.write(b"\3\xed\xa0\x80")
    with first_file(root).open("r+b") as file:
        properties = int.from_bytes(raw[at + 2 : at + 4], "big") - 2
        file.seek(at + 4)
        file.write(properties.to_bytes(2, "big"))
    (root / "rocketbox/position").unlink()
    (root / "rocketbox/queues.json").unlink()
    for _ in range(2):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            assert not [text for text in store.verdict.reasons if "losses.json" in text]
            assert store.put(message(0)).queue_offset > 0
