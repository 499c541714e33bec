"""Any bytes in the data folder end in a store that serves, and the verdict names what was wrong."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage_driver.config import StoreConfig
from storage_driver.files.checkpoint import CheckpointValues, PositionFile
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile, parse_state
from storage_driver.index.index_file import IndexSize
from storage_driver.log.scan import FILLER_TOPIC, is_filler, walk
from storage_driver.queues.consume_queue import HOLE
from storage_driver.queues.queue_table import save_table, table_file, table_value
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
SEGMENT = 128 * 1024
NOW = 1_700_000_000_000


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "root": root,
        "store_host": HOST,
        "segment_bytes": SEGMENT,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": 100,
        "index_size": IndexSize(50, 200),
        "flush_every_s": 0.01,
    }
    return StoreConfig(**settings | changes)


def message(number: int, topic: str = "T") -> Message:
    body = b"%d " % number + random.Random(number).randbytes(900)
    return Message(topic, number % 3, body, encode_properties({"UNIQ_KEY": f"U{number}"}), 0, 0, NOW, HOST)


async def write(root: Path, count: int = 400) -> list[tuple[int, int, int, bytes]]:
    """Fill a store, return (queue, queue offset, log offset, body) of its messages."""
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        placed = [(m, store.put(m)) for m in map(message, range(count))]
        await store.wait_committed(placed[-1][1].end)
        await store.prove()
        return [(m.queue_id, p.queue_offset, p.log_offset, m.body) for m, p in placed]


async def read_all(store: MessageStore) -> dict[tuple[int, int], bytes]:
    found = {}
    for queue_id in store.queues("T"):
        queue = MessageQueue("T", queue_id)
        at = store.min_offset(queue)
        while at < store.max_offset(queue):
            got = await store.read(queue, at, max_count=64, max_bytes=1 << 20)
            for chunk in got.chunks:
                i = 0
                while i < len(chunk):
                    m = decode_record(chunk, i)
                    found[queue_id, m.queue_offset] = m.body
                    i += m.size
            at = got.next_offset
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


def scribble(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


async def test_damage_in_the_middle_is_quarantined_and_everything_behind_it_stays(root: Path) -> None:
    sent = await write(root)
    victim = sent[30]
    original = segment(root, 0).read_bytes()[victim[2] : sent[31][2]]
    scribble(segment(root, 0), victim[2] + 500, b"!!!!")
    (root / "rocketbox" / "position").unlink()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.verdict.verdict == "lost"  # the table of queues knows that it was durable
        assert [(d.start, d.end) for d in store.verdict.quarantined] == [(victim[2], sent[31][2])]
        found = await read_all(store)
        assert found == {(q, n): body for q, n, at, body in sent if at != victim[2]}
        assert store.max_offset(MessageQueue("T", 0)) == max(n for q, n, _, _ in sent if q == 0) + 1
        kept = (root / "quarantine" / str(store.verdict.quarantined[0].aside)).read_bytes()
        assert kept[:400] == original[:400]
        entry = next(walk(store._log.segments[0], victim[2]))
        assert not isinstance(entry, tuple) or entry[0] == victim[2]
        assert is_filler(entry)  # type: ignore[arg-type]
        assert FILLER_TOPIC not in store.topics()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert (store.verdict.verdict, store.verdict.quarantined) == ("clean", [])
    verdicts = sorted((root.parent / "verdicts").iterdir())
    assert json.loads(verdicts[-2].read_text())["log"]["quarantined"][0]["from"] == victim[2]


async def test_a_lost_number_at_a_queues_end_is_not_given_out_again(root: Path) -> None:
    sent = await write(root, 30)
    scribble(segment(root, 0), sent[-1][2] + 500, b"!!!!")
    (root / "rocketbox" / "position").unlink()
    scribble(segment(root, 0), sent[-1][2] + 2000, b"not a record")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        last = sent[-1]
        queue = MessageQueue("T", last[0])
        assert store.max_offset(queue) == last[1] + 1
        assert store.verdict.verdict == "lost"


async def test_a_dead_message_does_not_come_back_after_the_tail_was_cut(root: Path) -> None:
    """Three records of one length, the second destroyed, all behind it cut, one appended: two messages, not three."""
    sent = await write(root, 3)
    os.truncate(segment(root, 0), sent[1][2] + 8)
    (root / "rocketbox" / "position").unlink()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.end == SEGMENT, "no offset that was given out is given out again"
        placed = store.put(message(1))
        await store.wait_committed(placed.end)
    (root / "rocketbox" / "position").unlink()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert sorted(await read_all(store)) == [(0, 0), (1, 1)]  # somebody may know a message by number 0


async def test_lost_queue_files_and_index_are_made_anew(root: Path) -> None:
    sent = await write(root)
    expected = {(q, n): body for q, n, _, body in sent}
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.verdict.verdict == "repaired"
        assert await read_all(store) == expected


async def test_a_queue_made_anew_after_half_of_it_has_left_keeps_its_numbers_behind_blank_entries(root: Path) -> None:
    sent = await write(root)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert await store.drop_first()
        first = store.first
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    kept = {(q, n): body for q, n, at, body in sent if at >= first}
    low = min(number for queue, number in kept if queue == 1)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.verdict.queues_rebuilt == 1
        assert await read_all(store) == kept
        assert store.min_offset(MessageQueue("T", 1)) == low > 0
        placed = store.put(message(1)._replace(queue_id=1))
        await store.wait_committed(placed.end)
        assert placed.queue_offset == sum(queue == 1 for queue, *_ in sent)
    raw = (root / "consumequeue" / "T" / "1" / f"{0:020d}").read_bytes()
    assert raw[: 20 * low] == HOLE * low


@pytest.mark.parametrize("lost", [("queues.json",), ("queues.json", "queues.json.bak")])
async def test_the_end_of_a_queue_is_found_without_its_table(root: Path, lost: tuple[str, ...]) -> None:
    save_table(table_file(RealDisk(), root), table_value(0, []))  # so that there is a version before
    sent = await write(root)
    for name in lost:
        (root / "rocketbox" / name).unlink()
    scribble(root / "consumequeue" / "T" / "1" / f"{2000:020d}", 20 * 10, bytes(20 * 90))
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert await read_all(store) == {(q, n): body for q, n, _, body in sent}
        placed = store.put(message(1)._replace(queue_id=1))
        assert placed.queue_offset == sum(queue == 1 for queue, *_ in sent)
        await store.wait_committed(placed.end)


async def test_a_queue_made_anew_has_what_lies_behind_damage_and_keeps_the_numbers_of_what_is_lost(root: Path) -> None:
    sent = await write(root)
    lost = sent[40]
    scribble(segment(root, 0), lost[2] + 200, b"!!!!")  # below the restart position: nobody has met it yet
    number = sum(queue == 2 for queue, *_ in sent)
    last = max(at for queue, _, at, _ in sent if queue == 2)
    os.truncate(segment(root, last // SEGMENT), last % SEGMENT)
    for queue_id in (1, 2):
        shutil.rmtree(root / "consumequeue" / "T" / str(queue_id))
    for start in range(3):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            assert store.verdict.queues_rebuilt == (2 if start == 0 else 0)
            kept = {(q, n): body for q, n, at, body in sent if at != lost[2] and at < last}
            assert {key: body for key, body in (await read_all(store)).items() if key != (2, number)} == kept
            assert store.max_offset(MessageQueue("T", 2)) == number + start // 2
            if start == 1:
                placed = store.put(message(2))
                await store.wait_committed(placed.end)
                assert placed.queue_offset == number


async def test_a_lost_index_is_named_and_made_anew(root: Path) -> None:
    sent = await write(root)
    shutil.rmtree(root / "index")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert (store.verdict.verdict, store.verdict.index_rebuilt) == ("repaired", 1)
        await store.prove()
        for number in (0, len(sent) - 1):
            found = await store.find_by_key("T", f"U{number}", 9, 0, 1 << 62)
            assert [decode_record(raw).body for raw in found] == [sent[number][3]]


@pytest.mark.parametrize("damaged", range(4))
async def test_an_index_with_a_damaged_file_is_made_anew_from_there_on(root: Path, damaged: int) -> None:
    small = config(root, index_size=IndexSize(50, 61))
    sent = []
    async with open_store(small, now_ms=lambda: NOW) as store:
        for number in range(200):
            sent.append(store.put(message(number)))
            await store.wait_committed(sent[-1].end)
        await store.prove()
    files = sorted((root / "index").iterdir())
    assert len(files) == 4
    scribble(files[damaged], 36, b"\x7f")  # the number of entries
    async with open_store(small, now_ms=lambda: NOW) as store:
        assert store.verdict.verdict == "repaired"
        assert store.verdict.index_rebuilt
        await store.prove()
        for number in range(200):
            assert len(await store.find_by_key("T", f"U{number}", 9, 0, 1 << 62)) == 1, number


async def test_a_lost_segment_becomes_a_gap_and_numbers_go_on(root: Path) -> None:
    sent = await write(root)
    segment(root, 1).unlink()
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert await read_all(store) == {(q, n): body for q, n, at, body in sent if at // SEGMENT != 1}
        assert (store.verdict.verdict, store.verdict.lost.ranges) == ("lost", [(SEGMENT, 2 * SEGMENT)])  # type: ignore[union-attr]
        placed = store.put(message(400))
        assert placed.queue_offset == max(n for q, n, _, _ in sent if q == 1) + 1


@pytest.mark.parametrize("position", [True, False])
async def test_a_file_far_from_the_log_is_set_aside_and_no_blanks_lead_up_to_it(root: Path, position: bool) -> None:
    sent = await write(root)
    found = {q: max(n for each, n, _, _ in sent if each == q) for q in range(3)}
    (root / "rocketbox" / "position").unlink() if not position else None
    other = root.parent / "other"
    (other / "rocketbox").mkdir(parents=True)
    far = 100_000 * SEGMENT
    PositionFile(RealDisk(), other / "rocketbox" / "position").save(CheckpointValues(far, far, 1, NOW, bytes(16)))
    theirs = await write(other, 30)
    shutil.copy(segment(other, 100_000), segment(root, 100_000))
    for number in (90_000, (1 << 63) // SEGMENT):
        segment(root, number).write_bytes(b"foreign")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert await read_all(store) == {(q, n): body for q, n, _, body in sent}
        assert (store.verdict.verdict, store.verdict.quarantined) == ("salvaged", [])
        assert sum("quarantine/" in reason for reason in store.verdict.reasons) == 3
        placed = store.put(message(400))
        assert (placed.queue_offset, placed.log_offset // SEGMENT) == (found[1] + 1, sent[-1][2] // SEGMENT)
    kept = (root / "quarantine" / f"commitlog-{segment(root, 100_000).name}").read_bytes()
    assert decode_record(kept, 0).body == theirs[0][3], "what it holds is not lost"


async def test_a_file_without_a_record_behind_a_gap_is_no_part_of_the_log(root: Path) -> None:
    sent = await write(root)
    shutil.copy(segment(root, 0), segment(root, 9))
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert await read_all(store) == {(q, n): body for q, n, _, body in sent}
        assert (store.verdict.verdict, store.verdict.quarantined) == ("repaired", [])
        assert any("quarantine/commitlog" in reason for reason in store.verdict.reasons)
        assert store.put(message(400)).log_offset // SEGMENT == sent[-1][2] // SEGMENT


async def test_the_whole_log_lost_gives_out_no_number_and_no_offset_twice(root: Path) -> None:
    sent = await write(root)
    shutil.rmtree(root / "commitlog")
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        placed = store.put(message(400))
        await store.wait_committed(placed.end)
        assert placed.queue_offset == max(n for q, n, _, _ in sent if q == 1) + 1
        assert placed.log_offset > sent[-1][2]
        assert list(await read_all(store)) == [(1, placed.queue_offset)]


async def test_the_position_keeps_the_scan_short(root: Path) -> None:
    sent = await write(root)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert store.verdict.scanned_from > sent[-2][2]
        assert store.verdict.verdict == "clean"


async def test_a_layout_newer_than_the_program_is_refused(root: Path) -> None:
    from storage_driver.errors import StoreRefused

    await write(root, 3)
    (root / "rocketbox" / "identity.json").write_text(json.dumps({"layout": 99, "epochs": [[1, 0]], "runs": []}))
    with pytest.raises(StoreRefused, match="layout 99"):
        async with open_store(config(root), now_ms=lambda: NOW):
            pass


def harm(path: Path, pick: random.Random) -> str:
    """Do one kind of harm to a file."""
    size = path.stat().st_size
    kind = pick.choice(("flip", "truncate", "zero", "garbage", "remove", "grow"))
    if kind == "flip":
        at = pick.randrange(max(1, min(size, 60_000)))
        byte = path.read_bytes()[at : at + 1] or b"\0"
        scribble(path, at, bytes([byte[0] ^ 1 << pick.randrange(8)]))
    elif kind == "truncate":
        os.truncate(path, pick.randrange(size + 1))
    elif kind == "zero":
        at = pick.randrange(size + 1)
        scribble(path, at, bytes(min(4096, size - at)))
    elif kind == "garbage":
        at = pick.randrange(size + 1)
        scribble(path, at, pick.randbytes(min(4096, size - at)))
    elif kind == "remove":
        path.unlink()
    else:
        with path.open("ab") as file:
            file.write(pick.randbytes(100))
    return f"{kind} {path.name}"


def why_unreadable(path: Path) -> str | None:
    """Return why a table or the position cannot be read, None when it can, or when it is another file or gone."""
    if not path.exists() or (path.suffix != ".json" and path.name != "position"):
        return None
    if path.name == "position":
        position = PositionFile(RealDisk(), path)
        position.load()
        return position.damage
    try:
        parse_state(path.read_bytes())
    except ValueError as exc:
        return str(exc)
    return None


@pytest.mark.slow
async def test_harm_to_any_file_ends_in_a_store_that_serves(root: Path, tmp_path: Path) -> None:
    sent = await write(root, 300)
    StateFile(RealDisk(), root / "config" / "topics.json").save({"asOf": 0, "topicConfigTable": {}})
    original = {(q, n): body for q, n, _, body in sent}
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    pick = random.Random(7)
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())  # noqa: ASYNC240
    for number in range(4 * len(names)):
        shutil.rmtree(root)
        shutil.copytree(whole, root)
        name = names[number % len(names)]
        what = harm(root / name, pick)
        unreadable = why_unreadable(root / name)
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            found = await read_all(store)
            assert all(original.get(key) == body for key, body in found.items()), (number, what)
            if not name.startswith("commitlog"):
                assert found == original, (number, what, store.verdict)
            placed = store.put(message(300))
            await store.wait_committed(placed.end)
            assert (0, placed.queue_offset) not in original, (number, what)
            if unreadable is not None:
                assert any(name in reason for reason in store.verdict.reasons), (what, store.verdict.reasons)


@pytest.mark.slow
async def test_foreign_and_swapped_files_do_not_keep_the_store_from_serving(root: Path) -> None:
    sent = await write(root, 300)
    for name in ("x.tmp", "00000000000000000007", "notes", "99999999999999999999"):
        (root / "commitlog" / name).write_bytes(b"foreign")
        (root / "consumequeue" / "T" / "0" / name).write_bytes(b"foreign")
        (root / "index" / name).write_bytes(b"foreign")
    (root / "commitlog" / "folder").mkdir()
    a, b = segment(root, 0), segment(root, 1)
    a.rename(root / "t")
    b.rename(a)
    (root / "t").rename(b)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        found = await read_all(store)
        assert all(found[q, n] == body for q, n, at, body in sent if at // SEGMENT == 2)
        assert store.verdict.verdict in ("salvaged", "repaired")
        placed = store.put(message(0))
        await store.wait_committed(placed.end)


@pytest.mark.parametrize(("at_byte", "value"), [(1, b"\0"), (1, b"/"), (-5, b"\x80")])
async def test_a_record_whose_queue_can_be_none_is_told_and_keeps_no_other_from_its_own(
    root: Path, at_byte: int, value: bytes
) -> None:
    await write(root, 50)
    for name in ("position", "queues.json", "queues.json.bak"):
        (root / "rocketbox" / name).unlink(missing_ok=True)
    raw = segment(root, 0).read_bytes()
    topic = raw.find(b"\x01T\0", 5000)
    head = raw.rfind(b"\xda\xa3\x20\xa7", 0, topic) - 4
    scribble(segment(root, 0), topic + 1 if at_byte > 0 else head + 12, value)
    for start in range(2):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            assert (store.topics(), len(await read_all(store))) == (["T"], 49)
            assert store.losses.messages() == 0
            assert [loss.messages for loss in store.losses.found] == [1]
            assert start or store.verdict.verdict == "salvaged"
            await store.prove()
