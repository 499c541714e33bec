"""A copy taken while the box runs is a store of its own; what is no whole copy is refused in one sentence."""

import json
import random
from pathlib import Path

import pytest

from storage_driver.backup import MANIFEST, backup, restore
from storage_driver.config import StoreConfig
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.vote_file import VoteFile
from storage_driver.errors import StoreRefused
from storage_driver.files import unreadable
from storage_driver.files.disk import RealDisk
from storage_driver.record import Message, MessageQueue, decode_record, encode_host
from storage_driver.store import MessageStore, open_store
from tests.bad_disk import BadDisk
from tests.costs import peak

HOST = encode_host("127.0.0.1", 10911)
SEGMENT = 128 * 1024


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, HOST, segment_bytes=SEGMENT, max_message_bytes=32 * 1024, queue_file_entries=100, index_enabled=False
    )


def message(number: int) -> Message:
    return Message("T", 0, b"%d " % number + random.Random(number).randbytes(900), b"", 0, 0, 1, HOST)


async def fill(store: MessageStore, numbers: range) -> list[int]:
    placed = [store.put(message(i)) for i in numbers]
    await store.wait_committed(placed[-1].end)
    await store.prove()
    return [p.log_offset for p in placed]


async def numbers_in(root: Path) -> list[int]:
    found, queue = [], MessageQueue("T", 0)
    async with open_store(config(root), now_ms=lambda: 5) as store:
        at = store.min_offset(queue)
        while at < store.max_offset(queue):
            got = await store.read(queue, at, max_count=64, max_bytes=1 << 20)
            for chunk in got.chunks:
                i = 0
                while i < len(chunk):
                    record = decode_record(chunk, i)
                    found.append(int(record.body.split(b" ")[0]))
                    i += record.size
            at = got.next_offset
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


async def test_a_backup_of_a_running_store_is_consistent_and_restores(root: Path, tmp_path: Path) -> None:
    copy, again = tmp_path / "copy", tmp_path / "again"
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(200))
        store.state_file("consumerOffset").save({"offset": 7})
        facts = backup(root, copy)
        assert (facts.end, facts.segments) == (store.committed, 2)
        await fill(store, range(200, 300))
        epoch = store.lineage.epoch
    restored = restore(copy, again)
    assert restored == facts
    async with open_store(config(again), now_ms=lambda: 5) as store:
        assert store.state_file("consumerOffset").load() == {"offset": 7}
        assert (store.lineage.epoch, len(store.lineage.runs)) == (epoch, 2)
    assert await numbers_in(again) == list(range(200))
    for bad in ((copy, again), (tmp_path / "none", tmp_path / "x")):
        with pytest.raises(StoreRefused):
            restore(*bad)
    with pytest.raises(StoreRefused, match="not empty"):
        backup(root, copy)


async def test_a_backup_has_all_that_the_disk_gives_back_and_names_the_rest(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    disk = BadDisk()
    async with open_store(config(root), now_ms=lambda: 5) as store:
        placed = await fill(store, range(200))
        bad = placed[50] // 4096 * 4096
        disk.bad[f"commitlog/{0:020d}"] = [(bad, bad + 1)]
        monkeypatch.setattr("storage_driver.backup.RealDisk", lambda: disk)
        facts = backup(root, tmp_path / "copy")
    assert len(facts.unreadable) == 1
    restore(tmp_path / "copy", tmp_path / "again")
    async with open_store(config(tmp_path / "again"), now_ms=lambda: 5) as store:
        assert store.verdict.verdict in ("lost", "salvaged")
    sizes = zip(placed, [*placed[1:], placed[-1] + 2000], strict=True)
    lost = [number for number, (at, end) in enumerate(sizes) if at < bad + 4096 and end > bad]
    assert await numbers_in(tmp_path / "again") == [number for number in range(200) if number not in lost]


async def test_a_member_that_is_restored_counts_as_one_with_a_new_disk(root: Path, tmp_path: Path) -> None:
    """It has voted and acknowledged since, and knows nothing of it."""
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(20))
    VoteFile(RealDisk(), root / "rocketbox/vote").create(HardState(4, "a"))
    backup(root, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    assert VoteFile(RealDisk(), tmp_path / "again/rocketbox/vote").load() == HardState(4, "a", filling=True)


async def test_the_original_is_left_alone_and_what_is_not_to_be_copied_is_not(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(20))
        (root / "config" / "half.json.tmp").write_bytes(b"half")
        before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}  # noqa: ASYNC240
        steps: list[tuple[int, int]] = []
        backup(root, tmp_path / "copy", progress=lambda done, total: steps.append((done, total)))
        assert before == {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}  # noqa: ASYNC240
    assert steps == [(SEGMENT, SEGMENT)]
    names = {str(p.relative_to(tmp_path / "copy")) for p in (tmp_path / "copy").rglob("*") if p.is_file()}
    assert MANIFEST in names
    assert not {"config/half.json.tmp", "rocketbox/position", "rocketbox/first", "lock", "abort"} & names


async def test_bytes_behind_the_last_whole_record_are_left_out(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store, range(10))
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[8])
        file.write(b"torn" * 100)
        file.seek(places[9])
        file.write(b"torn" * 100)
    facts = backup(root, tmp_path / "copy")
    assert (facts.end, facts.bytes) == (places[8], SEGMENT)
    copied = (tmp_path / "copy" / "commitlog" / f"{0:020d}").read_bytes()
    assert copied[places[8] :] == bytes(SEGMENT - places[8])
    restore(tmp_path / "copy", tmp_path / "again")
    assert await numbers_in(tmp_path / "again") == list(range(8))


async def test_damage_with_good_messages_behind_it_is_copied_so_that_none_of_them_is_lost(
    root: Path, tmp_path: Path
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store, range(10))
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[4] + 300)
        file.write(b"!!!!")
    backup(root, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    assert await numbers_in(tmp_path / "again") == [n for n in range(10) if n != 4]


async def test_a_log_that_begins_late_is_copied_from_there(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store, range(300))
        await store.drop_first(0)
        facts = backup(root, tmp_path / "copy")
    assert (facts.first, facts.segments) == (SEGMENT, 2)
    restore(tmp_path / "copy", tmp_path / "again")
    assert await numbers_in(tmp_path / "again") == [n for n, place in enumerate(places) if place >= SEGMENT]


async def test_a_store_without_messages_comes_back_with_its_tables(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        store.state_file("topics").save({"asOf": 0})
        facts = backup(root, tmp_path / "copy")
    assert (facts.first, facts.end, facts.segments, facts.bytes) == (0, 0, 0, 0)
    assert restore(tmp_path / "copy", tmp_path / "again") == facts
    assert json.loads((tmp_path / "again" / "config" / "topics.json").read_bytes()) == {"asOf": 0}


def test_a_folder_without_a_store_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="does not contain a store"):
        backup(tmp_path / "none", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


WHOLE = {"layout": 1, "first": 0, "end": 9, "segments": 1, "bytes": SEGMENT}


@pytest.mark.parametrize(
    "text",
    [
        *["", "null", "7", '"x"', "[]", "{}", '{"layout": "new"}', '{"layout": 1}'],
        json.dumps(WHOLE | {"more": 1}),
        json.dumps({key: value for key, value in WHOLE.items() if key != "end"}),
        "\udcff",
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreRefused, match="does not contain a backup"):
        restore(tmp_path, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_backup_of_a_newer_program_asks_for_an_update(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(WHOLE | {"layout": 2}))
    with pytest.raises(StoreRefused, match="update this one"):
        restore(tmp_path, tmp_path / "store")


@pytest.mark.parametrize("harm", ["a file is missing", "a file is short"])
async def test_a_backup_that_is_not_whole_any_more_is_not_restored_as_if_it_were(
    root: Path, tmp_path: Path, harm: str
) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(200))
        backup(root, tmp_path / "copy")
    first = tmp_path / "copy" / "commitlog" / f"{0:020d}"
    if harm == "a file is missing":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:5000])
    with pytest.raises(StoreRefused, match=r"incomplete.*--salvage"):
        restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_target_that_is_a_file_is_an_error_and_stays_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / MANIFEST).write_text(json.dumps(WHOLE | {"segments": 0, "bytes": 0}))
    with pytest.raises(OSError, match="file"):
        restore(tmp_path, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"mine"


LINKED = ["config/evil.json", "rocketbox/identity.json", "config", "commitlog", f"commitlog/{0:020d}", "backup.json"]


@pytest.mark.parametrize("linked", LINKED)
async def test_a_link_in_a_backup_is_not_followed(root: Path, tmp_path: Path, linked: str) -> None:
    """Root restores what others had on a stick: their link to /etc/shadow is no table."""
    copy, again, elsewhere = tmp_path / "copy", tmp_path / "again", tmp_path / "elsewhere"
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(20))
    backup(root, copy)
    place = copy / linked
    if place.exists():
        place.rename(elsewhere)
    else:
        elsewhere.write_text('{"secret": 1}')
    place.symlink_to(elsewhere)
    with pytest.raises(StoreRefused, match="symbolic link"):
        restore(copy, again)
    assert not any("secret" in path.read_text() for path in again.rglob("*.json"))


@pytest.mark.parametrize("linked", ["config/topics.json", "config", "rocketbox", "commitlog"])
async def test_a_link_where_a_store_shall_be_is_not_written_through(root: Path, tmp_path: Path, linked: str) -> None:
    copy, again, elsewhere = tmp_path / "copy", tmp_path / "again", tmp_path / "elsewhere"
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await store.state_file("topics").write({"topics": 1})
        await fill(store, range(20))
    backup(root, copy)
    (again / linked).parent.mkdir(parents=True)
    if linked.endswith("json"):
        elsewhere.write_text("theirs")
    else:
        elsewhere.mkdir()
    (again / linked).symlink_to(elsewhere)
    with pytest.raises(StoreRefused, match="symbolic link"):
        restore(copy, again)
    assert elsewhere.read_text() == "theirs" if elsewhere.is_file() else not list(elsewhere.iterdir())


async def test_a_link_among_the_tables_of_a_store_does_not_go_onto_the_stick(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(20))
    secret = tmp_path / "shadow"
    secret.write_text('{"secret": 1}')
    (root / "config" / "evil.json").symlink_to(secret)
    with pytest.raises(StoreRefused, match="symbolic link"):
        backup(root, tmp_path / "copy")


async def test_a_folder_that_is_named_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(20))
    (tmp_path / "disk").mkdir()
    (tmp_path / "stick").symlink_to(tmp_path / "disk")
    backup(root, tmp_path / "stick")
    restore(tmp_path / "stick", tmp_path / "again")
    assert await numbers_in(tmp_path / "again") == list(range(20))


async def test_a_huge_file_of_holes_among_the_tables_is_not_read_into_memory(root: Path, tmp_path: Path) -> None:
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await fill(store, range(3))
    backup(root, tmp_path / "copy")
    with (tmp_path / "copy" / "config" / "large.json").open("wb") as large:
        large.write(b"{}")
        large.truncate(600 << 20)
    with peak() as taken:
        restore(tmp_path / "copy", tmp_path / "again")
    assert taken() < 16 << 20
    with (tmp_path / "again" / "config" / "large.json").open("rb") as large:
        assert large.read(2) == b"{}"
