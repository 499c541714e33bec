"""Properties as they are stored, compared with the same change on a dictionary."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.publish.send_properties import (
    PropertyRules,
    bare_key,
    needs_draft,
    new_unique_keys,
    queue_by_priority,
    unique_key,
    without,
    without_bytes,
)
from storage_driver.record import decode_properties, encode_properties

JAVA = "UNIQ_KEY\x01U1\x02WAIT\x01true"
NAMES = ["WAIT", "UNIQ_KEY", "MY_UNIQ_KEY", "AWAIT", "TAGS", "KEYS", "CLUSTER", "X_CLUSTER", "TRACE_ON", "\u00fc"]


def rules() -> PropertyRules:
    numbers = count()
    return PropertyRules(cluster="C", region="R", trace_on=True, unique_keys=lambda: f"made{next(numbers)}")


ADDED = {"CLUSTER": "C", "MSG_REGION": "R", "TRACE_ON": "true"}
tables = st.dictionaries(
    st.sampled_from(NAMES),
    st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=6),
    max_size=6,
)


def expected(sent: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in sent.items() if name != "WAIT"}
    return {**kept, "UNIQ_KEY": sent.get("UNIQ_KEY", "made0"), **ADDED}


@settings(max_examples=50)
@given(tables, st.booleans())
def test_what_is_stored_is_what_was_sent_with_the_brokers_own_and_without_the_wish_to_wait(
    sent: dict[str, str], ended: bool
) -> None:
    text = encode_properties(sent).decode()
    text = text if ended else text.removesuffix("\x02")
    assert decode_properties(rules().stored(text)) == expected(sent)
    draft = dict(sent)
    rules().complete(draft)
    assert draft == expected(sent)


@settings(max_examples=50)
@given(tables, st.booleans())
def test_a_message_of_a_batch_gets_the_same_and_only_the_true_wish_to_wait_is_taken(
    sent: dict[str, str], ended: bool
) -> None:
    raw = encode_properties(sent)
    raw = raw if ended else raw.removesuffix(b"\x02")
    found = decode_properties(rules().stored_bytes(raw))
    waits = {"WAIT": sent["WAIT"]} if "WAIT" in sent else {}
    assert found == {**expected(sent), **waits}


@pytest.mark.parametrize("text", [JAVA, JAVA + "\x02", "WAIT\x01true\x02UNIQ_KEY\x01U1\x02", "UNIQ_KEY\x01U1"])
def test_the_spellings_of_java_and_of_others_are_stored_alike(text: str) -> None:
    wanted = b"UNIQ_KEY\x01U1\x02CLUSTER\x01C\x02MSG_REGION\x01R\x02TRACE_ON\x01true\x02"
    assert rules().stored(text) == wanted
    assert rules().stored_bytes(text.encode()) == wanted


def test_a_batch_keeps_the_wish_not_to_wait_and_loses_the_other() -> None:
    own = rules()
    assert b"WAIT\x01false\x02" in own.stored_bytes(b"UNIQ_KEY\x01U\x02WAIT\x01false\x02")
    assert b"WAIT" not in own.stored_bytes(b"WAIT\x01true\x02UNIQ_KEY\x01U\x02A\x01b\x02")


@pytest.mark.parametrize("name", ["MY_UNIQ_KEY", "X UNIQ_KEY"])
def test_a_property_whose_name_ends_alike_is_no_key_of_the_message(name: str) -> None:
    for stored in (rules().stored(f"{name}\x01v\x02"), rules().stored_bytes(f"{name}\x01v\x02".encode())):
        assert decode_properties(stored)["UNIQ_KEY"] == "made0"
        assert decode_properties(stored)[name] == "v"


def test_a_key_that_is_empty_is_made_for_a_draft() -> None:
    draft = {"UNIQ_KEY": "", "POP_CK": "x", "WAIT": "true", "A": "b"}
    rules().complete(draft)
    assert draft == {"UNIQ_KEY": "made0", "A": "b", **ADDED}


def test_text_that_is_no_unicode_is_stored_as_a_question_mark_instead_of_failing() -> None:
    assert b"A\x01?\x02" in rules().stored("A\x01\ud800\x02")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("UNIQ_KEY\x01U1\x02", "U1"),
        ("A\x01b\x02UNIQ_KEY\x01U1", "U1"),
        ("UNIQ_KEY\x01\x02A\x01b", ""),
        ("MY_UNIQ_KEY\x01U1\x02", None),
        ("A\x01UNIQ_KEY\x02", None),
        ("", None),
    ],
)
def test_the_key_is_found_where_a_property_of_that_name_begins(text: str, found: str | None) -> None:
    assert unique_key(text) == found


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("W\x01a\x02B\x01c\x02", "B\x01c\x02"),
        ("B\x01c\x02W\x01a\x02", "B\x01c\x02"),
        ("B\x01c\x02W\x01a", "B\x01c\x02"),
        ("W\x01a", ""),
        ("XW\x01a\x02", "XW\x01a\x02"),
        ("XW\x01a\x02W\x01b\x02", "XW\x01a\x02"),
        ("", ""),
    ],
)
def test_a_piece_is_taken_out_with_its_separator(text: str, left: str) -> None:
    assert without(text, "W\x01") == left
    assert without_bytes(text.encode(), b"W\x01") == left.encode()


@pytest.mark.parametrize(
    "name",
    [
        "DELAY",
        "TRAN_MSG",
        "TIMER_DELIVER_MS",
        "_SYS_MSG_PRIORITY_",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "POP_CK",
        "CLUSTER",
        "TRACE_ON",
        "MSG_REGION",
    ],
)
def test_a_property_the_broker_acts_on_is_never_passed_by(name: str) -> None:
    assert needs_draft(f"UNIQ_KEY\x01U\x02{name}\x01x\x02WAIT\x01true")
    assert needs_draft(f"{name}\x01x\x02")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (JAVA, "U1"),
        (JAVA + "\x02", "U1"),
        ("UNIQ_KEY\x01DELAY\x02WAIT\x01true", "DELAY"),
        ("UNIQ_KEY\x01\u00fc\x02WAIT\x01true", "\u00fc"),
        ("UNIQ_KEY\x01U\x01V\x02WAIT\x01true", None),
        ("A\x01b\x02" + JAVA, None),
        ("WAIT\x01true", None),
        ("", None),
    ],
)
def test_only_what_clients_send_for_a_bare_message_is_bare(text: str, key: str | None) -> None:
    assert bare_key(text) == key
    assert not needs_draft(text)
    if key is not None:
        assert unique_key(text) == key
        assert rules().stored_bare(key) == rules().stored(text)


@pytest.mark.parametrize(
    ("priority", "others", "queue"),
    [
        ("0", {}, 0),
        ("7", {}, 7),
        ("8", {}, 7),
        ("4294967296", {}, 7),
        ("99999999999", {}, 3),
        ("-1", {}, 3),
        ("x", {}, 3),
        ("7", {"TRAN_MSG": "false"}, 7),
        ("7", {"TRAN_MSG": "true"}, 3),
        ("7", {"DELAY": "2"}, 3),
        ("7", {"__SHARDINGKEY": "k"}, 3),
    ],
)
def test_a_priority_is_the_number_of_a_queue_unless_the_message_is_of_another_kind(
    priority: str, others: dict[str, str], queue: int
) -> None:
    properties = {"_SYS_MSG_PRIORITY_": priority, **others}
    assert queue_by_priority(properties, 3, 8) == queue
    assert ("_SYS_MSG_PRIORITY_" in properties) == (priority != "7" or queue == 7)


def test_keys_of_two_sources_never_meet_and_have_one_length() -> None:
    first, second = new_unique_keys(), new_unique_keys()
    made = [first() for _ in range(100)] + [second() for _ in range(100)]
    assert len(set(made)) == 200
    assert {len(key) for key in made} == {32}
