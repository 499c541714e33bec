"""A follower's tables are the leader's, after any changes, and after a power cut in the middle."""

import random
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.group.state import state_applier
from appliance.group.state.state_applier import StateApplier
from appliance.group.state.state_records import STATE_TOPIC, TableChange
from tests.appliance.group.following_store import copy, lead, opened
from tests.storage_driver.test_store import bodies, message, put_all
from tests.waiting import until


async def test_a_follower_has_the_tables_of_its_leader(tmp_path: Path) -> None:
    rng = random.Random(3)
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        leader = lead(first)
        topics, offsets = leader.tables.state_file("topics"), leader.tables.state_file("consumerOffset")
        rows: dict[str, Any] = {}
        for number in range(60):
            rows[f"T{rng.randrange(30)}"] = {"perm": rng.randrange(7)}
            rows.pop(f"T{rng.randrange(30)}", None)
            await topics.write({"topicConfigTable": rows, "asOf": number})
            await offsets.write_bytes(b'{"offsetTable":{"T@G":{"0":%d}}}' % number)
            if number % 7 == 0:
                await copy(first.store, second.store)
                changed = await second.applier.apply()
                assert changed == {"config/topics", "config/consumerOffset"}
        await copy(first.store, second.store)
        await second.applier.apply()
        for side in (first, second):
            await side.applier.apply()
            assert side.files.tables["config/topics"].load() == {"topicConfigTable": rows, "asOf": 59}
            assert side.files.tables["config/consumerOffset"].load() == {"offsetTable": {"T@G": {"0": 59}}}
            assert side.applier.floor == side.store.committed


async def test_only_what_is_committed_is_applied(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        side.store.share(lambda log_offset: None)
        table = lead(side)
        table.state.append(TableChange("config/topics", {"": {"asOf": 1}}, {}))
        assert not await side.applier.apply()
        await until(lambda: side.store.synced == side.store.end)
        side.store.commit(side.store.end)
        assert await side.applier.apply() == {"config/topics"}


async def test_after_a_power_cut_between_files_and_position_all_is_as_without(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        leader = lead(side)
        journal, table = leader.tables.journal_file("pop.journal"), leader.tables.state_file("topics")
        for number in range(3):
            await table.write({"asOf": number})
            if number:
                await trio.to_thread.run_sync(journal.append, b"%d" % number)
            else:
                await trio.to_thread.run_sync(journal.replace, [b"0"])
        before = side.files.position.load()
        await side.applier.apply()
        side.files.position.save(before or {})  # as if it had not reached the disk
        again = StateApplier(side.store, side.files)
        assert again.next == 0
        await again.apply()
        assert again.journal("rocketbox/pop.journal") == [b"0", b"1", b"2"]
        assert side.files.tables["config/topics"].load() == {"asOf": 2}


async def test_queues_of_a_topic_that_was_deleted_go_unless_they_began_anew(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        topics = lead(first).tables.state_file("topics")
        await topics.write({"topicConfigTable": {"T": {}, "U": {}}, "asOf": 0})
        await put_all(first.store, [message(b"old"), message(b"old", queue_id=1), message(b"kept", "U")])
        await topics.write({"topicConfigTable": {"U": {}}, "asOf": 0})
        await first.store.delete_topic("T")
        await topics.write({"topicConfigTable": {"T": {}, "U": {}}, "asOf": 0})
        await put_all(first.store, [message(b"new", queue_id=2)])
        await copy(first.store, second.store)
        assert second.store.queues("T") == [0, 1, 2]
        await second.applier.apply()
        assert (second.store.queues("T"), second.store.queues("U")) == ([2], [0])
        assert await bodies(second.store, queue_id=2) == [b"new"]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("asked", [False, True])
async def test_a_damaged_table_is_made_again_from_the_log(tmp_path: Path, both: bool, asked: bool) -> None:
    async with opened(tmp_path) as side:
        topics = lead(side).tables.state_file("topics")
        rows = {f"T{number}": {"perm": number} for number in range(3)}
        for number in range(3):
            await topics.write({"topicConfigTable": {f"T{each}": rows[f"T{each}"] for each in range(number + 1)}})
            await side.applier.apply()
        file = side.files.tables["config/topics"]
        for path in (file.path, file.path.with_name("topics.json.bak"))[: 1 + both]:
            path.write_bytes(b"{") if both else path.unlink()
        if asked:
            await side.applier.mend()
            assert file.load_newest() == {"topicConfigTable": rows}
        rows["T9"] = {"perm": 9}
        await topics.write({"topicConfigTable": rows})
        await side.applier.apply()
        assert file.load_newest() == {"topicConfigTable": rows}


async def test_strange_records_and_tables_are_skipped(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        await put_all(
            side.store,
            [
                message(b"garbage", STATE_TOPIC),
                message(b'{"table":"../x","whole":true,"rows":{},"gone":{}}', STATE_TOPIC),
            ],
        )
        await lead(side).tables.state_file("topics").write({"asOf": 4})
        assert await side.applier.apply() == {"config/topics"}
        assert side.applier.next == 3


async def test_it_applies_by_itself_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_applier, "EVERY_S", 0.01)
    async with opened(tmp_path) as side:
        told = list[frozenset[str]]()

        async def note(changed: frozenset[str]) -> None:
            await trio.lowlevel.checkpoint()
            told.append(changed)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(side.applier.run, note)
            await lead(side).tables.state_file("topics").write({"asOf": 4})
            await until(lambda: told == [{"config/topics"}])
            nursery.cancel_scope.cancel()


async def test_a_disk_that_takes_no_files_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_applier, "AGAIN_S", 0.01)
    async with opened(tmp_path) as side:
        await lead(side).tables.state_file("topics").write({"asOf": 4})
        config = tmp_path / "store" / "config"
        config.rmdir() if config.exists() else None
        config.write_text("in the way")

        async def note(changed: frozenset[str]) -> None:
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(side.applier.run, note)
            await until(lambda: side.applier.failure is not None)
            config.unlink()
            await until(lambda: side.applier.failure is None)
            nursery.cancel_scope.cancel()
        assert side.files.tables["config/topics"].load() == {"asOf": 4}
