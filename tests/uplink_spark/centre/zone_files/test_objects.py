"""A landing zone in S3, spoken to through boto3 and served by moto over HTTP: the whole way, fence and restart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from uplink_spark.__main__ import main
from uplink_spark.box.stick import export_pieces, import_receipts
from uplink_spark.centre.fleet import check
from uplink_spark.centre.gateway import run_gateway
from uplink_spark.centre.lander import Offer, ShardLander
from uplink_spark.centre.shard_group import owner_path, owners_of
from uplink_spark.centre.verify import verify_piece
from uplink_spark.centre.zone_files.bucket_store import BucketStore
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.keeping import open_keeping
from uplink_spark.centre.zone_files.landing import NewPiece
from uplink_spark.centre.zone_files.object_store import ObjectStore
from uplink_spark.centre.zone_files.objects import ObjectRecords, ObjectShardWriter, open_object_zone
from uplink_spark.centre.zone_files.records import day_of
from uplink_spark.centre.zone_files.retention import clean
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import ConfigError, LandingError
from uplink_spark.testing import SOURCE, MadeRecord, RecordingSender, log_piece
from uplink_spark.testing_site import box, message, until
from uplink_spark.wire import frames
from uplink_spark.wire.frames import FrameType, Hello, encode_frame
from uplink_spark.wire.link import FrameReader
from uplink_spark.zone import rollup
from uplink_spark.zone.manifest import DAY_MS, ManifestTail
from uplink_spark.zone.reader import ZoneReader
from uplink_spark.zone.rollup import chain_of, rolled_folder

pytestmark = pytest.mark.slow
NOW = 1_700_000_000_000
RECORDS = [MadeRecord(queue_offset=n) for n in range(10)]


def tail(store: ObjectStore) -> ManifestTail:
    def read(path: str, at: int) -> bytes | None:
        data = store.get(path)
        return None if data is None else data[at:]

    return ManifestTail(0, store.names("manifest/0000"), read)


def writer(store: BucketStore) -> tuple[ObjectShardWriter, ShardCover]:
    cover = ShardCover()
    made = ObjectShardWriter(store, 0)
    made.open(cover)
    return made, cover


def piece(start: int) -> NewPiece:
    header, container = log_piece(RECORDS, start)
    return NewPiece(header, container, ((header.start, header.end),))


def test_what_is_committed_is_followed_from_object_to_object_and_survives_a_restart(url: str) -> None:
    store = ObjectStore(url)
    zone = open_object_zone(store, 1)
    assert open_object_zone(store, 4) == zone
    first, _ = writer(store)
    reader = tail(store)
    for n in range(3):
        first.commit([piece(n * 970), piece(10_000 + n * 970)], NOW)
        assert [entry.seq for entry in reader.poll()] == [2 * n, 2 * n + 1]
    again, cover = writer(store)
    assert again.next_seq == 6
    assert list(cover.boxes["box-17"].epochs[SOURCE.epoch].data) == [(0, 2910), (10_000, 12_910)]
    entry = tail(store).poll()[3]
    assert store.get(entry.pack, entry.offset, entry.stored_bytes) == piece(10_970).container


def test_of_two_writers_the_second_to_name_a_seq_stops(url: str) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    one, _ = writer(store)
    two, _ = writer(store)
    one.commit([piece(0)], NOW)
    with pytest.raises(LandingError, match="another gateway wrote seq 0"):
        two.commit([piece(970)], NOW)
    assert [entry.start for entry in tail(store).poll()] == [0]
    pytest.importorskip("pyarrow")
    (found,) = check(ZoneReader(url), deep=True)
    assert (found.sha_ok, found.findings) == (1, [])
    assert found.orphans == []  # what was put there before the race was lost is gone


def test_a_state_object_shortens_the_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.STATE_ENTRIES", 2)
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, cover = writer(store)
    for n in range(5):
        for entry in first.commit([piece(n * 970)], NOW):
            cover.note(entry)
    assert any(name.endswith(".state") for name in store.names("manifest/0000"))
    again, seen = writer(store)
    assert (again.next_seq, list(seen.boxes["box-17"].epochs[SOURCE.epoch].data)) == (5, [(0, 4850)])


def test_a_start_lists_the_end_of_the_manifest_alone_and_all_of_it_without_a_state(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.STATE_ENTRIES", 2)
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.REWRITTEN_COMMITS", 2)
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 2)
    store, listed = ObjectStore(url), list[tuple[str, int]]()
    open_object_zone(store, 1)
    first, cover = writer(store)
    for n in range(12):
        for entry in first.commit([piece(n * 970)], NOW):
            cover.note(entry)
    names = store.names

    def counting(folder: str, *, deep: bool = False, after: str = "") -> list[str]:
        found = names(folder, deep=deep, after=after)
        listed.append((folder, len(found)))
        return found

    monkeypatch.setattr(store, "names", counting)
    again, seen = writer(store)
    assert (again.next_seq, list(seen.boxes["box-17"].epochs[SOURCE.epoch].data)) == (12, [(0, 11_640)])
    found = dict(listed)
    assert found["manifest/0000"] < 12  # of 12 objects and 5 states
    assert found[f"pack/0000/{day_of(NOW)}"] == 0  # those behind the last entry
    for name in names("manifest/0000"):
        if name.endswith(".state"):
            store.delete(f"manifest/0000/{name}")
    again, seen = writer(store)
    assert (again.next_seq, list(seen.boxes["box-17"].epochs[SOURCE.epoch].data)) == (12, [(0, 11_640)])


def test_small_records_lie_beside_the_packs(url: str) -> None:
    store = ObjectStore(url)
    records = ObjectRecords(store, 1)
    records.save("box-17", 5, ((7, 0), (8, 100)))
    assert records.load("box-17").runs == {5: ((7, 0), (8, 100))}
    records.retire("box-17")
    assert records.load("box-17").retired


async def test_status_lines_of_a_failing_store_are_written_later_and_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(url)
    records, put, answers = ObjectRecords(store, 1), store.put, iter([False, True, True])

    def put_sometimes(path: str, data: bytes) -> None:
        put(path, data)
        if not next(answers):
            raise OSError("object store: no answer")

    monkeypatch.setattr(store, "put", put_sometimes)
    hello = Hello("box-17", ((5, 0),), ((7, 0),), 0, 97, NOW, 1, "x")
    status = frames.Status(1, 2, 3, 4, 5, 6, "clean", "x", 7, 1)
    for minute in range(3):
        records.append_status(hello, status, NOW + minute)
        await records.write_status(NOW + minute * 60_000)
    await records.write_status(NOW + 180_000)
    names = store.names("status/0000", deep=True)
    lines = [line for name in names for line in (store.get(f"status/0000/{name}") or b"").splitlines()]
    assert [json.loads(line)["verdict"] for line in lines] == ["clean"] * 3


def test_a_bucket_keeps_the_newest_of_what_was_refused_and_thirty_days_of_status(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.QUARANTINE_FILES", 2)
    store = ObjectStore(url)
    records = ObjectRecords(store, 1)
    for n in range(4):
        records.quarantine("box-17", b"%d" % n, NOW + n)
    assert [store.get(f"quarantine/{name}") for name in sorted(store.names("quarantine"))] == [b"2", b"3"]
    hello = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 970, NOW, 1, "x")
    store.put("status/0000/2023-01-01-00000000000001.jsonl", b"")  # as earlier gateways named them

    async def days() -> None:
        for day in (0, 1, 31, 31):
            records.append_status(hello, frames.Status(day, 2, 3, 4, 5, 6, "clean", "x", 7, 1), NOW)
            await records.write_status(NOW + day * DAY_MS + day)

    trio.run(days)
    names = sorted(store.names("status/0000", deep=True))
    lines = [json.loads(store.get(f"status/0000/{name}") or b"") for name in names]
    assert [line["durable"] for line in lines] == [1, 31]


def landed_by_day(store: ObjectStore, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Land a piece a day; on the second day a commit fails whose pack lies in the bucket."""
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.STATE_ENTRIES", 2)
    open_object_zone(store, 1)
    made, cover = writer(store)
    create = store.create
    for day in range(days):
        if day == 1:
            monkeypatch.setattr(store, "create", lambda path, data: (_ for _ in ()).throw(OSError("no answer")))
            with pytest.raises(OSError, match="no answer"):
                made.commit([piece(day * 970)], NOW + day * DAY_MS)
            monkeypatch.setattr(store, "create", create)
        for entry in made.commit([piece(day * 970)], NOW + day * DAY_MS):
            cover.note(entry)


def test_retention_in_a_bucket_takes_what_is_old_and_read_and_what_a_failed_commit_left(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(url)
    landed_by_day(store, 7, monkeypatch)
    (found,) = check(ZoneReader(url), deep=True)
    assert len(found.orphans) == 1

    def cleaned(seq: int) -> ZoneReader:
        body = {"offsets": {"0": seq}, "updated_ms": NOW + 7 * DAY_MS}
        store.put("consumers/bronze.json", json.dumps(body).encode())
        clean(open_keeping(url), [0], 3, lambda: NOW + 7 * DAY_MS)
        return ZoneReader(url)

    assert cleaned(1).begins() == {0: 1}
    assert len(store.names("pack/0000", deep=True)) == 7  # a consumer may still want seq 1
    zone = cleaned(6)
    assert (zone.begins(), zone.ends()) == ({0: 4}, {0: 7})  # days 4, 5 and 6 are within three days of day 7
    assert [entry.start // 970 for entry in zone.entries(zone.begins(), zone.ends())] == [4, 5, 6]
    (found,) = check(zone, deep=True)
    assert (found.sha_ok, found.findings, found.orphans) == (3, [], [])
    assert len(store.names("pack/0000", deep=True)) == 3
    kept = ["4.log", "4.state", "5.log", "6.log", "6.state"]
    assert [name.lstrip("0") for name in sorted(store.names("manifest/0000"))] == kept
    again, cover = writer(store)
    assert (again.next_seq, list(cover.boxes["box-17"].epochs[SOURCE.epoch].data)) == (7, [(0, 6790)])


def test_a_bucket_whose_beginning_is_gone_and_whose_state_is_damaged_takes_no_seq_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(url)
    landed_by_day(store, 7, monkeypatch)
    clean(open_keeping(url), [0], 3, lambda: NOW + 7 * DAY_MS)
    for name in store.names("manifest/0000"):
        if name.endswith(".state"):
            store.put(f"manifest/0000/{name}", b"half")
    with pytest.raises(
        LandingError, match=r"entries below 4 are missing and no state is intact; restore .*/0+4\.state"
    ):
        writer(store)


@pytest.mark.parametrize("how", ["cut", "flip", "more", "head", "gone"])
def test_a_damaged_manifest_of_a_bucket_is_told(url: str, how: str) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, _ = writer(store)
    for n in range(3):
        first.commit([piece(n * 1940), piece(n * 1940 + 970)], NOW)
    name = f"manifest/0000/{2:020d}.log"
    good = store.get(name)
    assert good is not None
    if how == "gone":
        store.delete(name)
    else:
        damaged = {
            "cut": good[:-8], "flip": good[:-12] + b"?" + good[-11:], "more": good + b"?", "head": b"?" + good[1:],
        }[how]  # fmt: skip
        store.put(name, damaged)
    with pytest.raises(LandingError, match=rf"s3://\S+: {name}\b.*restore .*from a copy of the landing zone"):
        writer(store)
    store.put(name, good)
    assert writer(store)[0].next_seq == 6


def lose(store: ObjectStore, *seqs: int) -> None:
    for seq in seqs:
        store.delete(f"manifest/0000/{seq:020d}.log")


@pytest.mark.parametrize("lost", [(4,), (2, 4), (0, 2, 4)])
def test_a_bucket_that_lost_the_end_of_its_manifest_gets_its_entries_again_as_they_were(
    url: str, lost: tuple[int, ...]
) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, _ = writer(store)
    for n in range(3):
        first.commit([piece(n * 1940), piece(n * 1940 + 970)], NOW + n * DAY_MS)
    before = tail(store).poll()
    lose(store, *lost)
    again, cover = writer(store)
    again.commit([piece(10_000)], NOW)
    after = tail(store).poll()
    assert [replace(entry, landed_ms=0) for entry in after[:6]] == [replace(entry, landed_ms=0) for entry in before]
    assert (after[6].seq, after[6].start) == (6, 10_000)
    assert [entry.landed_ms for entry in after] == sorted(entry.landed_ms for entry in after)
    assert list(cover.boxes["box-17"].epochs[SOURCE.epoch].data) == [(0, 5820)]
    (found,) = check(ZoneReader(url), deep=True)
    assert (found.sha_ok, found.findings, found.orphans) == (7, [], [])


def test_of_the_packs_of_one_seq_the_newest_has_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    (first, _), create = writer(store), store.create
    monkeypatch.setattr(store, "create", lambda path, data: (_ for _ in ()).throw(OSError("no answer")))
    for start in (970, 1940, 2910):
        with pytest.raises(OSError, match="no answer"):
            first.commit([piece(start)], NOW)
    monkeypatch.setattr(store, "create", create)
    first.commit([piece(0)], NOW)
    lose(store, 0)
    again, _ = writer(store)
    assert [entry.start for entry in tail(store).poll()] == [0]
    assert again.next_seq == 1


def test_a_bucket_that_lost_more_than_the_packs_tell_of_gives_no_seq_anew(url: str) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, _ = writer(store)
    packs = [first.commit([piece(n * 970)], NOW + n * DAY_MS)[0].pack for n in range(4)]
    lose(store, 1, 2, 3)
    manifest = store.names("manifest/0000")
    pack = store.get(packs[2]) or b""
    store.put(packs[2], pack[:-1])
    with pytest.raises(LandingError, match=rf"{1:020d}.log is missing, and pack {3:020d} follows it"):
        writer(store)
    store.delete(packs[2])
    with pytest.raises(LandingError, match=rf"{1:020d}.log is missing, and pack {3:020d} follows it"):
        writer(store)
    assert store.names("manifest/0000") == manifest  # nothing was made of the first of them
    store.put(packs[2], pack)
    assert writer(store)[0].next_seq == 4


def test_a_pack_that_is_not_whole_is_of_no_commit(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    store.put(f"pack/0000/2023-11-14/{0:020d}-0badcafe00000001.pack", piece(0).container[:-1])
    made, _ = writer(store)
    assert "left by an unfinished commit" in caplog.text
    made.commit([piece(970)], NOW)
    assert [entry.start for entry in tail(store).poll()] == [970]


async def test_the_gateway_of_a_bucket_cleans_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(url)
    landed_by_day(store, 4, monkeypatch)
    monkeypatch.setattr("uplink_spark.centre.gateway.RETAIN_FIRST_S", 0)
    config = GatewayConfig(url, ("127.0.0.1", 0), keep_days=3)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda task_status: run_gateway(config, now_ms=lambda: NOW + 6 * DAY_MS, task_status=task_status)
        )
        await until(lambda: len(store.names("pack/0000", deep=True)) == 1)
        nursery.cancel_scope.cancel()


def test_a_bucket_is_cleaned_by_hand(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ObjectStore(url)
    landed_by_day(store, 3, monkeypatch)
    size = sum(len(store.get(f"pack/0000/{name}") or b"") for name in store.names("pack/0000", deep=True))
    assert main(["clean", "--landing", url, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"shard 0000: would remove 4 packs, {size} bytes\n"
    assert main(["clean", "--landing", url]) == 0
    assert store.names("pack/0000", deep=True) == []
    assert main(["lag", "--landing", url, "--consumer", "bronze"]) == 1
    store.put("consumers/bronze.json", b'{"offsets": {"0": 1}}')
    capsys.readouterr()
    assert main(["lag", "--landing", url, "--consumer", "bronze", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lag_entries"] == 2


def test_a_box_is_retired_in_the_bucket_and_nowhere_else(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ObjectStore(url)
    open_object_zone(store, 1)
    ObjectRecords(store, 1).save("box-17", 5, ((7, 0),))
    assert main(["retire", "box-71", "--landing", url]) == 2
    assert "did you mean box-17?" in capsys.readouterr().err
    assert main(["retire", "box-17", "--landing", url]) == 0
    assert ObjectRecords(store, 1).load("box-17").retired
    assert list(tmp_path.iterdir()) == []


async def test_a_commit_whose_answer_was_lost_is_receipted_when_its_piece_comes_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.REWRITTEN_COMMITS", 2)
    made, cover = writer(store)
    lander = ShardLander(0, made, linger_s=1, now_ms=lambda: NOW, cover=cover)
    first, second = (verify_piece(piece(start).container, lambda _: None) for start in (0, 970))
    create, told = store.create, RecordingSender()

    def create_unheard(path: str, data: bytes) -> bool:
        monkeypatch.setattr(store, "create", create)
        create(path, data)
        raise OSError("object store: read timeout")

    monkeypatch.setattr(store, "create", create_unheard)
    await lander.land([Offer(0, first, told)])
    await lander.land([Offer(1, second, told), Offer(2, first, told)])
    assert told.heard == [
        ("failed", "internal", "the landing zone cannot be written: object store: read timeout"),
        ("landed", 1, 1, 0),
        ("landed", 2, 1, 1),
        ("flush", 0),
    ]
    assert [entry.start for entry in tail(store).poll()] == [0, 970]
    assert chain_of(store.names(rolled_folder(0))) == [(0, 2)]


async def test_a_gateway_lands_in_the_bucket_and_gives_receipts(url: str) -> None:
    config = GatewayConfig(url, ("127.0.0.1", 0), linger_ms=10)
    header, container = log_piece(RECORDS)
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(
            lambda task_status: run_gateway(config, now_ms=lambda: NOW, task_status=task_status)
        )
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        reader = FrameReader(stream)
        hello = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 970, NOW, 1, "x")
        await stream.send_all(hello.encode() + encode_frame(FrameType.PIECE, container))
        with trio.fail_after(25):
            await reader.next_frame(pieces=False)
            _, body = await reader.next_frame(pieces=False)
        assert frames.decode_receipt(body).rows[0].sha == header.sha
        nursery.cancel_scope.cancel()
    assert [entry.end for entry in tail(ObjectStore(url)).poll()] == [970]


def test_entries_are_rolled_up_beside_the_objects(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.REWRITTEN_COMMITS", 2)
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 5)
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, cover = writer(store)
    for number in range(8):
        if number == 4:  # a restart takes what was not rolled up
            first, cover = writer(store)
        header, container = log_piece(RECORDS[:1], number * 97)
        for entry in first.commit([NewPiece(header, container, ((header.start, header.end),))], NOW):
            cover.note(entry)
    assert chain_of(store.names(rolled_folder(0))) == [(0, 5), (5, 7)]
    assert len(store.names(rolled_folder(0))) == 2  # those with fewer entries are gone
    zone = ZoneReader(url)
    assert [entry.seq for entry in zone.entries({}, zone.ends())] == list(range(8))
    (found,) = check(zone, deep=True)
    assert (found.entries, found.findings) == (8, [])


def test_a_start_reads_few_objects_however_small_the_commits_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.objects.STATE_COMMITS", 3)
    store = ObjectStore(url)
    open_object_zone(store, 1)
    first, cover = writer(store)
    for number in range(8):
        header, container = log_piece(RECORDS[:1], number * 97)
        for entry in first.commit([NewPiece(header, container, ((header.start, header.end),))], NOW):
            cover.note(entry)
    assert [name for name in store.names("manifest/0000") if name.endswith(".state")] == [
        f"{seq:020d}.state" for seq in (3, 6)
    ]
    again, found = writer(store)
    assert (again.next_seq, found.encode(8)) == (8, cover.encode(8))


def test_spark_side_reads_the_same_url(url: str) -> None:
    pytest.importorskip("pyarrow")
    store = ObjectStore(url)
    open_object_zone(store, 1)
    made, _ = writer(store)
    made.commit([piece(0)], NOW)
    zone = ZoneReader(url)
    (entry,) = zone.entries({}, zone.ends())
    assert zone.files.read_range(entry.pack, entry.offset, entry.stored_bytes) == piece(0).container


async def test_two_gateways_of_a_bucket_share_its_shards_and_one_takes_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.centre.gateway.BUCKET_BEAT_S", 0.1)
    store = ObjectStore(url)

    async def serve(address: str, scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        config = GatewayConfig(url, ("127.0.0.1", 0), shards=4, linger_ms=10, advertise=address)
        with scope:
            await run_gateway(config, now_ms=wall_ms, task_status=task_status)  # type: ignore[arg-type]

    def owners() -> list[str]:
        return [json.loads(store.get(owner_path(shard)) or b"{}").get("address", "") for shard in range(4)]

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, "first:1", first)
        await until(lambda: owners() == ["first:1"] * 4)
        await nursery.start(serve, "second:2", second)
        await until(lambda: owners() == owners_of(4, ("first:1", "second:2")))
        assert set(owners()) == {"first:1", "second:2"}
        first.cancel()
        await until(lambda: owners() == ["second:2"] * 4)
        second.cancel()


async def test_what_a_site_put_into_the_inbox_is_swept_by_the_gateway_and_receipted_there(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.inbox.LOOK_S", 0.2)
    secret, stick = bytes(range(32)), tmp_path / "stick"
    async with box(tmp_path / "store", 1) as (log, uplink):
        for number in range(50):
            log.put(message(number))
        await log.wait_committed(log.end)
        state = uplink.shipper.state
        await export_pieces(state, uplink.shipper.quota.spool, stick, secret, "zlib")
        store = ObjectStore(url)
        for path in sorted(stick.rglob("*.*")):
            data = path.read_bytes()
            store.put(f"inbox/{path.relative_to(stick)}", data)
            store.put(f"inbox/box-18/{path.relative_to(stick / 'box-17')}", data)  # somebody else's folder
        for name in ("box-17", "box-18"):
            (tmp_path / name).write_text(secret.hex())
        config = GatewayConfig(url, ("127.0.0.1", 0), linger_ms=10, inbox_secrets=tmp_path)
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: run_gateway(config, now_ms=lambda: NOW, task_status=task_status))
            await until(lambda: store.names("inbox/box-17", deep=True) == ["RECEIPTS.cbor"])
            nursery.cancel_scope.cancel()
        assert len(store.names("inbox/box-18", deep=True)) == 2
        assert [(entry.box, entry.records) for entry in tail(store).poll()] == [("box-17", 50)]
        (stick / "box-17" / "RECEIPTS.cbor").write_bytes(store.get("inbox/box-17/RECEIPTS.cbor") or b"")
        assert await import_receipts(state, uplink.shipper.quota.spool, stick, secret) == log.committed


async def test_a_zone_in_a_folder_is_told_how_its_inbox_is_swept(tmp_path: Path) -> None:
    config = GatewayConfig(str(tmp_path), ("127.0.0.1", 0), inbox_secrets=tmp_path)
    with pytest.raises(ConfigError, match=r"python -m uplink_spark sweep .*/inbox"):
        await run_gateway(config, now_ms=wall_ms)
