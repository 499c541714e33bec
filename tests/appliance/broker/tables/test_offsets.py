"""Offsets of groups: their limits, their file, what others do while it is written."""

import math

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.tables.offsets import OffsetTable
from appliance.testing import MemoryRowFile, MemoryStateFile
from netstack.errors import Refused


async def test_offsets_are_saved_now_and_then_and_only_when_they_changed() -> None:
    file = MemoryStateFile({"offsetTable": {"T@g": {"0": 5, "1": "7"}, "%RETRY%g@g": {"0": 1}}})
    table = OffsetTable(file)
    assert (table.get("g", "T", 1), table.get("g", "T", 2), table.get("h", "T", 0)) == (7, -1, -1)
    assert (sorted(table.topics_of("g")), table.groups_of("T")) == (["%RETRY%g", "T"], ["g"])
    await table.flush()
    assert file.writes == 0
    table.commit("g", "T", 0, 9)
    table.commit("g", "T", 0, -1)
    await table.flush()
    await table.flush()
    assert (file.writes, OffsetTable(file).of("T", "g")) == (1, {0: 9, 1: 7})
    table.drop_group("g")
    assert table.table() == {}


def test_offsets_of_names_nobody_knows_cannot_fill_the_memory() -> None:
    table = OffsetTable(MemoryStateFile({"offsetTable": {"T@g": {"0": 5}}}), most=3)
    table.commit("g", "T", 1, 1)
    table.commit("h", "T", 0, 1)
    with pytest.raises(Refused, match="3 offsets are stored"):
        table.commit("i", "T", 0, 1)
    table.commit("g", "T", 1, 2)  # known: always
    table.copy("g", "h", "T")
    with pytest.raises(Refused, match="4 offsets"):
        table.commit("i", "T", 0, 1)
    table.drop_group("g")
    table.commit("i", "T", 0, 1)
    assert table.of("T", "h") == {0: 5, 1: 2}
    table.drop_topic("T")
    assert table.table() == {}
    with pytest.raises(Refused, match="group of 256 characters"):
        table.commit("g" * 256, "T", 0, 1)


def test_long_names_of_offsets_have_a_budget_of_their_own() -> None:
    table = OffsetTable(MemoryStateFile())

    def fill() -> None:
        for number in range(50_000):
            table.commit(f"{number:0255d}", "T" * 255, 0, 1)

    with pytest.raises(Refused, match=r"4\d{4} offsets are stored"):
        fill()


async def test_many_offsets_are_encoded_in_slices_and_others_run_in_between() -> None:
    file = MemoryStateFile()
    table, ran = OffsetTable(file), 0
    for number in range(2000):
        table.commit(f'g\ud800"{number}', "T", number % 4, number)

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            table.drop_group(f'g\ud800"{2000 - ran}')
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await table.flush()
        nursery.cancel_scope.cancel()
    assert ran > 4
    assert OffsetTable(file).get('g\ud800"7', "T", 3) == 7


keys = st.tuples(st.sampled_from(["g", "h", "a@b"]), st.sampled_from(["T", "U", "%RETRY%g"]), st.integers(0, 2))
changes = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), keys, st.integers(-2, 50)),
        st.tuples(st.just("group"), keys, st.just(0)),
        st.tuples(st.just("topic"), keys, st.just(0)),
        st.tuples(st.just("copy"), keys, st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=25)
@given(changes, st.booleans(), st.integers(1, 5))
async def test_any_sequence_of_changes_leaves_what_a_dictionary_has_also_after_a_restart(
    sequence: list[tuple[str, tuple[str, str, int], int]], by_rows: bool, every: int
) -> None:
    file = MemoryRowFile() if by_rows else MemoryStateFile()
    table, model = OffsetTable(file), dict[tuple[str, str, int], int]()
    for number, (what, (group, topic, queue_id), offset) in enumerate(sequence):
        if number % every == 0:
            await table.flush()
        if what == "commit":
            table.commit(group, topic, queue_id, offset)
            if offset >= 0:
                model[group, topic, queue_id] = offset
        elif what == "group":
            table.drop_group(group)
            model = {key: value for key, value in model.items() if key[0] != group}
        elif what == "topic":
            table.drop_topic(topic)
            model = {key: value for key, value in model.items() if key[1] != topic}
        else:
            table.copy(group, "h", topic)
            copied = {("h", topic, q): value for (g, t, q), value in model.items() if (g, t) == (group, topic)}
            model = {key: value for key, value in model.items() if key[:2] != ("h", topic)} | copied
    await table.flush()
    for found in (table, OffsetTable(file)):
        keys = [(g, t, q) for g in ("g", "h", "a@b", "b") for t in ("T", "U", "%RETRY%g", "T@a") for q in range(4)]
        assert {key: found.get(*key) for key in keys if found.get(*key) >= 0 and "@" not in key[1]} == model
        assert found._room.stored == len(model)
        for group in ("g", "h", "a@b", "b"):
            assert set(found.topics_of(group)) == {t for g, t, _ in model if g == group}


async def test_what_changes_while_the_table_is_written_is_written_the_next_time() -> None:
    class Slow(MemoryStateFile):
        async def write_bytes(self, raw: bytes, /) -> None:
            if not self.writes:
                table.commit("g", "T", 0, 2)
            await super().write_bytes(raw)

    file = Slow()
    table = OffsetTable(file)
    table.commit("g", "T", 0, 1)
    await table.flush()
    await table.flush()
    await table.flush()
    assert (file.writes, OffsetTable(file).get("g", "T", 0)) == (2, 2)


async def test_where_the_file_takes_rows_only_those_that_changed_are_written() -> None:
    file = MemoryRowFile({"offsetTable": {"T@g": {"0": 5}, "T@h": {"0": 6}, "T@i": {"0": 7}}})
    table = OffsetTable(file)
    table.commit("g", "T", 1, 8)
    table.drop_group("h")
    assert [table.has_saved(group, "T") for group in "ghi"] == [False, False, True]
    await table.flush()
    assert file.rows == [{"T@g": {0: 5, 1: 8}, "T@h": None}]
    assert file.content == {"offsetTable": {"T@g": {"0": 5, "1": 8}, "T@i": {"0": 7}}}
    file.failure = OSError("the second disk is away")
    table.commit("i", "T", 0, 9)
    with pytest.raises(OSError, match="away"):
        await table.flush()
    assert not table.has_saved("i", "T")
    file.failure, file.wants_all = None, True
    table.commit("g", "T", 1, 9)
    await table.flush()
    assert (file.writes, len(file.rows)) == (1, 1), "what was refused in part is written whole"
    assert table.has_saved("i", "T")
    assert OffsetTable(file).table() == table.table()


async def test_a_disk_that_fails_costs_no_offset_and_no_loop(autojump_clock: trio.testing.MockClock) -> None:
    file = MemoryStateFile()
    table = OffsetTable(file)
    table.commit("g", "T", 0, 7)
    file.failure = OSError("no space left")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run)
        await trio.sleep(11)
        assert file.content is None
        file.failure = None
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert OffsetTable(file).get("g", "T", 0) == 7


def test_an_endless_number_in_the_file_costs_its_row_alone() -> None:
    table = OffsetTable(MemoryStateFile({"offsetTable": {"T@g": {"0": math.inf}, "T@h": {"0": 5}}}))
    assert table.table() == {"T@h": {0: 5}}


def test_what_is_handed_out_is_a_copy() -> None:
    table = OffsetTable(MemoryStateFile())
    table.commit("g", "T", 0, 1)
    table.of("T", "g")[0] = 9
    assert table.get("g", "T", 0) == 1


@pytest.mark.parametrize("queue_id", [-1, 16_384, 1 << 31])
def test_offsets_of_queues_that_no_topic_has_cannot_fill_the_table(queue_id: int) -> None:
    table = OffsetTable(MemoryStateFile())
    with pytest.raises(Refused, match="no topic has more than 16384 queues"):
        table.commit("G", "T", queue_id, 7)
    table.commit("G", "T", 16_383, 7)
    assert table.of("T", "G") == {16_383: 7}
