from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.spark.packs import ref_of
from uplink_spark.spark.source_options import LATEST, OptionError, SourceOptions, SourcePosition, parse_options
from uplink_spark.spark.source_plan import (
    BatchLimit,
    admit,
    check_log_offsets,
    from_offset,
    group,
    pieces_wanted,
    resolve,
    to_offset,
    until_full,
    wanted,
)
from uplink_spark.zone.entry_table import EntryTable, joined, table_of
from uplink_spark.zone.manifest import ManifestEntry


def entry(seq: int = 0, **changes: Any) -> ManifestEntry:
    made = ManifestEntry(
        seq, "log", "box-1", 5, 1, "p", 0, 10, 100, 200, 4, 100, 1000, 2000, 9000, 0, 1, {"A": (4, 40)}
    )
    return replace(made, **changes)


def table(*entries: ManifestEntry) -> EntryTable:
    return joined([table_of(one.seq, [one.encode()]) for one in entries])


def options(**given: str) -> SourceOptions:
    return parse_options({"path": "/x", **given})


@pytest.mark.parametrize(
    ("changes", "asked", "is_wanted"),
    [
        ({}, {}, True),
        ({"kind": "gap"}, {}, False),
        ({"kind": "blob"}, {}, False),
        ({"kind": "pick"}, {}, True),
        ({"kind": "pick"}, {"raw": "true"}, False),
        ({"records": 0}, {}, False),
        ({}, {"boxes": "box-1,box-2"}, True),
        ({}, {"boxes": "box-2"}, False),
        ({}, {"topics": "B"}, False),
        ({"topics": None}, {"topics": "B"}, True),  # not listed: may be in it
        ({}, {"topicPattern": "[AB]"}, True),
        ({}, {"topicPattern": "B.*"}, False),
        ({"skip": ("A",)}, {}, False),
        ({"skip": ("A",)}, {"raw": "true"}, True),
        ({}, {"storeSince": "2001"}, False),
        ({}, {"storeSince": "2000"}, True),
        ({}, {"storeUntil": "1000"}, False),
        ({}, {"storeUntil": "1001"}, True),
        ({}, {"startingLogOffsets": '{"box-1": {"offset": 200}}'}, False),
        ({}, {"startingLogOffsets": '{"box-1": {"offset": 199}}'}, True),
        ({}, {"startingLogOffsets": '{"box-1": {"epoch": "6", "offset": 0}}'}, False),
    ],
)
def test_a_piece_is_opened_only_if_it_can_hold_a_row(
    changes: dict[str, Any], asked: dict[str, str], is_wanted: bool
) -> None:
    other = entry(1, kind="gap", box="box-7", skip=("Z",), topics=None)
    assert wanted(table(entry(**changes), other), options(**asked)).tolist() == [is_wanted, False]


def test_a_piece_is_trimmed_to_the_log_offset_asked_for() -> None:
    asked = options(startingLogOffsets='{"box-1": {"offset": 150}}')
    refs = list(pieces_wanted(table(entry(), entry(1, box="box-2")), 0, asked).refs())
    assert [(ref.origin.from_offset, ref.origin.to_offset) for ref in refs] == [(150, 200), (100, 200)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ('"3f9c"', [0x3F9C1A02 << 32]),
        ('"3F9C1A0200000000"', [0x3F9C1A02 << 32]),
        ("7", [7]),
        ("null", [0x3F9C1A02 << 32, 7]),
    ],
)
def test_an_epoch_is_named_by_its_number_or_its_first_digits(asked: str, found: list[int]) -> None:
    entries = table(*(entry(seq, epoch=epoch) for seq, epoch in enumerate((0x3F9C1A02 << 32, 7))))
    given = options(startingLogOffsets=f'{{"box-1": {{"epoch": {asked}, "offset": 0}}}}')
    check_log_offsets([entries], given)
    assert entries.numbers["epoch"][wanted(entries, given)].tolist() == found


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ('{"box-1": {"epoch": "4", "offset": 0}}', "4 is not one epoch of box-1; .* it has 3f9c.*, 3f9d"),
        ('{"box-1": {"epoch": "3f9", "offset": 0}}', "3f9 is not one epoch of box-1"),
        ('{"box-9": {"offset": 0}}', "this landing zone has no data of box box-9"),
    ],
)
def test_a_place_that_is_not_there_is_an_error_and_not_nothing_or_everything(asked: str, sentence: str) -> None:
    entries = table(entry(epoch=0x3F9C << 48), entry(1, epoch=0x3F9D << 48))
    with pytest.raises(OptionError, match=sentence):
        check_log_offsets([entries], options(startingLogOffsets=asked))


costs = st.lists(st.integers(1, 50), max_size=12)


@given(st.dictionaries(st.integers(0, 3), costs, min_size=1), st.integers(1, 200))
def test_a_batch_keeps_to_the_limit_or_holds_one_piece_and_always_gets_on(
    waiting: dict[int, list[int]], most: int
) -> None:
    entries = {shard: np.array(costs, np.int64) for shard, costs in waiting.items()}
    start = dict.fromkeys(waiting, 0)
    ends = admit(entries, start, BatchLimit(raw_bytes=most))
    taken = [cost for shard, costs in waiting.items() for cost in costs[: ends[shard]]]
    assert sum(taken) <= most or len(taken) == 1
    assert bool(taken) == any(waiting.values())


def test_shards_share_a_limit_by_what_waits_in_them() -> None:
    entries = {0: np.full(30, 10), 1: np.full(10, 10)}
    assert admit(entries, {0: 5, 1: 7}, BatchLimit(raw_bytes=200)) == {0: 20, 1: 12}
    assert admit(entries, {0: 5, 1: 7}, BatchLimit()) == {0: 35, 1: 17}
    assert admit(entries, {0: 5, 1: 7}, BatchLimit(raw_bytes=40)) == {0: 8, 1: 8}


@given(st.lists(st.integers(1, 100), max_size=20), st.integers(1, 200))
def test_tasks_hold_all_pieces_in_order_and_stay_below_their_size(sizes: list[int], most: int) -> None:
    refs = [ref_of(entry(n, raw_bytes=size), 0) for n, size in enumerate(sizes)]
    tasks = group(refs, most)
    assert [ref for task in tasks for ref in task] == refs
    assert all(sum(ref.raw_bytes for ref in task) <= most or len(task) == 1 for task in tasks)


def test_positions_are_checked_against_what_is_there() -> None:
    oldest, ends = {0: 3, 1: 0}, {0: 9, 1: 4}
    assert resolve(SourcePosition(seqs={}), oldest, ends, None) == oldest
    assert resolve(SourcePosition(latest=True), oldest, ends, None) == ends
    assert resolve(SourcePosition(seqs={1: LATEST}), oldest, ends, None) == {0: 3, 1: 4}
    assert resolve(SourcePosition(landed_ms=5), oldest, ends, {0: 4, 1: 1}) == {0: 4, 1: 1}
    with pytest.raises(OptionError, match="shard 1 ends at seq 4; an offset of 5 is beyond it"):
        resolve(SourcePosition(seqs={1: 5}), oldest, ends, None)
    with pytest.raises(OptionError, match="shard 2 is not in this landing zone"):
        resolve(SourcePosition(seqs={2: 0}), oldest, ends, None)


def test_an_offset_is_text_by_shard_in_order_and_another_zones_offset_is_refused() -> None:
    assert list(to_offset({1: 5, 0: 4})) == ["0", "1"]
    assert from_offset({"0": 4}, 2) == {0: 4, 1: 0}
    with pytest.raises(OptionError, match="another landing zone"):
        from_offset({"2": 4}, 2)


def test_entries_are_taken_until_they_alone_fill_the_limit() -> None:
    tables = [table(*(entry(seq, raw_bytes=10, records=2) for seq in range(at, at + 4))) for at in (0, 4, 8)]

    def taken(limit: BatchLimit, ranges: int = 100) -> list[int]:
        found: list[int] = until_full(iter(tables), limit, ranges).seq.tolist()
        return found

    assert taken(BatchLimit(raw_bytes=55)) == list(range(6))  # the sixth goes over it
    assert taken(BatchLimit(rows=3)) == [0, 1]
    assert taken(BatchLimit(pieces=5)) == list(range(6))
    assert taken(BatchLimit()) == taken(BatchLimit(raw_bytes=1000)) == list(range(12))
    assert taken(BatchLimit(raw_bytes=1000), ranges=7) == list(range(7))
    assert taken(BatchLimit(pieces=100), ranges=7) == list(range(12))
    assert until_full(iter(()), BatchLimit(), 5).seq.tolist() == []
