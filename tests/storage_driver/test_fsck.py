import json
import random
from pathlib import Path

import pytest

from storage_driver import fsck
from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused
from storage_driver.files import unreadable
from storage_driver.queues.consume_queue import ENTRY_BYTES
from storage_driver.record import (
    SCHEDULE_TOPIC,
    Message,
    MessageQueue,
    decode_record,
    encode_host,
    encode_properties,
)
from storage_driver.store import MessageStore, open_store
from tests.bad_disk import BadDisk

HOST = encode_host("127.0.0.1", 10911)
SEGMENT = 128 * 1024


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, HOST, segment_bytes=SEGMENT, max_message_bytes=32 * 1024, queue_file_entries=100, index_enabled=False
    )


def message(number: int) -> Message:
    return Message("T", number % 2, b"%d " % number + random.Random(number).randbytes(900), b"", 0, 0, 1, HOST)


async def fill(store: MessageStore, numbers: range) -> list[int]:
    placed = []
    for start in range(numbers.start, numbers.stop, 15):  # so few that a slow disk refuses none
        placed += [store.put(message(i)) for i in range(start, min(start + 15, numbers.stop))]
        await store.wait_committed(placed[-1].end)
    await store.prove()
    return [p.log_offset for p in placed]


async def numbers_in(root: Path) -> list[int]:
    found = []
    async with open_store(config(root), now_ms=lambda: 5) as store:
        for queue_id in (0, 1):
            queue, at = MessageQueue("T", queue_id), store.min_offset(MessageQueue("T", queue_id))
            while at < store.max_offset(queue):
                got = await store.read(queue, at, max_count=1, max_bytes=1)
                found += [int(decode_record(chunk).body.split(b" ")[0]) for chunk in got.chunks]
                at = got.next_offset
    return sorted(found)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


@pytest.mark.slow
async def test_a_sound_store_has_no_findings_and_is_not_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(300))
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}  # noqa: ASYNC240
    assert fsck.main([str(root.parent), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["queues"], report["findings"], report["segments"]) == (300, 2, [], 3)
    assert report["entries_checked"] == 300
    assert before == {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}  # noqa: ASYNC240


@pytest.mark.slow
async def test_damage_is_named_and_intact_messages_are_salvaged(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store, range(300))
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[10] + 200)
        file.write(b"!!!!")
    with (root / "consumequeue" / "T" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(20 * 3)
        file.write(bytes(20))
    assert fsck.main([str(root)]) == 1
    text = capsys.readouterr().out
    assert f"log {places[10]} to {places[11]}: body CRC differs" in text
    assert "consumequeue/T/1: entry 3" in text
    out = tmp_path / "out"
    assert fsck.main([str(root), "--salvage", str(out)]) == 1
    assert "salvaged 299 messages" in capsys.readouterr().out
    assert await numbers_in(out) == [i for i in range(300) if i != 10]
    async with open_store(config(out), now_ms=lambda: 5) as store:
        assert store.max_offset(MessageQueue("T", 0)) == 150
    with pytest.raises(StoreRefused, match="not empty"):
        fsck.salvage(root, out)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1])
async def test_a_log_whose_last_files_are_gone_is_a_finding(root: Path, kept: int) -> None:
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await fill(store, range(400))
    for segment in sorted((root / "commitlog").iterdir())[kept:]:
        segment.unlink()
    assert any("files are gone" in text for text in fsck.check(root).findings)
    async with open_store(config(root), now_ms=lambda: 1):
        pass
    assert not any("files are gone" in text for text in fsck.check(root).findings)


async def test_what_a_bad_disk_gives_back_is_checked_and_salvaged(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store, range(300))
    disk = BadDisk()
    disk.bad[f"commitlog/{0:020d}"] = [(20_000, 20_001)]
    disk.bad["config/topics.json"] = disk.bad["rocketbox/position"] = [(0, 10)]
    monkeypatch.setattr(fsck, "RealDisk", lambda: disk)
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    assert fsck.main([str(root)]) == 1
    text = capsys.readouterr().out
    assert f"commitlog/{0:020d}: the disk does not give back bytes 16384 to 20480" in text
    assert "rocketbox/position: the disk does not give back" in text
    assert fsck.main([str(root), "--salvage", str(tmp_path / "out")]) == 1
    left = [i for i, at in enumerate(places) if at >= 20480 or places[i + 1] <= 16384]
    assert await numbers_in(tmp_path / "out") == left
    assert 290 < len(left) < 297


@pytest.mark.slow
async def test_a_topic_that_was_deleted_or_made_anew_is_no_finding_and_harm_to_its_new_life_is(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await store.wait_committed(store.put(message(0)._replace(topic="U")).end)
        await fill(store, range(60))
        await store.delete_topic("T")
        await store.delete_topic("U")
        await fill(store, range(20))
    assert fsck.main([str(root)]) == 0, capsys.readouterr().out
    queue_file = root / "consumequeue" / "T" / "1" / f"{0:020d}"
    with queue_file.open("r+b") as file:
        file.seek(ENTRY_BYTES * 3)
        file.write(bytes(ENTRY_BYTES))
    assert fsck.main([str(root)]) == 1
    assert "consumequeue/T/1: entry 3 is (0, 0, 0)" in capsys.readouterr().out
    queue_file.unlink()
    assert fsck.main([str(root)]) == 1
    assert "consumequeue/T/1: entry 0 is nothing" in capsys.readouterr().out


async def test_a_salvage_says_that_it_looked_at_the_log_alone(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(10))
    for queue_file in (root / "consumequeue").rglob("0" * 20):
        queue_file.write_bytes(b"")
    assert fsck.main([str(root), "--salvage", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "queues   not checked, like index and tables: a salvage reads only the log" in text
    assert "verdict  nothing wrong in the log\n" in text
    assert fsck.main([str(root), "--salvage", str(tmp_path / "again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log_only"] is True


async def test_rebuild_makes_queues_anew_at_the_next_start(root: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(300))
        assert fsck.main([str(root), "--rebuild"]) == 2  # in use
    assert fsck.main([str(root), "--rebuild"]) == 0
    assert not (root / "consumequeue").exists()
    assert await numbers_in(root) == list(range(300))


def test_a_folder_without_a_store_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck.main([str(tmp_path / "none")]) == 2
    assert "does not contain a store" in capsys.readouterr().err


async def test_delay_levels_of_the_broker_are_no_finding_and_a_due_time_in_a_century_is(root: Path) -> None:
    settings = config(root)._replace(delays_ms=(400, 9_999_000))
    queue = MessageQueue(SCHEDULE_TOPIC, 1)
    async with open_store(settings, now_ms=lambda: 5) as store:
        for number in range(3):
            properties = encode_properties({"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "0"})
            placed = store.put(Message(*queue, b"%d" % number, properties, 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        await store.prove()
    assert fsck.check(root).findings == []
    with (root / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(ENTRY_BYTES + 12)
        file.write((1 << 42).to_bytes(8, "big"))
    assert "entry 1" in fsck.check(root).findings[0]


def test_the_folder_is_named_as_for_other_commands_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck.main(["--data", str(tmp_path / "none")]) == fsck.main([str(tmp_path / "none")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == second
    assert fsck.main([]) == fsck.main(["a", "--data", "b"]) == 2
    assert capsys.readouterr().err.count("fsck: pass one folder: DIR or --data DIR") == 2
