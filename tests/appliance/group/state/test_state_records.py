"""Changes of tables as records: what a follower makes of them is the leader's table, whatever changed."""

import json
import random
from typing import Any

import pytest

from appliance.group.state import state_records
from appliance.group.state.state_records import (
    ChangeIllegal,
    Differ,
    JournalChange,
    TableChange,
    applied,
    decode,
    encode,
    whole,
)

TOPICS: dict[str, Any] = {
    "dataVersion": {"counter": 1},
    "topicConfigTable": {"A": {"perm": 6}, "B": {"perm": 4}},
    "asOf": 7,
}


def sent(change: object) -> list[TableChange]:
    assert isinstance(change, TableChange)
    found = [decode(body) for body in encode(change)]
    assert all(isinstance(each, TableChange) for each in found)
    return found  # type: ignore[return-value]


def test_the_first_change_is_the_whole_table() -> None:
    (change,) = sent(Differ("config/topics").change_to(TOPICS))
    assert change.whole
    assert applied({"foreign": {"x": 1}}, change) == TOPICS


def test_a_change_holds_only_what_is_different() -> None:
    differ = Differ("config/topics")
    differ.take(TOPICS)
    assert differ.change_to(TOPICS) is None
    now = {"dataVersion": {"counter": 2}, "topicConfigTable": {"A": {"perm": 6}, "C": {"perm": 2}}, "asOf": 7}
    (change,) = sent(differ.change_to(now))
    assert change.rows == {"dataVersion": {"counter": 2}, "topicConfigTable": {"C": {"perm": 2}}}
    assert change.gone == {"topicConfigTable": ["B"]}
    assert applied(json.loads(json.dumps(TOPICS)), change) == now
    assert differ.change_to(now) is None


def test_rows_by_themselves_lead_to_the_same_table_as_whole_tables() -> None:
    rng, differ, content = random.Random(9), Differ("t"), {"rows": dict[str, Any]()}
    differ.take(content)
    table: dict[str, Any] = {}
    for _ in range(200):
        names = {f"r{rng.randrange(9)}" for _ in range(3)}
        rows = {name: {"0": rng.randrange(5)} if rng.random() < 0.7 else None for name in names}
        table = {name: row for name, row in {**table, **rows}.items() if row is not None}
        if (change := differ.change_of("rows", rows)) is not None:
            for each in sent(change):
                content = applied(content, each)
        assert content == {"rows": table}
    assert differ.change_to({"rows": table}) is None


def test_a_row_of_a_table_that_was_empty_is_known_from_then_on() -> None:
    differ = Differ("t")
    differ.take({})
    assert differ.change_of("rows", {"a": 1}) is not None
    assert differ.change_of("rows", {"a": 1}) is None
    assert differ.change_of("rows", {"a": None}) is not None


def test_an_empty_section_is_there_too() -> None:
    (change,) = sent(whole("namesrv/kv", {"configTable": {}}))
    assert applied(None, change) == {"configTable": {}}


def test_numbers_as_names_become_texts_as_in_files() -> None:
    (change,) = sent(whole("t", {"offsetTable": {"T@G": {0: 5, 1: 6}}}))
    assert applied(None, change) == {"offsetTable": {"T@G": {"0": 5, "1": 6}}}


def test_changes_that_are_applied_again_lead_to_the_same_table() -> None:
    rng, differ, log = random.Random(7), Differ("t"), list[TableChange]()
    table: dict[str, Any] = {"rows": {}, "single": 0}
    for number in range(200):
        rows = dict(table["rows"])
        for _ in range(rng.randrange(4)):
            name = f"r{rng.randrange(20)}"
            if rng.random() < 0.4:
                rows.pop(name, None)
            else:
                rows[name] = rng.randrange(100)
        table = {"rows": rows, "single": number // 10}
        if (change := differ.change_to(table)) is not None:
            log += sent(change)
    content: object = None
    for change in log:
        content = applied(content, change)
    again = log[rng.randrange(len(log)) :]
    for change in again:
        content = applied(content, change)
    assert content == table


def test_a_large_table_is_several_records_and_only_the_first_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_records, "MOST_BYTES", 50)
    table = {"rows": {f"name{number}": number for number in range(50)}}
    changes = sent(whole("t", table))
    assert len(changes) > 5
    assert [change.whole for change in changes] == [True] + [False] * (len(changes) - 1)
    content: object = {"rows": {"old": 1}}
    for change in changes:
        content = applied(content, change)
    assert content == table


def test_journals_are_carried_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_records, "MOST_BYTES", 10)
    entries = [b"\0\xff" * 4, b"", b"abc", b"0123456789ab"]
    found = [decode(body) for body in encode(JournalChange("rocketbox/pop.journal", entries, whole=True))]
    assert [each for change in found for each in change.entries] == entries  # type: ignore[union-attr]
    assert [change.whole for change in found] == [True, *[False] * (len(found) - 1)]
    assert decode(next(encode(JournalChange("j", [], whole=True)))) == JournalChange("j", [], whole=True)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", b'{"table":"t","whole":true}', b'{"table":"t","whole":true,"rows":[],"gone":{}}',
        b'{"table":"t","whole":true,"rows":{"s":5},"gone":{}}', b'{"table":"t","whole":1,"entries":["!"]}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ChangeIllegal, match="not a change"):
        decode(body)
