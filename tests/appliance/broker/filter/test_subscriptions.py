"""Subscriptions, tag hashes, and properties found in stored bytes."""

import pytest

from appliance.broker.filter.subscriptions import (
    SQL92,
    Subscription,
    SubscriptionError,
    parse_subscription,
    properties_of,
    record_predicate,
    split_records,
    tags_predicate,
)
from storage_driver.record import decode_record, java_hash
from storage_driver.testing import V1, V2, V3, V4, V5, V6


@pytest.mark.parametrize(
    ("text", "tags"),
    [("A", ("A",)), ("A || B", ("A", "B")), (" A||||B ||A", ("A", "B")), ("*", ()), ("", ()), (None, ())],
)
def test_a_tag_subscription_is_its_tags_and_their_hashes(text: str | None, tags: tuple[str, ...]) -> None:
    found = parse_subscription("T", text, "TAG", 7)
    assert (found.tags, found.codes, found.version) == (tags, frozenset(map(java_hash, tags)), 7)
    assert found.everything == (not tags)


@pytest.mark.parametrize(("text", "kind"), [("||", None), (" || ", "TAG"), ("a >", SQL92), ("x", "LUA")])
def test_what_cannot_be_understood_is_an_error(text: str, kind: str | None) -> None:
    with pytest.raises(SubscriptionError):
        parse_subscription("T", text, kind)


def test_tags_are_decided_by_the_hash_alone() -> None:
    accepts = tags_predicate(parse_subscription("T", "Aa || C"))
    assert accepts is not None
    assert [accepts(java_hash(tag)) for tag in ("Aa", "BB", "C", "D")] == [True, True, True, False]  # Aa and BB collide
    assert tags_predicate(Subscription("T")) is None
    assert tags_predicate(Subscription("T", "A", codes=frozenset({1}), class_filter=True)) is None
    assert not accepts(0)


@pytest.mark.parametrize("record", [V1, V2, V3, V4, V5, V6])
def test_properties_are_those_of_the_whole_decoder(record: bytes) -> None:
    assert properties_of(memoryview(record)) == decode_record(record).property_map


@pytest.mark.parametrize("size", range(0, 90, 7))
def test_a_damaged_record_has_no_properties(size: int) -> None:
    assert properties_of(memoryview(V2[:size])) == {}


def test_a_piece_is_split_into_its_records() -> None:
    assert [bytes(record) for record in split_records(V1 + V2 + V6)] == [V1, V2, V6]


def test_sql_decides_by_the_record() -> None:
    accepts = record_predicate(parse_subscription("T", "TAGS = 'TagA' AND KEYS IS NOT NULL", SQL92))
    assert accepts is not None
    assert (accepts(memoryview(V2)), accepts(memoryview(V1))) == (True, False)
    assert record_predicate(Subscription("T")) is None
