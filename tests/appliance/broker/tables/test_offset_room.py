"""The room for consumer offsets, and the share of an address."""

import pytest

from appliance.broker.tables import offset_room
from appliance.broker.tables.offsets import OffsetTable
from appliance.testing import MemoryStateFile
from netstack.errors import Refused


def test_one_address_leaves_as_many_new_offsets_to_others_as_it_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_room, "ALWAYS_ALLOWED", 1)
    table = OffsetTable(MemoryStateFile(), most=16)

    def stored(by: str) -> int:
        for number in range(20):
            try:
                table.commit("g", by or "here", number, 1, by)
            except Refused:
                return number
        return 20

    assert [stored(by) for by in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "")] == [8, 4, 8, 4]
    table.move("g", "10.0.0.1", 0, 5, "10.0.0.1")
    assert table.get("g", "10.0.0.1", 0) == 5, "what is there goes on"
    table.drop_topic("10.0.0.2")
    with pytest.raises(Refused, match="as it leaves to others"):
        table.move("g", "10.0.0.1", 10, 5, "10.0.0.1")


def test_long_names_count_for_the_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_room, "ALWAYS_ALLOWED_BYTES", 1)
    monkeypatch.setattr(offset_room, "MOST_PAIRS_BYTES", 5600)
    table = OffsetTable(MemoryStateFile())
    for number in range(4):
        table.commit(f"{number:0200d}", "T", 0, 1, "10.0.0.1")
    with pytest.raises(Refused, match="as it leaves to others"):
        table.commit(f"{4:0200d}", "T", 0, 1, "10.0.0.1")
    table.commit("g", "T", 0, 1, "10.0.0.2")


def test_offsets_that_are_gone_count_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_room, "ALWAYS_ALLOWED", 1)
    table = OffsetTable(MemoryStateFile(), most=16)
    for number in range(20):  # a plant behind one address whose topics come and go
        for queue_id in range(4):
            table.commit(f"g{number}", "T", queue_id, 1, "10.0.0.1")
            table.commit(f"g{number}", "T", 4 + queue_id, 1, "10.0.0.2")
        table.drop_group(f"g{number}")
    assert [table._room._new.room(by, 16) for by in ("10.0.0.1", "10.0.0.2")] == [8, 8]
    assert table._room._parts == {}


def test_bytes_of_pairs_that_are_gone_count_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_room, "ALWAYS_ALLOWED_BYTES", 1)
    monkeypatch.setattr(offset_room, "MOST_PAIRS_BYTES", 5000)
    table = OffsetTable(MemoryStateFile())
    for number in range(20):
        table.commit(f"{number:0200d}", "T", 0, 1, "10.0.0.1")
        table.commit(f"{number:0200d}", "T", 1, 1, "10.0.0.2")
        table.drop_topic("T")
    assert table._room._pairs_bytes == 0
