"""Whole tables in the log: a copy that begins late has them, and retention keeps them."""

from pathlib import Path

import pytest
import trio

from appliance.group.state import state_snapshots
from appliance.group.state.state_applier import StateApplier
from appliance.group.state.state_snapshots import KeptFrom, Snapshots, read_release
from tests.appliance.group.following_store import Lead, lead, opened
from tests.storage_driver.test_store import message, put_all
from tests.waiting import until, until_it


def snapshots(leader: Lead, below: list[int]) -> Snapshots:
    side = leader.side
    return Snapshots(
        side.store,
        leader.state,
        side.applier,
        side.files,
        segment_bytes=side.store.segment_bytes,
        below=lambda: below[0],
    )


async def test_tables_are_written_whole_once_a_segment_and_what_may_go_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_snapshots, "LOOK_S", 0.01)
    async with opened(tmp_path) as side:
        leader, below = lead(side), [0]
        table, journal = leader.tables.state_file("topics"), leader.tables.journal_file("pop.journal")
        await table.write({"topicConfigTable": {"T": {"perm": 6}}})
        await trio.to_thread.run_sync(journal.replace, [b"entry"])
        await side.applier.apply()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(snapshots(leader, below).run)

            async def told() -> bool:
                await side.applier.apply()
                return read_release(side.files).tables > 0

            await until_it(told)
            first = read_release(side.files)
            assert first.floor == 0
            below[0] = first.tables + side.store.segment_bytes
            while side.store.end < first.tables + side.store.segment_bytes:
                await put_all(side.store, [message(b"x" * 10_000)])

            async def told_again() -> bool:
                await side.applier.apply()
                return read_release(side.files).tables != first.tables

            await until_it(told_again)
            nursery.cancel_scope.cancel()
        now = read_release(side.files)
        assert now.floor == min(now.tables, below[0]) > 0
        late = StateApplier(side.store, side.files)
        for file in side.files.tables.values():
            file.save({})
        side.files.journals["rocketbox/pop.journal"].replace([])
        late.next = 3  # its log begins behind what came first
        await late.apply()
        assert side.files.tables["config/topics"].load() == {"topicConfigTable": {"T": {"perm": 6}}}
        assert late.journal("rocketbox/pop.journal") == [b"entry"]


async def test_a_table_that_changes_just_now_is_not_taken_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        leader = lead(side)
        await leader.tables.state_file("topics").write({"asOf": 1})  # not applied
        assert await snapshots(leader, [0])._write_all() is None


def test_before_the_first_whole_tables_nothing_may_go() -> None:
    assert KeptFrom().floor == 0
    assert KeptFrom(500, 400).floor == 400


async def test_a_table_whose_file_is_damaged_keeps_the_leader_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_snapshots, "LOOK_S", 0.01)
    async with opened(tmp_path) as side, trio.open_nursery() as nursery:
        leader = lead(side)
        topics = side.files.tables["config/topics"]
        topics.save({"topicConfigTable": {}})
        whole = topics.path.read_bytes()
        for path in (topics.path, topics.path.with_name(topics.path.name + ".bak")):
            path.write_bytes(b"{")
        nursery.start_soon(snapshots(leader, [0]).run)
        await until(lambda: "tables_not_in_log" in caplog.text)
        topics.path.write_bytes(whole)  # as its owner does with the next change

        async def told() -> bool:
            await side.applier.apply()
            return read_release(side.files).tables >= 0

        await until_it(told)
        nursery.cancel_scope.cancel()
