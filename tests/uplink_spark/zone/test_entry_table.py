from dataclasses import replace

import pytest

from uplink_spark.errors import ManifestDamaged
from uplink_spark.spark.offset_fingerprint import name_of
from uplink_spark.zone.entry_table import NUMBERS, decode_table, encode_table, joined, table_of
from uplink_spark.zone.manifest import ManifestEntry

ENTRY = ManifestEntry(0, "log", "box-1", 1 << 62, 1, "p", 0, 10, 100, 200, 4, 100, 1000, 2000, 9000, 0, 1)
ENTRIES = [
    ENTRY,
    replace(ENTRY, seq=1, box="box-2", topics={"A": (1, 2), "B": (3, 4)}, skip=("C",), stored_ms_min=-5),
    replace(ENTRY, seq=2, kind="gap", pack="q", topics={"A": (5, 6), "B": (7, 8)}),
]


def test_entries_come_back_as_columns_through_bytes() -> None:
    made = table_of(0, [entry.encode() for entry in ENTRIES])
    for table in (made, decode_table(encode_table(made))):
        for name in NUMBERS:
            assert table.numbers[name].tolist() == [getattr(entry, name) for entry in ENTRIES]
        assert [table.words["box"][row] for row in range(3)] == ["box-1", "box-2", "box-1"]
        assert [table.words["topics"][row] for row in range(3)] == [None, ("A", "B"), ("A", "B")]
        assert [table.words["skip"][row] for row in range(3)] == [None, ("C",), None]
        assert [table.name_of(row) for row in range(3)] == [name_of(entry) for entry in ENTRIES]


def test_a_part_and_what_is_joined_again_are_the_same_entries() -> None:
    table = table_of(0, [entry.encode() for entry in ENTRIES])
    assert table.part(-5, 50) is table
    assert table.part(1, 2).seq.tolist() == [1]
    assert encode_table(joined([table.part(0, 1), table.part(1, 3)])) == encode_table(table)


def test_damage_is_named() -> None:
    with pytest.raises(ManifestDamaged, match="seq 1 where 2 belongs"):
        table_of(2, [ENTRIES[1].encode()])
    with pytest.raises(ManifestDamaged, match="does not decode"):
        table_of(0, [b"\xff"])
    with pytest.raises(ManifestDamaged, match="columns do not decode"):
        decode_table(b"\xa0")
    whole = encode_table(table_of(0, [ENTRY.encode()]))
    with pytest.raises(ManifestDamaged, match="columns of different length, expected 2"):
        decode_table(whole.replace(b"ecount\x01", b"ecount\x02"))
    kinds = b"\x82D\0\0\0\0\x81clog"
    assert kinds in whole
    for other in (b"\x82D\1\0\0\0\x81clog", b"\x82D\xff\xff\xff\xff\x81clog", b"\x82D\0\0\0\0\x81Clog", b"\x81" * 500):
        with pytest.raises(ManifestDamaged, match="columns do not decode"):
            decode_table(whole.replace(kinds, other))
