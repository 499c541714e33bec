"""Tables on disk: who waits for a change, what damage costs."""

import math
from typing import Any

import pytest
import trio
import trio.testing

from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.saving import RowChanges, Saver, SharedSave, TableVersion, WholeTable, number, rows_of
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.testing import MemoryStateFile
from storage_driver.errors import ENDED, StateDamaged

RULES = TopicRules(cluster="C", broker="b")


def topics(file: MemoryStateFile | None = None, rules: TopicRules = RULES, log_end: int = 0) -> TopicTable:
    return TopicTable(file or MemoryStateFile(), rules, now_ms=lambda: 1000, log_end=lambda: log_end)


async def test_a_reply_waits_until_its_change_is_on_disk_and_hears_when_it_cannot_be(
    autojump_clock: trio.testing.MockClock,
) -> None:
    file, told = MemoryStateFile(), list[Any]()
    table = {"value": 0}
    saver = Saver(file, lambda: dict(table))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        for value in (1, 2, 3):
            table["value"] = value
            saver.when_saved(saver.changed(), told.append)
        assert told == []
        await trio.testing.wait_all_tasks_blocked()
        assert (told, file.content, file.writes) == ([None] * 3, {"value": 3}, 1)
        file.failure = OSError("no space left")
        saver.when_saved(saver.changed(), told.append)
        await trio.testing.wait_all_tasks_blocked()
        assert "no space left" in str(told[-1])
        file.failure, table["value"] = None, 4
        await trio.sleep(2)
        assert file.content == {"value": 4}  # tried again by itself
        saver.when_saved(saver.mark, told.append)
        assert told[-1] is None
        nursery.cancel_scope.cancel()


def test_a_version_of_whatever_was_stored_is_one() -> None:
    assert TableVersion.from_json(None, 5) == TableVersion(0, 5)
    assert TableVersion.from_json({"counter": 7, "timestamp": 3}, 5) == TableVersion(7, 3)
    assert TableVersion(7, 3).next(9).to_json() == {"counter": 8, "timestamp": 9}


class DamagedFile(MemoryStateFile):
    def load(self) -> object | None:
        raise StateDamaged("topics.json: no JSON")


def test_damaged_tables_prevent_no_start_and_lose_only_what_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    assert topics(DamagedFile()).get("TBW102")
    assert OffsetTable(DamagedFile()).table() == {}
    rows = {"A": {"topicName": "A", "readQueueNums": "x"}, "B": 5, "C": {}, "D": {"topicName": "D", "perm": 4}}
    table = topics(MemoryStateFile({"topicConfigTable": rows, "dataVersion": {"counter": "x"}}))
    assert [name for name in rows if table.get(name)] == ["C", "D"]  # C is this cluster's own
    assert GroupTable(MemoryStateFile({"subscriptionGroupTable": [1]}), now_ms=lambda: 1).get("TOOLS_CONSUMER")
    offsets = OffsetTable(MemoryStateFile({"offsetTable": {"T@g": {"0": "x"}, "T@h": {"0": 5}, "T@i": None}}))
    assert offsets.table() == {"T@h": {0: 5}}
    assert caplog.text.count("event=table_damaged") == 2
    assert caplog.text.count("event=row_damaged") == 5


async def test_what_nobody_waits_for_is_saved_a_second_later_and_what_somebody_waits_for_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    file, told = MemoryStateFile(), list[Any]()
    saver = Saver(file, dict)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        for _ in range(50):
            saver.changed()
            await trio.sleep(0.1)
        assert 4 <= file.writes <= 6
        began = trio.current_time()
        await trio.sleep(2)
        saver.changed()
        await trio.sleep(0.1)
        saver.when_saved(saver.mark, told.append)
        await trio.testing.wait_all_tasks_blocked()
        assert (told, trio.current_time() - began < 2.2) == ([None], True)
        nursery.cancel_scope.cancel()


async def test_what_changes_during_the_last_write_is_not_taken_for_saved() -> None:
    class Slow(MemoryStateFile):
        async def write(self, table: object, /) -> None:
            if not self.writes:
                saver.changed()
            await super().write(table)

    file = Slow()
    saver = Saver(file, lambda: {"mark": saver.mark})
    saver.changed()
    await saver.flush()
    assert (saver.saved, saver.mark, file.content) == (1, 2, {"mark": 1})
    await saver.flush()
    assert (saver.saved, file.content) == (2, {"mark": 2})
    await saver.flush()
    assert file.writes == 2


async def test_each_who_waits_hears_once_and_of_its_own_change(autojump_clock: trio.testing.MockClock) -> None:
    file, told = MemoryStateFile(), list[tuple[int, str | None]]()
    saver = Saver(file, dict)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        file.failure = OSError("gone")
        for _ in range(3):
            mark = saver.changed()
            saver.when_saved(mark, lambda reason, mark=mark: told.append((mark, reason)))  # type: ignore[misc]
        await trio.testing.wait_all_tasks_blocked()
        assert [mark for mark, reason in told if reason and "gone" in reason] == [1, 2, 3]
        file.failure = None
        await trio.sleep(5)
        assert (len(told), saver.saved, saver.failures) == (3, 3, 1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("table", [None, [], "x", 5, {"a": math.inf}, {"a": {}}, {"a": None}])
def test_rows_that_cannot_be_read_are_left_out_whatever_they_are(table: object) -> None:
    assert rows_of(table, lambda row: int(row), "t") == {}


@pytest.mark.parametrize("value", [[], "x", {"counter": "7"}, {"counter": None, "timestamp": 1.5}])
def test_a_version_that_makes_no_sense_begins_anew(value: object) -> None:
    assert TableVersion.from_json(value, 5) == TableVersion(0, 5)


@pytest.mark.parametrize("value", ["x", None, 1.5, [], True])
def test_a_number_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        number({"n": value}, "n", 1)
    assert (number({}, "n", 7), number({"n": "12"}, "n", 7), number({"n": -3}, "n", 7)) == (7, 12, -3)


def test_a_whole_table_is_encoded_once_for_each_version_of_it() -> None:
    whole, made = WholeTable(), list[int]()

    def encode() -> bytes:
        made.append(1)
        return b"%d" % len(made)

    first = whole.body(TableVersion(1, 5), encode)
    assert whole.body(TableVersion(1, 5), encode) is first
    assert whole.body(TableVersion(2, 5), encode) == b"2"


async def test_who_waits_when_a_table_ends_is_told_that_it_is_not_sure() -> None:
    told = list[str | None]()
    saver = Saver(MemoryStateFile(), dict)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        saver.when_saved(saver.changed(), told.append)
    assert told == [ENDED]


def test_rows_that_changed_are_known_until_a_save_had_them_and_too_many_are_all() -> None:
    rows = RowChanges[str](most=2)
    assert rows.begin() == set()
    rows.end(True)
    rows.note("a")
    assert (rows.has("a"), rows.has("b")) == (True, False)
    assert rows.begin() == {"a"}
    rows.note("b")
    assert rows.has("a"), "it is on its way"
    rows.end(False)
    assert rows.begin() == {"a", "b"}
    rows.end(True)
    assert not rows.has("a")
    for name in "abc":
        rows.note(name)
    assert rows.has("z")
    assert rows.begin() is None
    assert rows.has("z")
    rows.end(True)
    assert not rows.has("z")


async def test_who_shares_a_save_hears_why_it_failed() -> None:
    go = trio.Event()

    async def write() -> None:
        await go.wait()
        raise OSError("no second disk")

    shared, heard = SharedSave("offsets", write), list[str]()

    async def flush() -> None:
        shared.changed()
        try:
            await shared.flush()
        except OSError as failed:
            heard.append(str(failed))

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert sorted(heard) == ["no second disk", "the save that was waited for failed: no second disk"]
